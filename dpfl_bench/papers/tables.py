"""An artefact's table: ours, the interval, nominal and valid eps, and what is printed."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpfl_bench.papers.artefact import Artefact, Figure, Table
from dpfl_bench.papers.budgets import budgets, told
from dpfl_bench.papers.figures import Drawn, called
from dpfl_bench.papers.printed import Match
from dpfl_bench.papers.shape import word
from dpfl_bench.results.escape import markdown, tex
from dpfl_bench.results.figures.style import name_of
from dpfl_bench.results.select.cells import Cell, cells
from dpfl_bench.results.select.sources import Source

EPS = ("nominal eps", "eps that holds")


@dataclass(frozen=True)
class Rows:
    """Text cells under headers."""

    head: list[str]
    rows: list[list[str]]

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.head, *self.rows])
        return text.getvalue()

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "".join(f"| {' | '.join(markdown(cell) for cell in line)} |\n" for line in lines)

    def latex(self, caption: str) -> str:
        body = [" & ".join(tex(cell) for cell in line) + r" \\" for line in (self.head, *self.rows)]
        lines = [r"\begin{table}", r"\centering\small", rf"\caption{{{tex(caption)}}}"]
        lines += [rf"\begin{{tabular}}{{{'l' * len(self.head)}}}", r"\toprule", body[0], r"\midrule"]
        return "\n".join([*lines, *body[1:], r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def pivot(table: Table, sources: Sequence[Source], artefact: Artefact, matches: Sequence[Match]) -> Rows:
    """A row for each value of `rows`, a column for each of `columns`; in a cell mean ± std, and
    what is printed.
    """
    fields = [*table.rows, *table.columns]
    chosen = cells(sources, table.question(table.value, *fields))
    names = artefact.names
    printed: dict[str, list[Match]] = {}
    own = {each.id for each in artefact.printed if each.value == table.value}
    for match in matches:
        of_another = replace(match, what=f"{match.what}, ")  # than the table's quantity
        printed.setdefault(match.at, []).append(replace(match, what="") if match.id in own else of_another)
    columns = list(dict.fromkeys(_label(cell, table.columns, names) for cell in chosen))
    grid: dict[str, dict[str, Cell]] = {}
    for cell in chosen:
        grid.setdefault(_label(cell, table.rows, names), {})[_label(cell, table.columns, names)] = cell
    rows = []
    for label, line in grid.items():
        texts = [_text(line[column], table, printed) if column in line else "" for column in columns]
        rows.append([label, *texts, *_eps([line[column] for column in columns if column in line], artefact)])
    head = ", ".join(name_of(name) for name in table.rows)
    return Rows([head, *(column or name_of(table.value) for column in columns), *EPS], rows)


def of_figures(marks: Mapping[str, Sequence[Drawn]], artefact: Artefact) -> Rows:
    """A row for each panel and line of the figures: its best point, and its last."""
    rows = []
    for name, drawn in marks.items():
        lines: dict[tuple[str, str, str], list[Drawn]] = {}
        for each in drawn:
            lines.setdefault((each.mark.row, each.mark.column, each.mark.line), []).append(each)
        for at, points in lines.items():
            rows.append([name, *at, *_line(artefact.figures[name], points, artefact)])
    head = ["figure", "row", "column", "line", "best at x", "best y", "last x", "last y", "n", *EPS]
    return Rows(head, rows)


def _line(figure: Figure, points: Sequence[Drawn], artefact: Artefact) -> list[str]:
    sign = 1 if figure.question(figure.y).better == "least" else -1
    best, last = min(points, key=lambda each: sign * each.mark.y), points[-1]
    texts = [text for each in (best, last) for text in (f"{each.mark.x:.5g}", _mean(each.cell, 4))]
    return [*texts, str(last.cell.interval.count), *_eps([each.cell for each in points], artefact)]


def data(marks: Mapping[str, Sequence[Drawn]], artefact: Artefact) -> Rows:
    """data.csv: every number of the figures."""
    rows = []
    for name, drawn in marks.items():
        for each in drawn:
            mark = each.mark
            numbers = [_exactly(value) for value in (mark.x, mark.y, mark.low, mark.high)]
            count = [str(each.cell.interval.count)]
            rows.append(
                [name, mark.row, mark.column, mark.line, *numbers, *count, *_eps([each.cell], artefact)]
            )
    return Rows(["figure", "row", "column", "line", "x", "y", "low", "high", "n", *EPS], rows)


def _exactly(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(float(value))


def _label(cell: Cell, fields: Sequence[str], names: Mapping[Any, str]) -> str:
    known = [name for name in fields if cell.at[name] is not None]  # not every run has every setting
    return ", ".join(called(name, cell.at[name], names) for name in known)


def _text(cell: Cell, table: Table, printed: Mapping[str, Sequence[Match]]) -> str:
    parts = [_mean(cell, table.digits, fixed=True)]
    also = {label: _number(cell, text) for label, text in table.also.items()}
    parts += [f"{label} {number}" for label, number in also.items() if number]
    here = printed.get(" / ".join(filter(None, (_words(cell, table.rows), _words(cell, table.columns)))), [])
    for match in here:
        parts.append(f"{match.what}printed {match.printed:g}: {match.match}")
    return "; ".join(parts)


def _words(cell: Cell, fields: Sequence[str]) -> str:
    return " / ".join(word(cell.at[name]) for name in fields)


def _number(cell: Cell, text: str) -> str:
    values = [source.field(text) for source in cell.sources]
    known = sorted({value for value in values if value is not None}, key=str)
    ends = known[:: max(1, len(known) - 1)]
    return " to ".join(f"{value:.5g}" if isinstance(value, float) else str(value) for value in ends)


def _mean(cell: Cell, digits: int, fixed: bool = False) -> str:
    shape = f".{digits}{'f' if fixed else 'g'}"
    if math.isinf(cell.mean) and any(source.diverged for source in cell.sources):
        return "diverged"
    if cell.exact or len(cell.values) < 2:
        return f"{cell.mean:{shape}}"
    return f"{cell.mean:{shape}} ± {cell.std:{shape}}"


def _eps(chosen: Sequence[Cell], artefact: Artefact) -> list[str]:
    known = budgets([source for cell in chosen for source in cell.sources], artefact)
    return [
        ", ".join(f"{nominal:g}" for nominal in known),
        ", ".join(told(ends) for ends in known.values()),
    ]
