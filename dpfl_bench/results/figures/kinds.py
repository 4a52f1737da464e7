"""How the marks of one line are drawn in a panel, and how they look in the legend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dpfl_bench.results.figures.style import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKED = 10  # a line of more points has a marker at each n-th
LEVEL: dict[str, Any] = {"linestyle": (0, (1, 1.5)), "linewidth": 1.0, "zorder": 1.5}
STAR: dict[str, Any] = {
    "marker": "*",
    "markersize": 10,
    "markeredgecolor": "black",
    "markeredgewidth": 0.6,
    "linestyle": "",
    "zorder": 5,
}


class Point(Protocol):
    """What is drawn: a Mark of `panels.py`."""

    @property
    def x(self) -> float: ...
    @property
    def y(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def options(style: Style) -> dict[str, Any]:
    """Of matplotlib's Line2D."""
    return {
        "color": style.colour,
        "marker": style.marker,
        "linestyle": style.line,
        "markerfacecolor": style.colour if style.filled else "white",
        "markeredgecolor": style.colour,
        "markeredgewidth": 0.9,
    }


def lines(axes: Axes, marks: Sequence[Point], style: Style, place: tuple[int, int]) -> None:
    """Over x, with a band from low to high. A mark at x = inf is a level across the panel."""
    level = [mark for mark in marks if math.isinf(mark.x)]
    shown = sorted((mark for mark in marks if not math.isinf(mark.x)), key=lambda mark: mark.x)
    for mark in level:
        axes.axhline(mark.y, color=style.colour, **LEVEL)
    if not shown:
        return
    x, y = [mark.x for mark in shown], [_drawn(mark.y) for mark in shown]
    step = math.ceil(len(shown) / MARKED)
    start = place[0] * step // max(1, place[1])  # markers of lines on each other do not hide another
    axes.plot(x, y, markevery=(start, step) if step > 1 else None, **options(style))
    if any(mark.low is not None for mark in shown):
        low, high = _band(shown)
        axes.fill_between(x, low, high, color=style.colour, alpha=0.18, linewidth=0)


def points(axes: Axes, marks: Sequence[Point], style: Style, place: tuple[int, int]) -> None:
    """Each mark alone, with a bar from low to high."""
    low, high = _band(marks)
    y = [_drawn(mark.y) for mark in marks]
    below = [max(0.0, value - edge) for value, edge in zip(y, low, strict=True)]
    above = [max(0.0, edge - value) for value, edge in zip(y, high, strict=True)]
    errors = [below, above] if any(mark.low is not None for mark in marks) else None
    drawn = {**options(style), "linestyle": ""}
    axes.errorbar([mark.x for mark in marks], y, yerr=errors, elinewidth=0.8, capsize=1.5, **drawn)


def paths(axes: Axes, marks: Sequence[Point], style: Style, place: tuple[int, int]) -> None:
    """In the plane, in the order given: a hollow marker where the path starts, a full one at its
    end.
    """
    if not marks:
        return
    x, y = [mark.x for mark in marks], [mark.y for mark in marks]
    axes.plot(x, y, color=style.colour, linestyle=style.line, linewidth=1.0, alpha=0.85)
    common: dict[str, Any] = {
        "marker": style.marker,
        "linestyle": "",
        "markeredgecolor": style.colour,
        "zorder": 4,
    }
    axes.plot(x[:1], y[:1], markerfacecolor="white", **common)
    axes.plot(x[-1:], y[-1:], markerfacecolor=style.colour, **common)


def bars(axes: Axes, marks: Sequence[Point], style: Style, place: tuple[int, int]) -> None:
    """Beside those of the other lines, around the number of the x among all of the panel."""
    index, count = place
    width = 0.8 / count
    x = [mark.x + (index - (count - 1) / 2) * width for mark in marks]
    low, high = _band(marks)
    y = [_drawn(mark.y) for mark in marks]
    axes.bar(x, y, width=0.92 * width, color=style.colour, edgecolor="black", linewidth=0.3)
    if any(mark.low is not None for mark in marks):
        axes.vlines(x, low, high, color="black", linewidth=0.8)


KINDS = {"lines": lines, "points": points, "paths": paths, "bars": bars}


def star(axes: Axes, mark: Point, style: Style) -> None:
    axes.plot(mark.x, mark.y, **{**STAR, "color": style.colour})


def extreme(marks: Sequence[Point], which: str) -> Point | None:
    """The least or the greatest of a line; of equals, the one of the least x."""
    known = [mark for mark in marks if math.isfinite(mark.y) and math.isfinite(mark.x)]
    sign = -1 if which == "greatest" else 1
    return min(known, key=lambda mark: (sign * mark.y, mark.x)) if len(known) > 1 else None


def handles(
    styles: Mapping[str, Style], kind: str, best: bool, band: str, rules: Sequence[tuple[str, str]]
) -> list[Any]:
    """Of the legend. band: what the bands are; nothing if there are none. rules: (label, colour) of
    vertical lines.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shown: list[Any] = []
    for style in styles.values():
        if kind == "bars":
            shown.append(Patch(facecolor=style.colour, edgecolor="black", linewidth=0.3, label=style.label))
        else:
            drawn = {**options(style), **({"linestyle": ""} if kind == "points" else {})}
            shown.append(Line2D([], [], label=style.label, **drawn))
    if best:
        star_look = {**STAR, "color": "white", "markersize": 8}
        shown.append(Line2D([], [], label="best", **star_look))
    for label, colour in rules:
        shown.append(Line2D([], [], color=colour, linestyle=":", linewidth=1.2, label=label))
    if band:
        shown.append(Patch(color="0.5", alpha=0.3, linewidth=0, label=band))
    return shown


def level(label: str) -> Any:
    """In the legend, of what marks at x = inf are."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color="0.3", label=label, **LEVEL)


def _drawn(value: float) -> float:
    """A gap where there is no number."""
    return value if math.isfinite(value) else math.nan


def _band(marks: Sequence[Point]) -> tuple[list[float], list[float]]:
    low = [_drawn(mark.y if mark.low is None else mark.low) for mark in marks]
    high = [_drawn(mark.y if mark.high is None else mark.high) for mark in marks]
    return low, high
