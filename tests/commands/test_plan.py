"""`dpfl-bench plan`: its keys, its text, and the golden numbers of docs/papers.md for `balancing`
and `normalized`.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.command import call

pytestmark = pytest.mark.one_in(3)


KEYS = {
    *(
        "noise_multiplier",
        "eps",
        "delta",
        "releases",
        "rounds",
        "max_rounds",
        "views",
        "accountants",
        "theory",
        "implied",
    ),
    *(
        "run_id",
        "noise_std",
        "clip",
        "sensitivity",
        "observer",
        "accountant",
        "local_steps",
        "total_steps",
        "records_per_client",
    ),
}


def planned(*overrides: str) -> Any:
    return call("plan", "--json", *overrides).json


def test_json() -> None:
    made = planned()
    assert set(made) >= KEYS
    assert made["releases"] == made["rounds"] == made["max_rounds"] == 10
    assert set(made["views"]) == {"server", "third_party"}
    assert set(made["accountants"]) == {"exact", "pld", "rdp"}
    assert set(made["theory"]) >= {"mu", "L", "p_star", "T_star", "v", "bound"}
    assert set(made["implied"]) == {"v", "q"}
    assert made["records_per_client"] == 5
    assert planned("records=7")["records_per_client"] == 7


def test_the_noise_is_what_eps_costs() -> None:
    made = planned("eps=1", "local_steps=5")
    assert 0.99 < made["eps"] <= 1
    assert made["noise_std"] == pytest.approx(made["noise_multiplier"] * made["sensitivity"])
    assert made["max_rounds"] == made["rounds"] == 20
    assert made["accountants"]["rdp"] > made["accountants"]["exact"]
    assert planned("eps=2", "local_steps=5")["noise_multiplier"] < made["noise_multiplier"]


def test_without_privacy() -> None:
    made = planned("algo=fedavg")
    assert made["eps"] == math.inf
    assert (made["noise_multiplier"], made["max_rounds"], made["implied"]) == (0, None, None)
    assert "no privacy" in call("plan", "algo=fedavg").out


def test_text_says_the_same() -> None:
    made, text = planned(), call("plan").out
    for value in (
        made["noise_multiplier"],
        made["noise_std"],
        made["theory"]["T_star"],
        made["theory"]["p_star"],
        made["implied"]["v"],
    ):
        assert f"{value:.6g}" in text
    assert "10 rounds of 10 local steps" in text
    assert "allows 10 rounds" in text
    assert all(f"{row['bound']:.6g}" in text for row in made["theory"]["bound"])


@pytest.mark.parametrize(
    ("eps", "one", "two"),
    [(3.3, 1.5469, 6.1876), (2, 1.3812, 5.5246), (1, 1.2089, 4.8355), (0.5, 1.0737, 4.2949)],
)
@pytest.mark.parametrize("privacy", ["local", "secagg"])
def test_v_of_balancing(eps: float, one: float, two: float, privacy: str) -> None:
    """docs/papers.md: v at delta=1e-5, sensitivity C and 2C, whatever the number of releases."""
    for neighbours, expected in (("add_remove_one", one), ("replace_one", two)):
        given = [f"eps={eps}", f"privacy={privacy}", f"privacy.neighbours={neighbours}", "delta=1e-5"]
        made = planned(*given, "rounds=37", "local_steps=2")
        assert made["implied"]["v"] == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(("eps", "expected"), [(3.3, 2153.92), (2, 1894.40), (1, 1535.18), (0.5, 1175.96)])
def test_T_star_of_balancing(eps: float, expected: float) -> None:
    """docs/papers.md: psi0=1e8, delta=1e-5, mu=.01, L=2.596214, v=8, C=.1, N=10, d=112; B(T) is
    least there.
    """
    mushrooms = ["dataset=mushrooms", "model.l2=.01", "delta=1e-5", "theory.psi0=1e8", "clients=10"]
    formula = ["privacy=local", "privacy.calibration=formula", "privacy.v=8", "privacy.clip=.1"]
    made = planned(*mushrooms, *formula, f"eps={eps}")
    theory = made["theory"]
    assert theory["L"] == pytest.approx(2.596214, abs=1e-6)
    assert theory["p_star"] == pytest.approx(math.sqrt(0.01 / 2.596214), rel=1e-6)
    assert theory["v"] == pytest.approx(8)
    assert theory["T_star"] == pytest.approx(expected, abs=0.006)
    least = min(theory["bound"], key=lambda row: row["bound"])
    assert least["T"] == round(expected)


def test_the_formula_reports_its_real_eps() -> None:
    """v=8 is more than the accountant asks for a sensitivity of 2C, v=4 less."""
    formula = ("privacy=local", "privacy.clip=1", "privacy.calibration=formula", "eps=2")
    safe, unsafe = planned(*formula, "privacy.v=8"), planned(*formula, "privacy.v=4")
    assert safe["eps_target"] == unsafe["eps_target"] == 2
    assert safe["eps"] < 2 < unsafe["eps"]
    assert safe["max_rounds"] > 10 > unsafe["max_rounds"]
    assert safe["noise_std"] == pytest.approx(math.sqrt(8 * 10 * math.log(1e5)) / 2)


def test_a_small_psi0_buys_nothing() -> None:
    mushrooms = ["dataset=mushrooms", "model.l2=.01", "theory.psi0=1e4", "privacy=local", "privacy.clip=.1"]
    mushrooms += ["privacy.calibration=formula", "privacy.v=8"]
    assert planned(*mushrooms, "eps=.5")["theory"]["T_star"] == 0
    assert "the budget buys nothing" in call("plan", *mushrooms, "eps=.5").out


@pytest.mark.parametrize(
    ("eps", "delta", "expected"), [(5, 1e-6, 1.7381), (5, 1e-5, 1.7273), (2, 1e-5, 1.3812)]
)
def test_q_of_normalized(eps: float, delta: float, expected: float) -> None:
    """docs/papers.md: full participation, add/remove one client; times 4 for replace-one."""
    given = ("algo=dp_normfedavg", f"eps={eps}", f"delta={delta}")
    assert planned(*given, "privacy.neighbours=add_remove_one")["implied"]["q"] == pytest.approx(
        expected, abs=6e-5
    )
    assert planned(*given)["implied"]["q"] == pytest.approx(4 * expected, abs=3e-4)


@pytest.mark.slow
def test_the_rounds_that_are_allowed_are_really_allowed() -> None:
    """Poisson cohorts under local trust: a longer run may meet a smaller cohort, which hides less
    towards a third party.
    """
    poisson = (
        "algo=dp_fedavg",
        "privacy=local",
        "privacy.observer=third_party",
        "privacy.neighbours=add_remove_one",
        *("eps=2", "local_steps=1", "client_sampling=poisson", "sampled_clients=6"),
        *("privacy.calibration=fixed", "privacy.noise_multiplier=3"),
    )
    most = planned(*poisson, "rounds=1")["max_rounds"]
    assert planned(*poisson, f"rounds={most}")["eps"] <= 2 < planned(*poisson, f"rounds={most + 1}")["eps"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "prepared",
    [
        "dataset.unit_norm=false",
        "dataset.standardise=none",
        "dataset.limit=3",
        "dataset.seed=1",
        "dataset.test_fraction=.5",
    ],
)
def test_no_theory_from_constants_of_another_preparation(prepared: str) -> None:
    assert planned()["theory"]["L"] == pytest.approx(0.25 * 0.402933 + 0.01)
    assert planned()["theory"]["covers"].startswith("ScaffNew")
    assert planned(prepared)["theory"] is None
    assert planned(prepared, "theory.L=.3")["theory"]["L"] == 0.3
    assert (planned(prepared)["records_per_client"] is None) == ("test_fraction" in prepared)
