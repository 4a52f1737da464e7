"""The numbers that a paper prints, next to ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpfl_bench.papers.artefact import Printed
from dpfl_bench.results.select.cells import Cell, cells
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
    result = []
    for at, number in each(printed.cells):
        cell = ours.get(at)
        match, why, interval = _compared(float(number), cell, printed, elsewhere)
        mean = None if cell is None or not math.isfinite(cell.mean) else cell.mean
        std = dict(each(printed.std)).get(at)
        explained = printed.differs.get(" / ".join(at), "") if match == DIFFERS else ""
        why = "; ".join(filter(None, (why, explained)))
        place = " / ".join(at)
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
        same = -below - 1e-9 * unit <= cell.mean - number <= above + 1e-9 * unit
        return (EXACT, "", None) if same else (DIFFERS, f"by {cell.mean - number:.4g}", None)
    spread = of_prediction(cell.values, printed.runs)
    ends = (spread.low - above, spread.high + below) if spread.known else None
    if elsewhere or ends is None:
        return ELSEWHERE, elsewhere or "one seed tells no interval", ends
    if ends[0] <= number <= ends[1]:
        return WITHIN, "", ends
    return DIFFERS, f"by {cell.mean - number:.4g}", ends


def key(cell: Cell, printed: Printed) -> tuple[str, ...]:
    """A cell as the file names it: row, then column."""
    parts = [" / ".join(word(cell.at[name]) for name in names) for names in (printed.rows, printed.columns)]
    return tuple(part for part, names in zip(parts, (printed.rows, printed.columns), strict=True) if names)


def word(value: Any) -> str:
    """A key of the YAML file: 10 and 10.0 are one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if is_number else str(value)


def each(node: Mapping[Any, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every number under nested keys."""
    for name, value in node.items():
        at = (*above, word(name))
        if isinstance(value, Mapping):
            yield from each(value, at)
        elif value is not None:
            yield at, value
