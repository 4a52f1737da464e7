"""Numbers that a paper prints, next to ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.checks.yaml_file import entries, one_key
from dpfl_bench.config.typed import checked
from dpfl_bench.results.select.cells import BEST, Cell, cells
from dpfl_bench.results.select.intervals import of_prediction
from dpfl_bench.results.select.selection import VALUE, Selection
from dpfl_bench.results.select.sources import Source

EXACT, WITHIN, DIFFERS, ELSEWHERE = "exact", "within", "differs", "not at this setting"


@dataclass(frozen=True)
class Printed(Selection):
    """A block of numbers, by row and column."""

    y: str = field(default="", metadata=VALUE)
    id: str = ""
    what: str = ""
    place: str = ""
    digits: int = 2
    rounding: Literal["nearest", "up"] = "nearest"  # of the print; up: as bounds are printed
    runs: int = 1
    rows: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    cells: dict[Any, Any] = field(default_factory=dict)
    std: dict[Any, Any] = field(default_factory=dict)
    differs: dict[Any, str] = field(default_factory=dict)  # a cell: why

    @property
    def groups(self) -> Sequence[str]:
        return [*self.rows, *self.columns]

    def check(self, where: str) -> None:
        super().check(where)
        places = [" / ".join(at) for at, _ in entries(self.cells)]
        for key, node in (("cells", self.cells), ("std", self.std)):
            for at, value in entries(node):
                checked(f"{where}: {key}: {' / '.join(at)}", value, float)
        std = [("std", " / ".join(at)) for at, _ in entries(self.std)]
        for key, place in (*std, *(("differs", one_key(cell)) for cell in self.differs)):
            if place not in places:
                raise ConfigError(f"{where}: {key}: {place}: expected one of {', '.join(places)}")
        if min(self.runs, self.digits) < 0 or not self.groups:
            raise ConfigError(f"{where}: expected rows or columns, digits >= 0 and runs >= 0")


@dataclass(frozen=True)
class Match:
    """One printed number. interval: where the paper's mean would lie by our seeds."""

    id: str
    what: str
    place: str
    at: str  # the cell: row and column
    printed: float
    std: float | None
    ours: float | None
    interval: tuple[float, float] | None
    match: str
    why: str
    exact: bool = False  # ours has no randomness


class Verdict(NamedTuple):
    match: str
    why: str = ""
    interval: tuple[float, float] | None = None


def matches(printed: Printed, sources: Sequence[Source], elsewhere: str = "") -> list[Match]:
    """Every printed number, in the order of the file. elsewhere: why ours are at another setting
    than the paper's, if they are.
    """
    ours = {at(cell, printed): cell for cell in cells(sources, printed.question(*printed.groups))}
    explained = {one_key(place): why for place, why in printed.differs.items()}
    std = dict(entries(printed.std))
    result = []
    for key, number in entries(printed.cells):
        cell, place = ours.get(key), " / ".join(key)
        match, why, interval = _compared(float(number), cell, printed, elsewhere)
        mean = None if cell is None or not math.isfinite(cell.mean) else cell.mean
        why = "; ".join(filter(None, (why, explained.get(place, "") if match == DIFFERS else "")))
        told = (printed.id, printed.what, printed.place, place, float(number), std.get(key))
        exact = cell is not None and cell.exact
        result.append(Match(*told, mean, interval, match, why, exact))
    return result


def _compared(number: float, cell: Cell | None, printed: Printed, elsewhere: str) -> Verdict:
    if cell is None:
        return Verdict(ELSEWHERE, "no run here")
    unit, apart = 10.0**-printed.digits, cell.mean - number
    below, above = (unit, 0.0) if printed.rounding == "up" else (unit / 2, unit / 2)
    if cell.exact or printed.y.startswith(BEST):  # a choice from a grid: the same one, or another
        if elsewhere:
            return Verdict(ELSEWHERE, elsewhere)
        slack = 1e-9 * unit if cell.exact else 0.0
        if number == cell.mean or -below - slack <= apart <= above + slack:
            return Verdict(EXACT if cell.exact else WITHIN)
        return Verdict(DIFFERS, f"by {apart:.4g}" if cell.exact else f"ours is {cell.mean:.4g}")
    spread = of_prediction(cell.values, printed.runs)
    ends = (spread.low - above, spread.high + below) if spread.known else None
    if not elsewhere and math.isinf(spread.low) and spread.low == spread.high:
        return Verdict(DIFFERS, "every run of ours diverged")
    if elsewhere or ends is None:
        few = "a run of ours diverged" if math.isinf(cell.mean) else "seeds or splits are too few"
        return Verdict(ELSEWHERE, elsewhere or f"{few} for an interval, n = {spread.count}", ends)
    if ends[0] <= number <= ends[1]:
        return Verdict(WITHIN, "", ends)
    return Verdict(DIFFERS, f"by {apart:.4g}", ends)


def at(cell: Cell, of: Any) -> tuple[str, ...]:
    """A cell as a file names it: row, then column."""
    named = ([one_key(cell.at[name]) for name in names] for names in (of.rows, of.columns))
    return tuple(" / ".join(keys) for keys in named if keys)
