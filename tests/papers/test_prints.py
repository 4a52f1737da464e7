"""Printed numbers: how they are rounded; and figures with lines of further quantities."""

from __future__ import annotations

import pytest
from dpfl_bench.papers.printed import matches
from helpers.sources import facts, grid

from dpfl_bench.papers import figures
from dpfl_bench.papers.artefact import Figure, Printed


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
        id="eps", value="plan.eps", digits=3, rounding=rounding, runs=0, rows=["algo"], scales=["smoke"],
        cells={"dp_fedavg": 15.658},
    )  # fmt: skip
    (one,) = matches(printed, [facts({"eps": ours})], "smoke", "paper", "")
    assert one.match == match


def test_a_further_quantity_is_a_line_of_its_own_in_every_panel() -> None:
    runs = [
        run
        for column, offset in (("left", 0.0), ("right", 10.0))
        for naive in (False, True)
        for run in grid({1: [offset + 1], 2: [offset + 2]}, "lr", trust=column, naive=naive)
    ]
    asked = Figure(
        x="lr",
        y="y",
        line=["naive"],
        column=["trust"],
        also={"half": {"y": "y / 2", "where": {"naive": False}}},
    )
    marks = [
        drawn.mark
        for drawn in figures.drawn(
            asked, runs, {"true": "naive", "false": "ours", "left": "left", "right": "right"}
        )
    ]
    assert {(m.column, m.line) for m in marks} == {
        (column, line) for column in ("left", "right") for line in ("ours", "naive", "half")
    }
    assert [m.y for m in marks if (m.column, m.line) == ("right", "half")] == [5.5, 6.0]


def test_a_choice_from_a_grid_is_the_printed_one_or_another() -> None:
    printed = Printed(
        id="lr", value="best lr", by="y", digits=4, rows=["algo"], scales=["smoke"],
        cells={"dp_fedavg": 0.003},
    )  # fmt: skip
    for losses, match in (([3.0, 1.0, 2.0], "within"), ([3.0, 2.0, 1.0], "differs")):
        runs = grid(dict(zip([0.001, 0.003, 0.01], ([y] for y in losses), strict=True)), "lr")
        (one,) = matches(printed, runs, "smoke", "paper", "")
        assert one.match == match
