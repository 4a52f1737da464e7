"""Printed numbers beside ours: exact, within, differs, or not at this setting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers.sources import facts, grid, lost, run

from dpfl_bench.results.select.intervals import of_prediction
from dpfl_bench.results.verdicts.printed import Match, Printed, matches


def compared(sources: Any, cells: Any, elsewhere: str = "", **more: Any) -> list[Match]:
    asked = {"id": "x", "y": "y", "rows": ["eps"], "digits": 2, "runs": 3, **more}
    return matches(Printed(cells=cells, **asked), sources, elsewhere)


def one(ours: Any, number: float, **more: Any) -> Match:
    """Of a plan's number."""
    (match,) = compared([facts({"v": ours})], {2: number}, y="plan.v", **more)
    return match


@pytest.mark.parametrize(
    ("ours", "number", "digits", "expected"),
    [
        (0.125, 0.12, 2, "exact"),  # a half may be printed either way
        (0.125, 0.13, 2, "exact"),
        (0.12501, 0.12, 2, "differs"),
        (27.415, 27.41, 2, "exact"),  # 27.415 - 27.41 is a little more than .005 in binary
        (27.4151, 27.41, 2, "differs"),
        (49.4, 49, 0, "exact"),
        (49.6, 49, 0, "differs"),
        (-0.345, -0.34, 2, "exact"),
        (-0.346, -0.34, 2, "differs"),
        (1e6 + 0.5, 1e6, 0, "exact"),
        (math.inf, math.inf, 1, "exact"),
        (math.inf, 3.0, 1, "differs"),
        (3.0, math.inf, 1, "differs"),
    ],
)
def test_exact_or_not(ours: float, number: float, digits: int, expected: str) -> None:
    match = one(ours, number, digits=digits)
    assert match.match == expected
    assert match.interval is None
    if expected == "differs" and math.isfinite(ours - number):
        assert match.why == f"by {ours - number:.4g}"


def test_within_the_prediction_and_the_rounding() -> None:
    seeds = (1.0, 1.3, 0.8, 1.1)
    source = [run({}, *seeds)]
    spread = of_prediction({(None, k): value for k, value in enumerate(seeds)}, 3)
    for number, expected in (
        (spread.high + 0.0049, "within"),
        (spread.high + 0.0051, "differs"),
        (spread.low - 0.0049, "within"),
        (spread.low - 0.0051, "differs"),
        (1.05, "within"),
    ):
        (match,) = compared(source, {2: number})
        assert match.match == expected
        assert match.interval == pytest.approx((spread.low - 0.005, spread.high + 0.005))
        assert match.ours == pytest.approx(1.05)
    (one_run,) = compared(source, {2: 1.05}, runs=1)
    assert one_run.interval is not None
    assert one_run.interval[1] > spread.high + 0.005  # a single seed of the paper lies anywhere


@pytest.mark.parametrize(
    ("source", "expected", "why"),
    [
        (run({}, 1.0, 1.0), "not at this setting", "seeds or splits are too few for an interval, n = 2"),
        (lost({}), "differs", "every run of ours diverged"),
        (lost({}, seeds=2), "not at this setting", "a run of ours diverged for an interval, n = 2"),
        (run({"eps": 9.0}, 1.0), "not at this setting", "no run here"),
    ],
)
def test_where_there_is_no_interval(source: Any, expected: str, why: str) -> None:
    (match,) = compared([source], {2: 1.0})
    assert (match.match, match.why, match.interval) == (expected, why, None)
    assert match.ours is None or math.isfinite(match.ours)


def test_at_another_setting() -> None:
    for source in ([run({}, 1.0, 1.0, 1.0)], [facts({"y": 1.0})]):
        y = "plan.y" if source[0].exact else "y"
        (match,) = compared(source, {2: 1.0}, "fewer rounds", y=y)
        assert (match.match, match.why, match.ours) == ("not at this setting", "fewer rounds", 1.0)
        (match,) = compared(source, {2: 1.0}, y=y)
        assert match.match in ("exact", "within")


