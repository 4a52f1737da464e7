"""A table of runs: ours with its spread, what is printed, nominal and valid eps. And the numbers of
figures as tables.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dpfl_bench.results import text_table
from dpfl_bench.results.escape import tex
from dpfl_bench.results.exhibits.figure import Drawn, Figure, Names, called
from dpfl_bench.results.figures.style import name_of
from dpfl_bench.results.select.budgets import budgets, of_other_rounds, told
from dpfl_bench.results.select.cells import Cell, cells
from dpfl_bench.results.select.selection import VALUE, Selection
from dpfl_bench.results.select.sources import Source
from dpfl_bench.results.verdicts.printed import ELSEWHERE, Match, Printed, at

EPS = ("nominal eps", "eps that holds")
VALUES = ("x", "y", "low", "high", "n", "x is", "y is")
Marks = Mapping[str, Sequence[Drawn]]  # by figure


@dataclass(frozen=True)
class Table(Selection):
    y: str = field(default="", metadata=VALUE)
    rows: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    digits: int = 3
    also: dict[str, str] = field(default_factory=dict)  # label: a field, beside the value

    @property
    def groups(self) -> Sequence[str]:
        return [*self.rows, *self.columns]


class Rows(NamedTuple):
    """Text cells under headers."""

    head: list[str]
    rows: list[list[str]]

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.head, *self.rows])
        return text.getvalue()

    def markdown(self) -> str:
        return text_table.markdown(*self)

    def latex(self, caption: str) -> str:
        begin = [r"\begin{table}", r"\centering\small", rf"\caption{{{tex(caption)}}}"]
        return "\n".join([*begin, *text_table.tabular(*self), r"\end{table}", ""])


def pivot(
    table: Table,
    sources: Sequence[Source],
    names: Names,
    printed: Sequence[tuple[Printed, Sequence[Match]]] = (),
    nominal: float | None = None,
) -> Rows:
    """A row for each value of `rows`, a column for each of `columns`; in a cell mean ± std, and
    what is printed. nominal: the eps that is stated of all.
    """
    said: dict[str, list[str]] = {}
    for block, matches in printed:
        what = "" if block.y == table.y else f"{block.what}, "
        for each in matches:
            if what and each.match == ELSEWHERE:
                continue  # of another quantity, and not compared
            said.setdefault(each.at, []).append(f"{what}printed {each.printed:g}: {each.match}")
    grid: dict[str, dict[str, Cell]] = {}
    columns: dict[str, None] = {}
    for cell in cells(sources, table.question(*table.groups)):
        row, column = (_label(cell, fields, names) for fields in (table.rows, table.columns))
        grid.setdefault(row, {})[column] = cell
        columns[column] = None
    rows = []
    for label, line in grid.items():
        texts = [_text(line[column], table, said) if column in line else "" for column in columns]
        chosen = [line[column] for column in columns if column in line]
        rows.append([label, *texts, *_eps(chosen, table.y, nominal)])
    head = ", ".join(name_of(name) for name in table.rows)
    return Rows([head, *(column or name_of(table.y) for column in columns), *EPS], rows)


def of_figures(figures: Mapping[str, Figure], marks: Marks, nominal: float | None = None) -> Rows:
    """A row for each panel and line of the figures: its best point, and its last."""
    rows = []
    for name, drawn in marks.items():
        sign = 1 if figures[name].question().better == "least" else -1
        lines: dict[tuple[str, str, str], list[Drawn]] = {}
        for each in drawn:
            lines.setdefault((each.mark.row, each.mark.column, each.mark.line), []).append(each)
        for place, points in lines.items():
            best, last = min(points, key=lambda each: sign * each.mark.y), points[-1]
            texts = [
                text for each in (best, last) for text in (f"{each.mark.x:.5g}", _mean(each.cell, ".4g"))
            ]
            eps = _eps([each.cell for each in points], last.of[1], nominal)
            rows.append([name, *place, *texts, str(last.cell.interval.count), *eps])
    head = ["figure", "row", "column", "line", "best at x", "best y", "last x", "last y", "n", *EPS]
    return Rows(head, rows)


def of_marks(marks: Marks, nominal: float | None = None) -> Rows:
    """Every number of the figures."""
    rows = []
    for name, drawn in marks.items():
        for each in drawn:
            mark, cell = each.mark, each.cell
            ends = cell.interval.ends if mark.low is None else (mark.low, mark.high)
            at = [name, mark.row, mark.column, mark.line]
            rows.append([*at, *_row((mark.x, mark.y, *ends), cell, each.of, nominal)])
    return Rows(["figure", "row", "column", "line", *VALUES, *EPS], rows)


def numbers(
    table: Table, sources: Sequence[Source], names: Names, nominal: float | None = None
) -> Iterator[list[str]]:
    """Every number of the table, as rows beside those of the figures."""
    for cell in cells(sources, table.question(*table.groups)):
        if not math.isnan(cell.mean):
            labels = (_label(cell, fields, names) for fields in (table.rows, table.columns))
            values = (None, cell.mean, *cell.interval.ends)
            yield ["table", *labels, "", *_row(values, cell, ("", table.quantity), nominal)]


def _row(values: Sequence[float | None], cell: Cell, of: tuple[str, str], nominal: float | None) -> list[str]:
    return [*map(_exactly, values), str(cell.interval.count), *of, *_eps([cell], of[1], nominal)]


def _exactly(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(float(value))


def _label(cell: Cell, fields: Sequence[str], names: Names) -> str:
    known = [name for name in fields if cell.at[name] is not None]  # not every run has every setting
    return ", ".join(called(name, cell.at[name], names) for name in known)


def _text(cell: Cell, table: Table, said: Mapping[str, Sequence[str]]) -> str:
    further = ((label, _ends(cell, name)) for label, name in table.also.items())
    parts = [_mean(cell, f".{table.digits}f"), *(f"{label} {ends}" for label, ends in further if ends)]
    return "; ".join([*parts, *said.get(" / ".join(at(cell, table)), [])])


def _ends(cell: Cell, name: str) -> str:
    values = [source.field(name) for source in cell.sources]
    known = sorted({value for value in values if value is not None}, key=str)
    ends = known[:: max(1, len(known) - 1)]
    return " to ".join(f"{value:.5g}" if isinstance(value, float) else str(value) for value in ends)


def _mean(cell: Cell, shape: str) -> str:
    if math.isinf(cell.mean) and any(source.diverged for source in cell.sources):
        return "diverged"
    if cell.exact or len(cell.values) < 2:
        return f"{cell.mean:{shape}}"
    return f"{cell.mean:{shape}} ± {cell.std:{shape}}"


def _eps(chosen: Sequence[Cell], y: str, nominal: float | None) -> list[str]:
    sources = [source for cell in chosen for source in cell.sources]
    known = budgets(sources, nominal)
    holds = "" if of_other_rounds(sources, y) else ", ".join(map(told, known.values()))
    return [", ".join(f"{each:g}" for each in known), holds]
