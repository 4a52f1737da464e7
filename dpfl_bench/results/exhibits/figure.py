"""A figure of runs: what its keys are, what is drawn, as marks, and the pictures of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dpfl_bench.results.figures.panels import Look, Mark, Vertical, draw, save
from dpfl_bench.results.figures.style import LINES, label_of, name_of
from dpfl_bench.results.select.cells import Cell, cells
from dpfl_bench.results.select.selection import Selection, check_quantity
from dpfl_bench.results.select.sources import Source, numbers

BANDS = {False: "95 % interval over seeds", True: "± one standard deviation"}
Names = Mapping[Any, str]  # other names of values and quantities


@dataclass(frozen=True)
class Further:
    """A quantity that is a line of its own in every panel."""

    y: str = ""
    where: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure(Selection):
    x: str = ""
    kind: Literal["lines", "points", "paths", "bars"] = "lines"
    line: list[str] = field(default_factory=list)
    row: list[str] = field(default_factory=list)
    column: list[str] = field(default_factory=list)
    star: bool = False
    log: list[Literal["x", "y"]] = field(default_factory=list)
    x_label: str = ""
    y_label: str = ""
    diagonal: bool = False
    at: dict[str, str] = field(default_factory=dict)  # label: where a vertical line stands
    also: dict[str, Further] = field(default_factory=dict)

    @property
    def groups(self) -> Sequence[str]:
        return [*self.row, *self.column, *self.line]

    def check(self, where: str) -> None:
        super().check(where)
        for key, text in (("x", self.x), *self.at.items()):
            check_quantity(f"{where}.{key}", text)


@dataclass(frozen=True)
class Drawn:
    """A mark, the cell that it is of, and the quantities at its x and y."""

    mark: Mark
    cell: Cell
    of: tuple[str, str]


def drawn(figure: Figure, sources: Sequence[Source], names: Names) -> list[Drawn]:
    """Every point of the figure."""
    if figure.kind == "paths":
        return list(_paths(figure, sources, names))
    marks, of = [], (figure.x, figure.quantity)
    places: dict[str, float] = {}
    for cell in cells(sources, figure.question(*figure.groups, *_fields_of_x(figure, sources))):
        x, y = _x(figure, cell, places), cell.mean
        if x is not None and not math.isnan(y):
            low, high = _band(cell, bool(figure.spread))
            marks.append(Drawn(Mark(*_panel(figure, cell.at, names), x, y, low, high), cell, of))
    for label, further in figure.also.items():
        where = {**figure.where, **further.where}
        points = drawn(replace(figure, y=further.y, where=where, line=[], also={}), sources, names)
        marks += [replace(each, mark=replace(each.mark, line=label)) for each in points]
    return marks


def _paths(figure: Figure, sources: Sequence[Source], names: Names) -> Iterator[Drawn]:
    """The mean over seeds of two quantities, round by round."""
    asked = [replace(figure, y=y).question(*figure.groups, "round") for y in (figure.x, figure.y)]
    for across, up in zip(*(cells(sources, question) for question in asked), strict=True):
        mark = Mark(*_panel(figure, up.at, names), across.mean, up.mean)
        yield Drawn(mark, up, (figure.x, figure.quantity))


def _fields_of_x(figure: Figure, sources: Sequence[Source]) -> list[str]:
    """x, where it tells cells apart; a quantity that comes of the runs does not."""
    if any(source.field(figure.x) is not None for source in sources) or figure.x in ("round", "steps"):
        return [figure.x]
    return []


def _x(figure: Figure, cell: Cell, places: dict[str, float]) -> float | None:
    """None where the runs do not have it. A word has the place in which it comes first."""
    if figure.x in cell.at:
        value = cell.at[figure.x]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        return None if value is None else places.setdefault(str(value), float(len(places)))
    known = numbers(cell.sources, figure.x)
    return sum(known) / len(known) if known else None


def _band(cell: Cell, spread: bool) -> tuple[float | None, float | None]:
    """Over seeds the interval of the mean; over other fields one standard deviation."""
    if spread:
        return cell.mean - cell.std, cell.mean + cell.std
    return (None, None) if cell.exact else cell.interval.ends


def _panel(figure: Figure, at: Mapping[str, Any], names: Names) -> tuple[str, str, str]:
    row, column, line = (
        ", ".join(called(name, at[name], names) for name in fields)
        for fields in (figure.row, figure.column, figure.line)
    )
    if len(figure.line) == 1 and figure.line[0] in LINES:
        line = str(at[figure.line[0]])  # as the style knows it
    return row, column, line


def called(name: str, value: Any, names: Names) -> str:
    """A field's value for a reader."""
    key = str(value).lower() if isinstance(value, bool) else value
    known = isinstance(key, str | int | float) and key in names
    return names[key] if known else label_of(name, value)


def _ticks(figure: Figure, marks: Sequence[Drawn], names: Names) -> dict[float, str] | None:
    """Words on the axis of x; None where it has numbers."""
    values = {each.mark.x: each.cell.at.get(figure.x) for each in marks}
    if not any(isinstance(value, str) for value in values.values()):
        return None
    return {x: called(figure.x, value, names) for x, value in sorted(values.items())}


def verticals(figure: Figure, marks: Sequence[Drawn]) -> list[Vertical]:
    """A line for each quantity of `at`, panel and line."""
    rules: dict[Vertical, None] = {}
    for label, text in figure.at.items():
        for each in marks:
            mark, values = each.mark, numbers(each.cell.sources, text)
            if known := [value for value in values if math.isfinite(value)]:
                rules[Vertical(label, sum(known) / len(known), mark.line, mark.row, mark.column)] = None
    return list(rules)


def picture(
    figure: Figure, marks: Sequence[Drawn], names: Names, stem: Path, title: str, note: str, width: str
) -> list[Path]:
    """stem.pdf, stem.svg, stem.png"""
    x_label = figure.x_label or names.get(figure.x) or name_of(figure.x)
    y_label = figure.y_label or names.get(figure.y) or name_of(figure.y)
    greatest = figure.question().better == "most"
    look = Look(
        title=title,
        x_label=x_label,
        y_label=y_label,
        x_log="x" in figure.log,
        y_log="y" in figure.log,
        width=width,
        kind=figure.kind,
        diagonal=figure.diagonal,
        verticals=verticals(figure, marks),
        line_of=LINES.get(figure.line[0], "other") if len(figure.line) == 1 else "other",
        best=False if not figure.star else "greatest" if greatest else "least",
        note=note,
        alt=f"{title}: {y_label} over {x_label}, {len(marks)} points",
        band=BANDS[bool(figure.spread)],
        x_ticks=_ticks(figure, marks, names),
        names={str(key): value for key, value in names.items()},
    )
    return save(draw([each.mark for each in marks], look), stem)
