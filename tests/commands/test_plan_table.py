"""`plan` of several settings at once, the noise said three ways, what eps means, and theory only
where it applies.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.command import call
from scipy.stats import norm


def planned(*overrides: str) -> Any:
    return call("plan", "--json", *overrides).json


def test_the_noise_three_ways() -> None:
    """The example of issue 21: 3.78 on the sum, .535 a client's share, .0757 on the mean."""
    on = planned("clients=50")["noise_on"]
    assert [f"{on[key]:.3g}" for key in ("sum", "client", "mean")] == ["3.78", "0.535", "0.0757"]
    text = call("plan", "clients=50").out
    assert "on the sum of a cohort 3.78, a client's own 0.535, on their mean 0.0757" in text


def test_whose_noise() -> None:
    """Local: a message has all of its noise. Central: no client adds any. Record: of a lot."""
    local = planned("privacy=local", "algo=dp_fedavg")
    assert local["noise_on"]["client"] == pytest.approx(local["noise_std"])
    assert local["noise_on"]["sum"] == pytest.approx(local["noise_std"] * math.sqrt(90))
    central = planned("privacy=central", "algo=dp_fedavg", "sampled_clients=9")
    assert {*central["noise_on"]} == {"sum", "mean"}
    assert central["noise_on"]["mean"] == pytest.approx(central["noise_std"] / 9)
    record = planned("privacy=record", "algo=dp_fedavg", "batch_size=2", "clients=10")
    assert record["noise_on"]["lot_mean"] == pytest.approx(record["noise_std"] / 2)
    assert planned("algo=fedavg")["noise_on"] is None


@pytest.mark.parametrize("given", ["eps=2", "eps=0.5 privacy=local", "eps=8 local_steps=50 clients=20"])
def test_the_power_of_gaussian_noise(given: str) -> None:
    made = planned("algo=dp_fedavg", *given.split())
    mu = math.sqrt(made["rounds"]) / made["noise_multiplier"]
    for alarms in (0.05, 0.01):
        expected = norm.cdf(norm.ppf(alarms) + mu)
        assert made["means"]["power"][f"{alarms:g}"] == pytest.approx(expected, rel=1e-9)
    assert made["means"]["likelihood_ratio"] == pytest.approx(math.exp(made["eps"]))
    assert made["means"]["power_is"].startswith("exact")


def test_the_power_where_cohorts_are_drawn_in_secret() -> None:
    """Of (eps, delta): Kairouz, Oh & Viswanath's two lines."""
    made = planned("algo=dp_fedavg", "privacy=central", "sampled_clients=9", "eps=2")
    ratio, delta = math.exp(made["eps"]), made["delta"]
    for alarms in (0.05, 0.01):
        expected = min(ratio * alarms + delta, 1 - (1 - delta - alarms) / ratio)
        assert made["means"]["power"][f"{alarms:g}"] == pytest.approx(expected)
    assert made["means"]["power_is"].startswith("a bound")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", ("the server sees (the sums of updates of 10 rounds)", "one client's data", "in their place")),
        ("privacy=local", ("the server sees (each client's noised message", "e^2 = 7.39")),
        ("privacy=central algo=dp_fedavg", ("a third party sees (the global models of 10 rounds)",)),
        ("privacy=record algo=dp_fedavg clients=10", ("one record", "any other record in its place")),
        ("privacy.neighbours=add_remove_one", ("one client's update as without it",)),
        ("rounds=1 local_steps=3", ("of 1 round)",)),
    ],
)
def test_the_sentence(given: str, said: tuple[str, ...]) -> None:
    sentence = planned(*given.split())["means"]["says"]
    assert all(words in sentence for words in said), sentence
    assert "5 % or 1 % false alarms" in sentence
    shown = " ".join(call("plan", *given.split()).out.split())
    assert sentence in shown


def test_nothing_is_said_where_no_eps_holds() -> None:
    assert planned("algo=fedavg")["means"] is None
    assert "means" not in call("plan", "algo=fedavg").out


def test_a_paper_s_own_accountant_means_the_eps_that_holds() -> None:
    record = ("algo=dp_scaffold", "privacy=record", "clients=10", "sampled_clients=5", "batch_size=2")
    paper = planned(*record, "privacy.accountant=paper", "privacy.observer=third_party", "rounds=2")
    assert paper["valid_eps"] > 1.5 * paper["eps"]
    assert paper["means"]["likelihood_ratio"] == pytest.approx(math.exp(paper["valid_eps"]))


def test_several_budgets() -> None:
    said = call("plan", "eps=.5,1,2")
    head, *rows = said.out.split("\n\n")[0].splitlines()
    assert head.split()[0] == "eps"
    assert [row.split()[0] for row in rows] == ["0.5", "1", "2"]
    for eps, row in zip(("0.5", "1", "2"), rows, strict=True):
        alone = planned(f"eps={eps}")
        cells = (alone["noise_multiplier"], *alone["noise_on"].values(), alone["eps"])
        assert row.split()[1:6] == [f"{each:.4g}" for each in cells]
        assert row.split()[-1] == f"{alone['theory']['T_star']:.4g}"


def test_several_as_json() -> None:
    plans = planned("eps=.5,inf", "algo=dp_fedavg,dp_scaffnew")
    assert [plan["overrides"] for plan in plans] == [
        [f"eps={eps}", f"algo={algo}"] for eps in ("0.5", "inf") for algo in ("dp_fedavg", "dp_scaffnew")
    ]
    assert plans[0]["noise_multiplier"] == planned("eps=.5", "algo=dp_fedavg")["noise_multiplier"]


def test_the_jobs_of_a_sweep() -> None:
    rows = call("plan", "-m", "local_steps=divisors", "total_steps=6").out.splitlines()[1:5]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "6"]
    assert call("plan", "local_steps=divisors", "total_steps=6").out.splitlines()[1:5] == rows
    refused = call("plan", "eps=1,-1")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("dpfl-bench: eps=-1: expected eps > 0")
    refused = call("plan", "eps=1,-1", "rounds=3")
    assert "eps=-1 rounds=3: eps=-1: expected eps > 0" in refused.err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("algo=dp_fedavg", "algo=dp_fedavg is not ScaffNew"),
        ("algo=dp_scaffold", "not ScaffNew"),
        ("sampled_clients=9", "every client"),
        ("batch_size=2", "full gradients"),
        ("local_momentum=.5", "plain steps"),
        ("server_lr=.5", "plain steps"),
        ("privacy.bound=normalise", "normalised"),
        ("average_last=2", "the last iterate"),
        ("privacy.clip=median", "one size"),
    ],
)
def test_theory_only_where_it_applies(given: str, why: str) -> None:
    made = planned(given)
    assert made["theory"] is None
    assert why in made["theory_is_none"]
    assert f"theory     none: {made['theory_is_none']}" in call("plan", given).out
    assert planned()["theory"]["T_star"] > 0
    assert planned()["theory_is_none"] is None


def test_theory_says_whose_shifts_it_has() -> None:
    said = "shifts of noisy messages"
    assert f"{said} (of updates here: privacy.memory=own_update)" in planned()["theory"]["covers"]
    assert f"{said};" in planned("privacy=local")["theory"]["covers"]
