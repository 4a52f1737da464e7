"""The numbers that a paper prints, next to ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpfl_bench.papers.artefact import Printed, entries
from dpfl_bench.papers.shape import word
from dpfl_bench.results.select.cells import BEST, Cell, cells
from dpfl_bench.results.select.intervals import of_prediction
from dpfl_bench.results.select.sources import Source

EXACT, WITHIN, DIFFERS, ELSEWHERE = "exact", "within", "differs", "not at this setting"


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

    def json(self) -> dict[str, Any]:
        return asdict(self)


def matches(
    printed: Printed, sources: Sequence[Source], scale: str, reading: str, reduced: str
) -> list[Match]:
    """Every printed number, in the order of the file."""
    ours = {
        key(cell, printed): cell
        for cell in cells(sources, printed.question(printed.value, *printed.rows, *printed.columns))
    }
    elsewhere = ""
    if scale not in printed.scales:
        elsewhere = reduced or f"scale={scale}"
    elif reading not in printed.readings:
        elsewhere = f"reading={reading}"
    known = {word(at): why for at, why in printed.differs.items()}
    result = []
    for at, number in entries(printed.cells):
        cell = ours.get(at)
        match, why, interval = _compared(float(number), cell, printed, elsewhere)
        mean = None if cell is None or not math.isfinite(cell.mean) else cell.mean
        std = dict(entries(printed.std)).get(at)
        place = " / ".join(at)
        explained = known.get(place, "") if match == DIFFERS else ""
        why = "; ".join(filter(None, (why, explained)))
        result.append(
            Match(
                printed.id, printed.what, printed.place, place, float(number), std, mean, interval, match, why
            )
        )
    return result


def _compared(
    number: float, cell: Cell | None, printed: Printed, elsewhere: str
) -> tuple[str, str, tuple[float, float] | None]:
    if cell is None:
        return ELSEWHERE, "no run here", None
    unit = 10.0**-printed.digits
    below, above = (unit, 0.0) if printed.rounding == "up" else (unit / 2, unit / 2)
    if cell.exact:
        if elsewhere:
            return ELSEWHERE, elsewhere, None
        same = number == cell.mean or -below - 1e-9 * unit <= cell.mean - number <= above + 1e-9 * unit
        return (EXACT, "", None) if same else (DIFFERS, f"by {cell.mean - number:.4g}", None)
    if printed.value.startswith(BEST):  # a choice from a grid: the same one, or another
        if elsewhere:
            return ELSEWHERE, elsewhere, None
        same = -below <= cell.mean - number <= above
        return (WITHIN, "", None) if same else (DIFFERS, f"ours is {cell.mean:.4g}", None)
    spread = of_prediction(cell.values, printed.runs)
    ends = (spread.low - above, spread.high + below) if spread.known else None
    if not elsewhere and math.isinf(spread.low) and spread.low == spread.high:
        return DIFFERS, "every run of ours diverged", None
    if elsewhere or ends is None:
        few = "a run of ours diverged" if math.isinf(cell.mean) else "seeds or splits are too few"
        return ELSEWHERE, elsewhere or f"{few} for an interval, n = {spread.count}", ends
    if ends[0] <= number <= ends[1]:
        return WITHIN, "", ends
    return DIFFERS, f"by {cell.mean - number:.4g}", ends


def key(cell: Cell, printed: Printed) -> tuple[str, ...]:
    """A cell as the file names it: row, then column."""
    parts = [" / ".join(word(cell.at[name]) for name in names) for names in (printed.rows, printed.columns)]
    return tuple(part for part, names in zip(parts, (printed.rows, printed.columns), strict=True) if names)
