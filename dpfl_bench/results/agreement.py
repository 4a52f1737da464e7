"""Whether the numbers of two tables like data.csv are the same: bit for bit, or, where another kind
of machine made them, within what their seeds allow.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest

from dpfl_bench.results.select.intervals import Interval, agree, exactly, of_spread

CLOSE = 1e-6  # relative: another library may round another way
AT = ("figure", "row", "column", "line")  # whose number a row is
Row = Mapping[str, str]


def same_bits(was: str, now: str) -> Iterator[str]:
    """A line for each cell that differs."""
    none: Row = {}
    for number, (old, new) in enumerate(zip_longest(rows(was), rows(now), fillvalue=none), start=1):
        for name in dict.fromkeys([*old, *new]):
            if old.get(name) != new.get(name):
                yield _line(number, old or new, name, old.get(name), new.get(name))


def same_intervals(was: str, now: str, spreads: Collection[str] = ()) -> tuple[list[str], int]:
    """A line for each number that differs, and how many could not be compared: nothing tells how
    far their seeds scatter.

    spreads: figures whose bands are one standard deviation, not the interval of the mean.
    """
    old_rows, new_rows = rows(was), rows(now)
    if [_at(row) for row in old_rows] != [_at(row) for row in new_rows]:
        return [f"data.csv: had {len(old_rows)} rows, now {len(new_rows)}, or other ones"], 0
    lines, unknown = [], 0
    for number, (old, new) in enumerate(zip(old_rows, new_rows, strict=True), start=1):
        pair = [_interval(row, row["figure"] in spreads) for row in (old, new)]
        agrees = _agree(*pair)
        unknown += agrees is None
        if agrees is False:
            lines.append(_line(number, old, "y", *(f"{each.mean:.6g} ± {each.half:.3g}" for each in pair)))
    return lines, unknown


def close(was: float | None, now: float | None) -> bool:
    """Of numbers without randomness."""
    if was is None or now is None:
        return was is now
    return was == now or abs(was - now) <= CLOSE * max(abs(was), abs(now))


def rows(text: str) -> Sequence[Row]:
    return list(csv.DictReader(text.splitlines()))


def _agree(was: Interval, now: Interval) -> bool | None:
    """None: it cannot be told."""
    if not (math.isfinite(was.mean) and math.isfinite(now.mean)):
        return was.mean == now.mean  # diverged
    if was.known and now.known:
        return close(was.mean, now.mean) or agree(was, now)
    return True if was.mean == now.mean else None


def _interval(row: Row, is_spread: bool) -> Interval:
    mean, count = float(row["y"]), int(row["n"])
    if not row["low"]:
        return Interval(mean, -math.inf, math.inf, count)
    low, high = float(row["low"]), float(row["high"])
    if low == high == mean:
        return exactly(mean)
    return of_spread(mean, (high - low) / 2, count) if is_spread else Interval(mean, low, high, count)


def _at(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in AT)


def _line(number: int, row: Row, name: str, was: object, now: object) -> str:
    at = ", ".join(filter(None, (*(row.get(key) for key in AT), row.get("x") and f"x {row['x']}")))
    return f"data.csv, row {number} ({at}), {name}: was {was}, now {now}"
