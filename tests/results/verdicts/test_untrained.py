"""Points beside the initial model, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.sources import lost, run

from dpfl_bench.results.select.cells import Question, cells
from dpfl_bench.results.select.sources import Run
from dpfl_bench.results.verdicts.untrained import compared, nothing_learnt, told

NAN = math.nan


def trained(start: list[float], end: list[float], **settings: Any) -> Run:
    """Three seeds, evaluated before the first round and after the last."""
    column = settings.pop("column", "test_error")
    other = "train_loss" if column == "test_error" else "test_error"
    seeds = range(len(start))
    rows = {
        "seed": [*seeds, *seeds],
        "round": [0] * len(start) + [10] * len(end),
        column: [*start, *end],
        other: [NAN] * 2 * len(start),
    }
    valid = settings.pop("valid", 2.0)
    return run({"dataset.name": "mnist", **settings}, rows=rows, valid_eps=valid, eps_target=valid)


def asked(*runs: Run, y: str = "test_error", by: str = "lr") -> list[dict[str, Any]]:
    return compared(source for cell in cells(runs, Question(y, (by,))) for source in cell.sources)


def test_a_point_counts_where_every_seed_lets_no_doubt() -> None:
    learnt = trained([0.9, 0.9, 0.9], [0.2, 0.3, 0.25], lr=0.1)
    noise = trained([0.9, 0.9, 0.9], [0.95, 0.85, 0.88], lr=0.2)
    worse = trained([0.9, 0.9, 0.9], [0.99, 0.98, 0.99], lr=0.3)
    (entry,) = asked(learnt, noise, worse)
    assert entry == {
        "dataset": "mnist",
        "quantity": "test_error",
        "initial": [pytest.approx(0.9), pytest.approx(0.9)],
        "points": 3,
        "better": 1,
    }
    assert told([entry]) == ["1 of 3 points are better than the initial model (mnist: test error 0.9)"]


def test_seeds_are_paired_with_their_own_start() -> None:
    """The ends overlap with the starts of other seeds; each seed gains .1 in its own."""
    (entry,) = asked(trained([0.5, 0.7, 0.9], [0.4, 0.61, 0.79]))
    assert entry["better"] == 1
    assert entry["initial"] == [pytest.approx(0.7), pytest.approx(0.7)]


def test_without_a_test_set_the_training_loss_counts() -> None:
    (entry,) = asked(trained([5.0, 5.0, 5.0], [1.0, 1.1, 0.9], column="train_loss"), y="train_loss")
    assert (entry["quantity"], entry["better"]) == ("train_loss", 1)


def test_runs_without_privacy_do_not_count() -> None:
    assert asked(trained([0.9, 0.9, 0.9], [0.1, 0.1, 0.1], valid=None)) == []


def test_a_diverged_run_is_a_point_that_is_not_better() -> None:
    rows = {"seed": [0, 1, 2], "round": [0, 0, 0], "test_error": [0.9] * 3, "train_loss": [NAN] * 3}
    broken = lost({"dataset.name": "mnist"}, rows=rows, valid_eps=2.0, eps_target=2.0)
    (entry,) = asked(broken)
    assert (entry["points"], entry["better"]) == (1, 0)


def test_a_run_counts_once_however_often_it_is_shown() -> None:
    one = trained([0.9, 0.9, 0.9], [0.2, 0.3, 0.25])
    over_rounds = cells([one], Question("test_error", ("round",)))
    assert len(over_rounds) == 2
    (entry,) = compared(source for cell in over_rounds for source in (*cell.sources, one))
    assert entry["points"] == 1


def test_splits_of_one_point_are_one_point() -> None:
    """Seeds of several splits: each split counts once."""
    runs = [
        trained([0.9] * 3, [end, end, end], **{"dataset.seed": split})
        for split, end in ((0, 0.2), (1, 0.3), (2, 0.25))
    ]
    (entry,) = asked(*runs)
    assert (entry["points"], entry["better"]) == (1, 1)


def test_nothing_learnt() -> None:
    learnt = trained([0.9, 0.9, 0.9], [0.2, 0.3, 0.25], lr=0.1)
    noise = trained([0.9, 0.9, 0.9], [0.95, 0.85, 0.88], lr=0.2)
    free = trained([0.9, 0.9, 0.9], [0.1, 0.1, 0.1], valid=None)
    assert nothing_learnt([noise, free])
    assert not nothing_learnt([noise, learnt])
    assert not nothing_learnt([free])  # nothing to say
