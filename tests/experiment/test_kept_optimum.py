"""The exact optimum is solved once for the jobs of one process that share records and objective."""

from __future__ import annotations

import dataclasses

import pytest
from helpers.federations import TINY, settings_of

from dpfl_bench.experiment import exact_optimum, job

LINEAR = (*TINY, "algo=dp_fedavg", "model.l2=0.1")


@pytest.mark.parametrize(
    ("other", "solved"),
    [
        ("lr=0.5", 1),
        ("algo=dp_scaffold", 1),
        ("model.l2=0.2", 2),
        ("weight_decay=0.1", 2),
        ("dataset.seed=1", 2),
        ("partition.seed=1", 2),
        ("model.bias=true", 2),
    ],
)
def test_it_is_solved_once(other: str, solved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    solve = exact_optimum.solve_reference
    monkeypatch.setattr(exact_optimum, "_KEPT", {})
    monkeypatch.setattr(
        exact_optimum, "solve_reference", lambda *given: (asked.append(given), solve(*given))[1]
    )
    plain = ("partition=iid", "model.bias=false")
    first = job.prepare(settings_of(*LINEAR, *plain)).reference
    second = job.prepare(settings_of(*LINEAR, *plain, other)).reference
    assert len(asked) == solved
    assert first is not None
    assert second is not None
    alone = solve(*asked[-1])
    assert alone is not None
    for name in (f.name for f in dataclasses.fields(exact_optimum.Reference)):
        assert str(getattr(alone, name)) == str(getattr(second, name))


def test_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_optimum, "_KEPT", {})
    for seed in range(exact_optimum.MOST_KEPT + 2):
        job.prepare(settings_of(*LINEAR, f"dataset.seed={seed}"))
    assert len(exact_optimum._KEPT) == exact_optimum.MOST_KEPT
