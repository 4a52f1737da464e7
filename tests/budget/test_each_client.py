"""client_eps.csv: each client's releases and what they spend, by closed form, by integrated privacy
losses, and by what the doors recorded.
"""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.command import call, read
from helpers.federations import TINY, player_of, settings_of
from oracles.integrated import Rounds, bracket, poisson, pure
from scipy.optimize import brentq
from scipy.stats import norm

from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.each_client import text, why_none
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.federation.holders import Holders
from dpfl_bench.privacy.accountants import exact
from dpfl_bench.privacy.refusals import OutOfReach

SAMPLED = ("algo=dp_fedavg", *TINY, "sampled_clients=4", "rounds=6", "privacy.noise_multiplier=2")
LOTS = (*SAMPLED, "privacy=record", "sample_rate=0.25", "privacy.neighbours=add_remove_one")
CLIENT = {
    "local": ("privacy=local",),
    "secagg": ("privacy=secagg", "repeats=3"),
    "poisson": ("privacy=secagg", "client_sampling=poisson"),
    "colluding": ("privacy=secagg", "privacy.colluding=1"),
    "full record": ("privacy=record", "local_steps=2"),
    "own shares": ("algo=dp_scaffnew", "privacy=secagg", "privacy.memory=own_message"),
    "everybody": ("privacy=central", "sampled_clients=10"),
}


def budget_of(*overrides: str) -> Budget:
    settings = settings_of(*overrides)
    return Budget.of(settings, drawn_schedules(settings))


def rows_of(budget: Budget, tmp: Path) -> pd.DataFrame:
    content = text(budget)
    assert content is not None
    (tmp / "client_eps.csv").write_text(content)
    return pd.read_csv(tmp / "client_eps.csv")


def gaussian_eps(n: int, z: float, delta: float) -> float:
    """Of n Gaussian releases (Balle and Wang 2018, theorem 8), solved with scipy."""
    if n == 0:
        return 0.0
    mu = math.sqrt(n) / z

    def excess(eps: float) -> float:
        return float(norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)) - delta

    return float(brentq(excess, 0, 100, xtol=1e-12))


@pytest.mark.parametrize("overrides", CLIENT.values(), ids=CLIENT)
def test_gaussian_releases_have_the_closed_form(overrides: tuple[str, ...], tmp_path: Path) -> None:
    budget = budget_of(*SAMPLED, *overrides)
    rows = rows_of(budget, tmp_path)
    share = {"privacy.colluding=1": math.sqrt(1 - 1 / 4), "privacy.memory=own_message": 0.5}
    scale = math.prod(share.get(o, 1.0) for o in overrides)
    for n, eps in zip(rows["releases"], rows["eps"], strict=True):
        assert eps == pytest.approx(gaussian_eps(n, 2 * scale, budget.settings.delta), rel=1e-6)
        assert n == 0 or abs(eps / gaussian_eps(n + 1, 2 * scale, budget.settings.delta) - 1) > 0.01
    assert set(rows["accountant"]) == {"exact"}


@pytest.mark.parametrize("overrides", [*CLIENT.values(), LOTS], ids=[*CLIENT, "lots"])
def test_the_worst_client_has_the_runs_eps(overrides: tuple[str, ...], tmp_path: Path) -> None:
    budget = budget_of(*SAMPLED, *overrides)
    rows = rows_of(budget, tmp_path)
    assert rows["eps"].max() == budget.eps
    assert rows["releases"].max() == budget.planned.worst
    assert len(rows) == budget.settings.clients * len(budget.schedules)
    by_count = rows.sort_values("releases")["eps"]
    assert by_count.is_monotonic_increasing
    assert (rows["eps"] == 0).equals(rows["releases"] == 0)


def test_lots_lie_in_the_integrated_bracket(tmp_path: Path) -> None:
    budget = budget_of(*LOTS)
    rows = rows_of(budget, tmp_path).drop_duplicates("releases").set_index("releases")["eps"]
    delta = budget.settings.delta
    for n in (rows.index.min(), rows.index.max()):
        low, high = bracket((Rounds(((lambda cells: poisson(0.25, 2.0)(cells), int(n)),)),), delta)
        assert low <= rows[n] <= 1.02 * high
    wrong = bracket((Rounds(((lambda cells: poisson(0.25, 2.0)(cells), int(n) + 3),)),), delta)
    assert rows[n] < wrong[0]  # the bracket tells the number of releases


