"""Towards a third party eps averages over cohorts that it does not see: no number that is printed
follows from how they fell.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command import QUICK, call, metrics, read
from scipy.stats import binom

from dpfl_bench.privacy import accounting
from dpfl_bench.privacy.accounting import epsilon
from dpfl_bench.privacy.divergences import pure as pure_releases
from dpfl_bench.privacy.released.composition import Composition

THIRD = "privacy.observer=third_party"
RECORD = (
    "algo=dp_fedavg",
    "privacy=record",
    "dataset=digits",
    "clients=20",
    "sampled_clients=2",
    "rounds=10",
    "local_steps=5",
    "batch_size=14",
    THIRD,
)
CLIENT = ("algo=dp_fedavg", "clients=3", "sampled_clients=1", "rounds=4", "local_steps=1", THIRD,
          "privacy.calibration=fixed",
          "privacy.noise_multiplier=0.3")  # fmt: skip


def plan(*overrides: str) -> Any:
    return call("plan", "--json", *overrides).json


@pytest.mark.slow
def test_record_level_every_seed_prints_the_average() -> None:
    """Seed 1 had lucky cohorts and printed 1.774; all others 1.9992."""
    made = [plan(*RECORD, f"seed={seed}") for seed in range(6)]
    assert {m["eps"] for m in made} == {made[0]["eps"]}
    assert made[0]["eps"] == pytest.approx(1.9992, abs=1e-4)
    assert len({m["views"]["third_party_given_cohorts"] for m in made}) > 1
    assert all(m["spent"] == made[0]["spent"] for m in made)
    assert {m["max_rounds"] for m in made} == {made[0]["max_rounds"]}


@pytest.mark.slow
def test_client_level_every_seed_prints_the_average() -> None:
    """Where the worst client was drawn twice in four rounds it printed 30.51."""
    made = [plan(*CLIENT, f"seed={seed}") for seed in range(6)]
    assert {m["eps"] for m in made} == {made[0]["eps"]}
    assert made[0]["eps"] == pytest.approx(38.14, abs=5e-3)
    assert min(m["views"]["third_party_given_cohorts"] for m in made) == pytest.approx(30.506, abs=1e-3)
    assert {m["views"]["server"] for m in made} == {m["views"]["third_party_given_cohorts"] for m in made}


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [RECORD, (*CLIENT, "seed=1"), (*CLIENT, "privacy.neighbours=add_remove_one")],
    ids=["record", "client", "coins"],
)
def test_a_run_prints_composes_and_keeps_the_average_alone(overrides: tuple[str, ...]) -> None:
    lucky = [call("run", *overrides, f"seed={seed}", "eval_every=1", *QUICK).folder for seed in range(3)]
    told = [read(folder, "privacy.json") for folder in lucky]
    assert len({t["eps"] for t in told}) == 1
    assert len({t["views"]["third_party"] for t in told}) == 1
    assert len({str(t["accounted"]) for t in told}) == 1
    assert len({tuple(metrics(folder)["eps"]) for folder in lucky}) == 1
    assert all(len(t["accounted"]["as_one_of"]) == 1 for t in told)
    assert all(any("averages over" in line for line in t["assumes"]) for t in told)


def test_all_clients_have_no_second_view() -> None:
    told = read(call("run", "algo=dp_fedavg", "rounds=2", "local_steps=1", *QUICK).folder, "privacy.json")
    assert set(told["views"]) == {"server", "third_party"}


@pytest.mark.slow
def test_tuning_takes_fresh_draws_also_towards_the_server(tmp_path: Path) -> None:
    """A trial draws cohorts of its own: those of the runs at hand may have been lucky ones."""
    overrides = [o for o in CLIENT if o not in (THIRD, "rounds=4")] + ["rounds=9"]
    lucky, unlucky = sorted(
        (call("run", *overrides, f"seed={seed}", "privacy.noise_multiplier=5",
         *QUICK).folder for seed in range(6)),
        key=lambda folder: read(folder, "result.json")["eps"],
    )[:: 5]  # fmt: skip
    assert read(lucky, "result.json")["eps"] < read(unlucky, "result.json")["eps"]
    tuned = [
        call("collect", str(folder), "--to", str(tmp_path / name), "--json", "--tuning-eps").json["table"][0][
            "tuning_eps"
        ]
        for name, folder in (("lucky", lucky), ("unlucky", unlucky))
    ]
    fresh = Composition("gaussian", 9, 1.0, 3, 1, share=1 / 3, rounds=((1, 9),))
    assert tuned[0] == tuned[1] == pytest.approx(epsilon(fresh, 5.0, 1e-5), rel=1e-9)


@pytest.mark.parametrize(
    ("pure", "share", "rounds"), [(0.5, 0.3, 20), (3.0, 0.05, 40), (0.01, 0.9, 300), (2.0, 1.0, 7)]
)
def test_pure_releases_over_coins_that_show(pure: float, share: float, rounds: int) -> None:
    """delta(eps) = E[delta of Binomial(T, l) randomised responses], term by term; RDP and basic
    composition are above.
    """
    made = Composition("pure", rounds, share=share, rounds=((1, rounds),))
    found = epsilon(made, 1 / pure, 1e-5, "exact")
    up = math.exp(pure) / (1 + math.exp(pure))

    def exact(eps: float) -> float:
        total = 0.0
        for n in range(rounds + 1):
            losses = (2 * np.arange(n + 1) - n) * pure
            total += binom.pmf(n, rounds, share) * float(
                binom.pmf(np.arange(n + 1), n, up) @ np.maximum(0, 1 - np.exp(eps - losses))
            )
        return total

    assert exact(found) <= 1e-5 * (1 + 1e-6)
    assert found == 0 or exact(found * 0.999) > 1e-5 * (1 - 1e-5)
    orders, curve = accounting.renyi(made, 1 / pure)
    from dp_accounting.rdp import rdp_privacy_accountant

    assert found <= rdp_privacy_accountant.compute_epsilon(orders, curve, 1e-5)[0] * (1 + 1e-9)
    assert found <= epsilon(made, 1 / pure, 1e-5, "basic")
    assert pure_releases.participation_pure_epsilon(pure, share, ((1, rounds),), 1e-13) == rounds * pure