def test_std_and_explained_differences() -> None:
    runs = grid({2: (1.0, 1.1, 0.9), 5: (2.0, 2.1, 1.9)}, "eps")
    found = compared(runs, {2: 1.0, 5: 9.0}, std={5.0: 0.3}, differs={"5": "a misprint", "2": "unused"})
    assert [(match.std, match.match) for match in found] == [(None, "within"), (0.3, "differs")]
    assert found[0].why == ""
    assert found[1].why == "by -7; a misprint"


@pytest.mark.parametrize("key", [10, 10.0, "10", "1e1"])
def test_a_cell_is_found_by_its_key(key: Any) -> None:
    assert compared(grid({10.0: (1.0,) * 3, 2: (5.0,) * 3}, "eps"), {key: 1.0})[0].match == "within"


def test_infinity_booleans_and_composite_keys() -> None:
    runs = [
        run({"eps": eps, "lr": lr, "naive": naive}, *(value,) * 3)
        for value, (eps, lr, naive) in enumerate([(math.inf, 0.1, True), (1, 0.1, False), (1, 2.0, True)])
    ]
    cells = {"inf / 0.1": {True: 0.0}, "1/0.10": {False: 1.0}, "1.0 / 2": {True: 2.0, False: 7.0}}
    found = compared(runs, cells, rows=["eps", "lr"], columns=["naive"], differs={"1/2/True": "x"})
    assert [match.at for match in found][:2] == ["inf / 0.1 / True", "1 / 0.1 / False"]
    assert [match.match for match in found] == ["within"] * 3 + ["not at this setting"]
    transposed = {True: {"inf/0.1": 0.0}}
    (match,) = compared(runs, transposed, rows=["naive"], columns=["eps", "lr"])
    assert (match.at, match.match) == ("True / inf / 0.1", "within")


def test_of_our_own_seeds_most_prints_are_within() -> None:
    """95 % of them, up to four standard errors; and not of a mean that is off."""
    rng = np.random.default_rng(5)
    within = {0.0: 0, 4.0: 0}
    for off in within:
        for _ in range(400):
            (match,) = compared([run({}, *rng.normal(5, 1, 5))], {2: float(rng.normal(5 + off, 1, 3).mean())})
            within[off] += match.match == "within"
    assert abs(within[0.0] / 400 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 400)
    assert within[4.0] / 400 < 0.5


@pytest.mark.parametrize(
    ("rounding", "ours", "match"),
    [
        *(("nearest", 15.6576, "exact"), ("nearest", 15.6584, "exact"), ("nearest", 15.6586, "differs")),
        *(("up", 15.65812, "differs"), ("up", 15.6571, "exact"), ("up", 15.658, "exact")),
        *(("up", 15.6569, "differs"), ("up", 15.6581, "differs"), ("nearest", 15.6574, "differs")),
    ],
)
def test_a_print_is_rounded_to_the_nearest_or_up(rounding: str, ours: float, match: str) -> None:
    printed = Printed(
        id="eps", y="plan.eps", digits=3, rounding=rounding, runs=0, rows=["algo"],
        cells={"dp_fedavg": 15.658},
    )  # fmt: skip
    (one,) = matches(printed, [facts({"eps": ours})])
    assert one.match == match


def test_a_choice_from_a_grid_is_the_printed_one_or_another() -> None:
    printed = Printed(
        id="lr", y="best lr", by="y", digits=4, rows=["algo"],
        cells={"dp_fedavg": 0.003},
    )  # fmt: skip
    for losses, match in (([3.0, 1.0, 2.0], "within"), ([3.0, 2.0, 1.0], "differs")):
        runs = grid(dict(zip([0.001, 0.003, 0.01], ([y] for y in losses), strict=True)), "lr")
        (one,) = matches(printed, runs)
        assert one.match == match
