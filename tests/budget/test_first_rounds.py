"""The rounds that eps allows a third party do not depend on who was drawn most often."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.federations import settings_of

from dpfl_bench.budget import released, spent
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.federation.schedule import Schedule

RECORD = (
    *("algo=dp_scaffold", "dataset=synthetic_logistic", "privacy=record", "records=4000", "clients=100"),
    *("sampled_clients=5", "local_steps=10", "rounds=50", "eps=3", "delta=2.5e-6"),
    *("privacy.calibration=fixed", "privacy.noise_multiplier=10"),
)
LOTS = {
    "poisson": ("sample_rate=0.2", "privacy.neighbours=add_remove_one"),
    "fixed": ("batch_size=800",),
    "paper": ("batch_size=800", "privacy.accountant=paper"),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFL_CACHE_DIR", str(tmp_path))


def budget_of(*more: str) -> Budget:
    settings = settings_of(*RECORD, *more)
    return Budget.of(settings, drawn_schedules(settings))


@pytest.mark.parametrize("lots", LOTS)
def test_no_cohort_beyond_the_run_is_drawn(lots: str, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = budget_of(*LOTS[lots], "privacy.observer=third_party")
    drawn = released.of_first_rounds(budget.planned, budget.schedules, budget.holders, 10)
    expected = spent.max_rounds(budget.settings, 10.0, drawn, "third_party")
    cohorts: list[int] = []
    cohort = Schedule.cohort
    monkeypatch.setattr(Schedule, "cohort", lambda self, t: (cohorts.append(t), cohort(self, t))[1])
    assert budget.max_rounds() == expected > 300
    assert max(cohorts, default=0) < 50


def test_a_server_counts_who_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bound is for the drawn schedule, so it asks for every cohort."""
    budget = budget_of(*LOTS["poisson"], "privacy.observer=server")
    cohorts: list[int] = []
    cohort = Schedule.cohort
    monkeypatch.setattr(Schedule, "cohort", lambda self, t: (cohorts.append(t), cohort(self, t))[1])
    assert max(cohorts, default=0) < (budget.max_rounds() or 0) <= max(cohorts) + 1