def test_privunit_is_randomised_response(tmp_path: Path) -> None:
    more = ("privacy=local", "privacy.mechanism=privunit", "privacy.calibration=exact", "eps=8")
    budget = budget_of(*SAMPLED, "privacy.noise_multiplier=null", *more)
    rows = rows_of(budget, tmp_path).drop_duplicates("releases")
    for n, eps in zip(rows["releases"], rows["eps"], strict=True):
        expected = pure(1 / budget.noise_multiplier, n, budget.settings.delta) if n else 0.0
        assert eps == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("more", [(), ("privacy=record", "batch_size=3")], ids=["client", "record"])
def test_the_doors_recorded_these_releases(more: tuple[str, ...], tmp_path: Path) -> None:
    played = player_of(settings_of(*SAMPLED, *more))
    ledger = played.states()[-1].ledger.taken
    rows = rows_of(played.job.budget, tmp_path)
    assert rows["releases"].tolist() == ledger.tolist()
    assert rows["eps"].max() == played.job.budget.eps


def test_a_shared_record_counts_over_its_holders(tmp_path: Path) -> None:
    settings = settings_of(*SAMPLED, "privacy=record", "sampled_clients=2", "clients=3", "dataset.clients=3")
    parts = [np.array([0, 1, 2]), np.array([2, 3]), np.array([4, 5])]
    budget = Budget.of(settings, drawn_schedules(settings), Holders.of(parts, 6))
    (schedule,) = budget.schedules
    taken = [3 * sum(i in schedule.cohort(t) for t in range(6)) for i in range(3)]
    rows = rows_of(budget, tmp_path)
    assert rows["releases"].tolist() == [taken[0] + taken[1], taken[0] + taken[1], taken[2]]
    assert rows["eps"].max() == budget.eps


def test_whoever_does_not_know_the_cohorts_gets_none() -> None:
    assert text(budget_of(*SAMPLED, "privacy=central")) is None
    assert text(budget_of(*SAMPLED, "privacy.observer=third_party")) is None
    assert "would tell who took part" in str(why_none(budget_of(*SAMPLED, "privacy=central")))
    assert text(budget_of("algo=fedavg", *TINY)) is None


def test_the_papers_accountant_gives_no_number() -> None:
    paper = ("algo=dp_scaffold", "privacy.accountant=paper", "batch_size=3", "records=12")
    assert text(budget_of(*SAMPLED, "privacy=record", "privacy.observer=third_party", *paper)) is None


def test_an_accountant_that_cannot_tell_leaves_the_larger_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed = exact.epsilon

    def epsilon(composition: object, noise: float, delta: float) -> float:
        if composition.times == 1:  # type: ignore[attr-defined]
            raise OutOfReach("too few")
        return closed(composition, noise, delta)  # type: ignore[arg-type]

    budget = budget_of(*SAMPLED, "privacy=local")
    known = rows_of(budget, tmp_path).groupby("releases")["eps"].first()
    monkeypatch.setattr("dpfl_bench.privacy.accounting.one", lambda c, z, d, name: epsilon(c, z, d))
    fewer = rows_of(budget, tmp_path).groupby("releases")["eps"].first()
    assert fewer[1] == known[2] > known[1]
    assert fewer[2] == known[2]


def test_a_run_writes_it() -> None:
    folder = call("run", *SAMPLED, "privacy=local", "repeats=2").folder
    rows = pd.read_csv(folder / "client_eps.csv")
    assert [*rows.columns] == ["seed", "client", "releases", "eps", "accountant"]
    assert rows["eps"].max() == read(folder, "result.json")["eps"]
    assert read(folder, "privacy.json")["client_eps"] == "client_eps.csv"
    secret = call("run", *SAMPLED, "privacy=central").folder
    assert not (secret / "client_eps.csv").exists()
    assert "same for all clients" in read(secret, "privacy.json")["client_eps"]


def test_seeds_whose_coins_fell_otherwise_have_rounds_of_their_own() -> None:
    """Each has the eps of a run of that seed alone."""
    coins = ("algo=dp_scaffnew", *TINY, "algo.coins=true", "rounds=12")
    rows = pd.read_csv(io.StringIO(text(budget_of(*coins, "repeats=3"))))
    of_seeds = rows.groupby("seed")[["releases", "eps"]].agg(["min", "max"])
    assert of_seeds["releases"]["max"].nunique() > 1
    for seed, row in of_seeds.iterrows():
        alone = budget_of(*coins, f"seed={seed}")
        assert row["releases"]["min"] == row["releases"]["max"] == alone.rounds
        assert row["eps"]["min"] == row["eps"]["max"] == pytest.approx(alone.eps, rel=1e-9)
