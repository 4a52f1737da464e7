"""Marks in, a figure out: a grid of panels with one legend that covers no data."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dpfl_bench.results.escape import plain
from dpfl_bench.results.figures import kinds
from dpfl_bench.results.figures.axes import scale_x, scale_y
from dpfl_bench.results.figures.files import blank, save
from dpfl_bench.results.figures.frame import Frame
from dpfl_bench.results.figures.style import GREY, RC, LineOf, Style, inches, styles_of, word_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Look", "Mark", "Vertical", "draw", "save"]
PANEL = 1.45  # inches that a panel needs at least; a row of more panels is broken
Share = Literal["all", "row", "col", "none"]


@dataclass(frozen=True)
class Mark:
    """One drawn point. row, column: its panel. line: what it is joined to. low, high: its band."""

    row: str
    column: str
    line: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Vertical(NamedTuple):
    """A dotted vertical line, such as a predicted optimum. line: whose colour it takes. row,
    column: its panel; None: every one that has that line.
    """

    label: str
    x: float
    line: str = ""
    row: str | None = None
    column: str | None = None


@dataclass(frozen=True)
class Look:
    """What a figure says beside its marks.

    width: a venue of `style.WIDTHS`, or inches. exact: no wider for many panels, and title and note
    stand in the paper's caption and not in the picture. best: a star at each line's least (True) or
    "greatest". band: what low and high are. note: stands under the figure. alt: the figure in
    words. names: panels and lines under other names than their own.
    """

    title: str = ""
    x_label: str = ""
    y_label: str = ""
    x_log: bool = False
    y_log: bool = False
    width: str | float = "double"
    exact: bool = False
    kind: Literal["lines", "points", "paths", "bars"] = "lines"
    diagonal: bool = False
    verticals: Sequence[tuple[Any, ...]] = ()
    line_of: LineOf = "algorithm"
    best: bool | Literal["least", "greatest"] = False
    y_from: float | None = None
    y_to: float | None = None
    note: str = ""
    alt: str = ""
    band: str = ""
    log_columns: Sequence[str] = ()  # columns of panels whose y is logarithmic, where y is not shared
    share_x: Share = "all"
    share_y: Share = "all"
    x_ticks: Mapping[float, str] | None = None  # labels of x that are names, such as bars
    names: Mapping[str, str] | None = None
    level: str = "x = ∞"  # what marks at x = inf are
    lines: Sequence[str] = ()  # of all figures that belong together, so that each looks alike in all


class Grid(NamedTuple):
    panels: dict[tuple[str, str], tuple[int, int]]  # row and column of marks -> place
    down: int
    across: int
    broken: bool  # one row of panels on several lines


def draw(marks: Sequence[Mark], look: Look) -> Figure:
    """Everything stands inside of the figure; the height follows from what there is."""
    from matplotlib import rc_context

    if not marks:
        raise ValueError("a figure needs marks")
    with rc_context(RC):
        grid, width = _grid(marks, look)
        styles = _styles(marks, look)
        figure = blank(width, 1.0)
        figure.set_label(look.alt)
        panels = figure.subplots(
            grid.down, grid.across, sharex=look.share_x, sharey=look.share_y, squeeze=False
        )
        for (row, column), (down, across) in grid.panels.items():
            members = [mark for mark in marks if (mark.row, mark.column) == (row, column)]
            axes = panels[down][across]
            _panel(axes, members, look, styles, (row, column))
            _scales(axes, _Shared(marks, row, column), look, width / grid.across)
        _floors(panels, grid, marks, look)
        _names(panels, grid, look)
        least = 1.3 if look.exact else 1.0
        frame = Frame(figure, (0.3 + min(2.5, max(least, 0.66 * width / grid.across))) * grid.down)
        if not look.exact:
            frame.title(look.title)
            frame.note(look.note)
        frame.legend(_handles(styles, look, marks))
        frame.x_label(look.x_label)
        frame.y_label(look.y_label)
        frame.close()
    return figure


def _grid(marks: Sequence[Mark], look: Look) -> tuple[Grid, float]:
    width = inches(look.width) if isinstance(look.width, str) else float(look.width)
    rows = list(dict.fromkeys(mark.row for mark in marks))
    columns = list(dict.fromkeys(mark.column for mark in marks))
    fits = max(1, int(width / PANEL))
    there = {(mark.row, mark.column) for mark in marks}
    if len(rows) == 1 and len(columns) > fits:
        down = math.ceil(len(columns) / fits)
        across = math.ceil(len(columns) / down)
        places = {(rows[0], c): (i // across, i % across) for i, c in enumerate(columns)}
        return Grid(places, down, across, True), width
    places = {(r, c): (i, j) for i, r in enumerate(rows) for j, c in enumerate(columns) if (r, c) in there}
    return Grid(places, len(rows), len(columns), False), _wide(look, width, len(columns))


def _wide(look: Look, width: float, columns: int) -> float:
    return width if look.exact else max(width, 0.75 * PANEL * columns)


def _styles(marks: Sequence[Mark], look: Look) -> dict[str, Style]:
    names = look.names or {}
    own = {mark.line for mark in marks}
    styles = styles_of([*look.lines, *(mark.line for mark in marks)], look.line_of)
    return {
        line: replace(s, label=plain(names.get(line, s.label))) for line, s in styles.items() if line in own
    }


def _panel(
    axes: Axes,
    marks: Sequence[Mark],
    look: Look,
    styles: Mapping[str, Style],
    where: tuple[str, str],
) -> None:
    if look.diagonal:
        axes.axline((0, 0), slope=1, color=GREY, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
    for index, (line, style) in enumerate(styles.items()):
        members = [mark for mark in marks if mark.line == line]
        if members:
            kinds.KINDS[look.kind](axes, members, style, (index, len(styles)))
    if look.best and look.kind != "bars":
        which = "greatest" if look.best == "greatest" else "least"
        for line, style in styles.items():
            best = kinds.extreme([mark for mark in marks if mark.line == line], which)
            if best is not None:
                kinds.star(axes, best, style)
    for rule in (Vertical(*each) for each in look.verticals):
        here = rule.row in (None, where[0]) and rule.column in (None, where[1])
        if here and (rule.line not in styles or any(mark.line == rule.line for mark in marks)):
            colour = styles[rule.line].colour if rule.line in styles else GREY
            axes.axvline(rule.x, color=colour, linestyle=":", linewidth=1.2, zorder=1.5)


class _Shared(NamedTuple):
    """The marks whose axes a panel shares."""

    marks: Sequence[Mark]
    row: str
    column: str

    def by(self, share: Share) -> list[Mark]:
        row, column = share in ("row", "none"), share in ("col", "none")
        return [
            mark
            for mark in self.marks
            if (not row or mark.row == self.row) and (not column or mark.column == self.column)
        ]


def _scales(axes: Axes, shared: _Shared, look: Look, inches: float) -> None:
    x = [mark.x for mark in shared.by(look.share_x) if math.isfinite(mark.x)]
    scale_x(axes, x, look.x_log, max(0.6, inches - 0.45))
    if look.x_ticks is not None:
        axes.set_xticks(list(look.x_ticks), [plain(label) for label in look.x_ticks.values()])
        for tick in axes.get_xticklabels():
            tick.set_parse_math(False)
    y = [mark.y for mark in shared.by(look.share_y) if math.isfinite(mark.y)]
    scale_y(axes, y, look.y_log or shared.column in look.log_columns, low=look.exact)
    if look.y_from is not None:
        axes.set_ylim(bottom=look.y_from)
    if look.y_to is not None:
        axes.set_ylim(top=look.y_to)


def _floors(panels: Any, grid: Grid, marks: Sequence[Mark], look: Look) -> None:
    """A band does not stretch a logarithmic axis, nor one of values >= 0 below 0."""
    if look.y_from is not None:
        return
    if not look.y_log:
        low = all(not mark.y < 0 for mark in marks)
        for axes in (panels[down][across] for down, across in grid.panels.values()):
            if low and axes.get_ylim()[0] < 0 and look.kind != "paths":
                axes.set_ylim(bottom=0)
        return
    for (row, column), (down, across) in grid.panels.items():
        axes = panels[down][across]
        own = [m for m in marks if look.share_y == "all" or (m.row, m.column) == (row, column)]
        shown = [mark.y for mark in own if math.isfinite(mark.y) and mark.y > 0]
        if shown and axes.get_ylim()[0] < 0.5 * min(shown):
            axes.set_ylim(bottom=0.5 * min(shown))


def _names(panels: Any, grid: Grid, look: Look) -> None:
    """Titles of panels and rows."""
    names = look.names or {}
    for (row, column), (down, across) in grid.panels.items():
        axes = panels[down][across]
        if column and (down == 0 or grid.broken):
            words = plain(names.get(column, word_of(column)))
            axes.set_title("\n".join(textwrap.wrap(words, 34)), parse_math=False)
        if row and across == 0:
            axes.set_ylabel(plain(names.get(row, word_of(row))), parse_math=False)
        if grid.broken:
            axes.tick_params(labelbottom=True)
    taken = set(grid.panels.values())
    for down in range(grid.down):
        for across in range(grid.across):
            if (down, across) not in taken:
                panels[down][across].remove()


def _handles(styles: Mapping[str, Style], look: Look, marks: Sequence[Mark]) -> list[Any]:
    """What the legend shows."""
    band = look.band if look.kind != "bars" and any(mark.low is not None for mark in marks) else ""
    rules: dict[str, str] = {}
    for rule in (Vertical(*each) for each in look.verticals):
        own = styles[rule.line].colour if rule.line in styles else GREY
        rules[rule.label] = own if rules.get(rule.label, own) == own else GREY  # of several lines
    told = styles if any(style.label for style in styles.values()) else {}
    best = bool(look.best) and look.kind != "bars"
    shown = kinds.handles(told, look.kind, best, band, list(rules.items()))
    named = any(style.label == look.level for style in styles.values())
    if look.kind == "lines" and not named and any(math.isinf(mark.x) for mark in marks):
        shown.append(kinds.level(look.level))
    return shown
