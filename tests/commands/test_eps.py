"""The eps that runs report: never above the target, close to it under exact calibration, and
growing round by round.
"""

from __future__ import annotations

import math

import pytest
from helpers.command import QUICK, call, metrics, read

pytestmark = pytest.mark.one_in(6)


GRID = """
eps=2 local_steps=1 privacy=secagg privacy.neighbours=replace_one
eps=.5 local_steps=10 privacy=secagg privacy.neighbours=add_remove_one
eps=8 local_steps=5 privacy=local privacy.neighbours=replace_one
eps=1 local_steps=2 privacy=local privacy.neighbours=add_remove_one sampled_clients=30 repeats=2
eps=2 local_steps=2 privacy=secagg sampled_clients=9 repeats=3
eps=2 local_steps=5 privacy=central algo=dp_fedavg privacy.neighbours=add_remove_one
eps=2 local_steps=2 privacy=central algo=dp_fedavg sampled_clients=9 repeats=2
eps=1 local_steps=2 privacy=central algo=dp_fedavg client_sampling=poisson sampled_clients=18 \
privacy.neighbours=add_remove_one
eps=4 local_steps=2 privacy=secagg algo=dp_fedavg privacy.observer=third_party sampled_clients=30
eps=2 local_steps=2 privacy=local algo=dp_normfedavg client_sampling=poisson sampled_clients=30
eps=2 local_steps=4 algo.coins=true repeats=3
eps=2 local_steps=5 privacy.accountant=rdp
eps=2 local_steps=5 privacy.accountant=pld delta=1e-6
eps=50 local_steps=5
eps=.01 local_steps=20
""".strip().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("overrides", GRID)
def test_exact_calibration_meets_the_target(overrides: str) -> None:
    given = [*overrides.split(), "total_steps=40", "eval_every=1", *QUICK]
    ran = call("run", *given)
    result, ledger, rows = (
        read(ran.folder, "result.json"),
        read(ran.folder, "privacy.json"),
        metrics(ran.folder),
    )
    target = result["eps_target"]
    assert 0.99 * target < result["eps"] <= target
    assert ledger["views"][ledger["observer"]] <= result["eps"]
    assert ledger["accountants"][ledger["accountant"]] == result["eps"]
    for _, seed in rows.groupby("seed"):
        assert seed["eps"].iloc[0] == 0
        assert (seed["eps"].diff().dropna() >= 0).all()
        assert seed["eps"].iloc[-1] <= target
    assert rows["eps"].max() == pytest.approx(result["eps"], rel=1e-9)
    assert call("plan", "--json", *given).json["noise_multiplier"] == result["noise_multiplier"]


def test_formula_tells_the_nominal_eps_beside_the_real_one() -> None:
    given = ("privacy=local", "privacy.calibration=formula", "total_steps=20", *QUICK)
    for v, stays_below in ((4, False), (8, True)):
        folder = call("run", *given, f"privacy.v={v}").folder
        ledger, result = read(folder, "privacy.json"), read(folder, "result.json")
        assert ledger["nominal_eps"] == result["eps_target"] == 2
        assert (ledger["eps"] <= 2) == stays_below
        assert ledger["eps"] == result["eps"] == pytest.approx(metrics(folder)["eps"].max())


def test_a_fixed_noise_tells_its_eps() -> None:
    """One release at multiplier 1 is mu = 1: delta(eps) = Phi(1/2 - eps) - e^eps Phi(-1/2 - eps) is
    1e-5 at eps 4.3772.
    """
    folder = call(
        "run", "privacy.calibration=fixed", "privacy.noise_multiplier=1", "rounds=1", "local_steps=2", *QUICK
    ).folder
    eps = read(folder, "result.json")["eps"]

    def normal(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    assert normal(0.5 - eps) - math.exp(eps) * normal(-0.5 - eps) == pytest.approx(1e-5, rel=1e-6)
    assert metrics(folder)["eps"].iloc[-1] == pytest.approx(eps)


def test_without_privacy_eps_is_infinite_from_the_first_round() -> None:
    folder = call("run", "eps=inf", "rounds=2", "local_steps=2", *QUICK).folder
    assert list(metrics(folder)["eps"]) == [0, math.inf, math.inf]
    assert read(folder, "result.json")["eps"] == math.inf
    assert read(folder, "privacy.json")["private"] is False
