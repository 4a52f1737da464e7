"""Figures with lines of further quantities; tables with what is printed beside ours."""

from __future__ import annotations

from typing import Any

from helpers.sources import facts, grid, lost

from dpfl_bench.results.exhibits import figure
from dpfl_bench.results.exhibits.figure import Figure, Further
from dpfl_bench.results.exhibits.table import Rows, Table, numbers, of_marks, pivot
from dpfl_bench.results.select.budgets import note
from dpfl_bench.results.verdicts.printed import Printed, matches


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
        also={"half": Further("y / 2", {"naive": False})},
    )
    marks = [
        drawn.mark
        for drawn in figure.drawn(
            asked, runs, {"true": "naive", "false": "ours", "left": "left", "right": "right"}
        )
    ]
    assert {(m.column, m.line) for m in marks} == {
        (column, line) for column in ("left", "right") for line in ("ours", "naive", "half")
    }
    assert [m.y for m in marks if (m.column, m.line) == ("right", "half")] == [5.5, 6.0]


def shown(*printed: dict[str, Any], elsewhere: str = "", **table: Any) -> list[list[str]]:
    runs = grid({1: (1.0, 2.0, 3.0), 2: (5.0, 5.0, 5.0)}, "eps")
    blocks = [Printed(**{"rows": ["eps"], "what": "error", **each}) for each in printed]
    made = Table(rows=["eps"], y="y", digits=1, **table)
    return pivot(made, runs, {}, [(block, matches(block, runs, elsewhere)) for block in blocks]).rows


def test_a_print_stands_in_its_cell_and_says_what_it_is() -> None:
    rows = shown({"y": "y", "cells": {2.0: 5.0}})
    assert [row[1] for row in rows] == ["2.0 ± 1.0", "5.0 ± 0.0; printed 5: within"]
    rows = shown({"y": "y", "cells": {2: 5.0}}, {"y": "round", "what": "T", "cells": {2: 9}})
    assert rows[1][1] == "5.0 ± 0.0; printed 5: within; T, printed 9: differs"
    rows = shown({"y": "round", "what": "T", "cells": {1: 10}})
    assert rows[0][1] == "2.0 ± 1.0; T, printed 10: within"  # no error of 10 was printed
    both = {"y": "y", "cells": {2: 5.0}}, {"y": "round", "what": "T", "cells": {2: 9}}
    rows = shown(*both, elsewhere="20 of 50 rounds")
    assert rows[1][1] == "5.0 ± 0.0; printed 5: not at this setting", "of another quantity it says nothing"


def test_every_number_says_of_what_it_is() -> None:
    runs = grid({1: (1.0, 2.0, 3.0), 2: (5.0, 5.0, 5.0)}, "eps")
    asked = Figure(
        x="eps", y="2 * y", last="10%", best_over=["lr"], also={"half": Further("y / 2", {"eps": 2})}
    )
    data = of_marks({"curve": figure.drawn(asked, runs, {})})
    data.rows.extend(numbers(Table(rows=["eps"], y="y"), runs, {}))
    told = [dict(zip(data.head, row, strict=True)) for row in data.rows]
    assert [(row["y"], row["x is"], row["y is"]) for row in told] == [
        ("4.0", "eps", "2 * y, last 10%, best over lr"),
        ("10.0", "eps", "2 * y, last 10%, best over lr"),
        ("2.5", "eps", "y / 2, last 10%, best over lr"),
        ("2.0", "", "y"),
        ("5.0", "", "y"),
    ]


def test_rounds_that_an_eps_allows_have_not_the_eps_of_other_rounds() -> None:
    """dpscaffold/table1: of a plan of 100 rounds, how many eps = 3 allows."""
    known = {"eps_target": 3.0, "valid_eps": 0.2, "rounds": 100}
    for most, y, holds in (
        (22311, "plan.max_rounds", ""),
        (100, "plan.max_rounds", "0.2"),
        (7, "plan.eps", "0.2"),
    ):
        plan = [facts({**known, "max_rounds": most, "eps": 0.2})]
        ((*_, nominal, valid),) = numbers(Table(rows=["lr"], y=y), plan, {})
        assert (nominal, valid) == ("3", holds)
        said = "as many rounds as it allows" if not holds else "ε 0.2 holds"
        assert note(plan, None, y) == f"nominal ε 3: {said}"


def test_what_diverged_says_so_in_the_table() -> None:
    (row,) = pivot(Table(rows=["eps"], y="y"), [lost({})], {}).rows
    assert row[1] == "diverged"


def test_markup_in_every_format() -> None:
    rows = Rows(["a|b", "c_d"], [["1 ± 2", "x & y, 50%"]])
    assert "a\\|b" in rows.markdown()
    assert r"c\_d" in rows.latex("90 % of $x_1$")
    assert r"x \& y, 50\%" in rows.latex("")
    assert rows.csv() == 'a|b,c_d\n1 ± 2,"x & y, 50%"\n'
