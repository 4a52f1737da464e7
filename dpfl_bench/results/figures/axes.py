"""Ticks and scales of a panel: plain numbers with room between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 14  # values of x at most that get a tick each
LETTER = 0.058  # inches of a digit of a tick's label


def scale_x(axes: Axes, values: Sequence[float], log: bool, inches: float) -> None:
    """values: all x that are drawn. inches: how long the axis is."""
    whole = all(float(value).is_integer() for value in values)
    shown = sorted(set(values))
    if log:
        axes.set_xscale("log")
        if shown and shown[0] > 0 and (len(shown) <= FEW or shown[-1] < 100 * shown[0]):
            ticks = apart(shown, inches)
            axes.set_xticks(ticks, [f"{tick:.4g}" if tick < 1e5 else f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        else:
            _decades(axes, "x")
    else:
        from matplotlib.ticker import MaxNLocator

        most = max(3, min(7, int(inches / 0.42)))
        axes.xaxis.set_major_locator(MaxNLocator(most, integer=whole, min_n_ticks=2))


def scale_y(axes: Axes, values: Sequence[float], log: bool, low: bool = False) -> None:
    """values: all y that are drawn and finite. low: of a panel that has room for few labels."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    if not log:
        axes.yaxis.set_major_locator(MaxNLocator(6, min_n_ticks=3))
        return
    axes.set_yscale("log", nonpositive="clip")
    above = [value for value in values if value > 0]
    decades = math.log10(max(above) / min(above)) if above else 9.0
    if decades > 2:
        _decades(axes, "y")
        return
    few = (1, 2, 5) if decades > (0.4 if low else 0.8) else (1, 2, 3, 5, 7)
    axes.yaxis.set_major_locator(LogLocator(subs=few if low or decades > 0.8 else range(1, 10)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(LogLocator(subs=()))


def _decades(axes: Axes, which: str) -> None:
    from matplotlib.ticker import LogFormatterMathtext, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_major_formatter(LogFormatterMathtext())
    axis.set_minor_formatter(NullFormatter())


def apart(ticks: Sequence[float], inches: float) -> list[float]:
    """As many of the ticks as have room beside each other on a log axis of that length, the ends
    among them.
    """
    if len(ticks) < 2:
        return list(ticks)
    span = max(math.log(ticks[-1] / ticks[0]), 1e-9)

    def collide(low: float, high: float) -> bool:
        room = math.log(high / low) / span * inches * 0.9
        return room < LETTER * (len(f"{low:g}") + len(f"{high:g}")) / 2 + 0.07

    kept = [ticks[0]]
    for tick in ticks[1:-1]:
        if not collide(kept[-1], tick) and not collide(tick, ticks[-1]):
            kept.append(tick)
    return [*kept, ticks[-1]]
