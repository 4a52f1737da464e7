"""What a claim is tested on: the sources of one group, as cells and paired differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.select.cells import Cell, Question, cells
from dpfl_bench.results.select.intervals import Interval, Key, exactly, of_difference, of_mean
from dpfl_bench.results.select.sources import Source
from dpfl_bench.results.verdicts.taken import Taken

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"


@dataclass(frozen=True)
class Outcome:
    verdict: str
    evidence: str
    taken: Sequence[Taken] = ()
    cells: Mapping[str, Outcome] = field(default_factory=dict)  # by label, of a claim as a whole


class Missing(Exception):
    """The claim names values that no run has."""


@dataclass(frozen=True)
class GroupTest:
    """A claim on the sources of one group."""

    asked: Question  # without fields
    terms: Mapping[str, Any]  # the keys that the claim's kind has of its own
    sources: Sequence[Source]
    digits: int = 17  # of every number, as `float` may have them
    taken: list[Taken] = field(default_factory=list)  # whatever the test uses is noted here

    def question(self, *names: str) -> Question:
        return replace(self.asked, fields=names)

    @property
    def sign(self) -> int:
        """Of a difference in which less is better, 1."""
        return 1 if self.question().better == "least" else -1

    def cells(self, *names: str, where: Mapping[str, Any] | None = None, y: str | None = None) -> list[Cell]:
        asked = self.question(*names)
        asked = replace(asked, where={**asked.where, **(where or {})}, y=y or asked.y)
        return [self._rounded(cell) for cell in cells(self.sources, asked)]

    def rounded(self, value: float) -> float:
        return float(f"{value:.{self.digits}g}")

    def _rounded(self, cell: Cell) -> Cell:
        return replace(cell, values={key: self.rounded(value) for key, value in cell.values.items()})

    def note(self, cell: Cell, **at: Any) -> Cell:
        """at: as in `Taken`."""
        self.taken.append(Taken.of(cell, **at))
        return cell

    def side(self, name: str, along: str | None = None) -> Cell:
        """name: `of` or `than`; where the claim has no such key, all of the group."""
        where = self.terms.get(name, {})
        found = self.cells(where=where)
        if not found:
            raise Missing(", ".join(f"{key} {value}" for key, value in where.items()))
        return self.note(found[0], side=name if where else "", along=along)

    def along(self, name: str) -> dict[Any, Cell]:
        """A cell for each value of the field, sorted."""
        by_value = {cell.at[name]: cell for cell in self.cells(name)}
        if len(by_value) < 2:
            raise Missing(f"two values of {name}")
        return {value: self.note(by_value[value], along=value) for value in ascending(by_value, name)}

    def gain(self, ours: Cell, theirs: Cell) -> Interval:
        """By how much ours is better."""
        return gain(ours, theirs, self.sign)

    def best(self, by_value: Mapping[Any, Cell]) -> Any:
        return min(by_value, key=lambda value: self.sign * _finite(by_value[value].mean, self.sign))


def ascending(values: Iterable[Any], name: str) -> list[Any]:
    """Values of a field that has an order."""
    every = list(values)
    for value in every:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"along and with: {name}={value}: expected a field with numbers")
    return sorted(every)


def gain(ours: Cell, theirs: Cell, sign: int) -> Interval:
    if ours.exact and theirs.exact:
        return exactly(sign * (theirs.mean - ours.mean))
    gain = of_difference(theirs.values, ours.values)
    return gain if sign > 0 else Interval(-gain.mean, -gain.high, -gain.low, gain.count)


Curve = Mapping[Any, Cell]  # value of a field -> what came of it
Pick = Callable[[Curve], Any]


def picked(curves: Sequence[Curve], sign: int) -> Iterator[tuple[Key, Pick]]:
    """For each seed that all have, how the best value of a curve is chosen by the other seeds (or
    splits). So the luck by which a value is best in a seed does not speak for it in that seed.
    """
    keys = [key for key in keys_of(curves[0]) if all(key in keys_of(curve) for curve in curves)]
    splits = {key[0] for key in keys}
    for key in keys:
        others = [k for k in keys if (k[0] != key[0] if len(splits) > 1 else k != key)]

        def pick(curve: Curve, others: Sequence[Key] = others) -> Any:
            return min(curve, key=lambda v: sum(sign * curve[v].values[k] for k in others))

        if others:
            yield key, pick


def keys_of(curve: Curve) -> list[Key]:
    first, *rest = curve.values()
    return [key for key in first.values if all(key in cell.values for cell in rest)]


def gain_of_best(ours: Curve, theirs: Curve, sign: int) -> Interval:
    """By how much the best of ours is better than the best of theirs."""
    if all(cell.exact for cell in (*ours.values(), *theirs.values())):
        best, other = (min(c.values(), key=lambda cell: sign * cell.mean) for c in (ours, theirs))
        return gain(best, other, sign)
    pairs = {
        key: sign * (theirs[pick(theirs)].values[key] - ours[pick(ours)].values[key])
        for key, pick in picked((ours, theirs), sign)
    }
    return of_mean(pairs)


def above(interval: Interval, margin: float = 0.0) -> str:
    if interval.low > margin:
        return HOLDS
    return FAILS if interval.high <= margin else UNDECIDED


def worst(verdicts: Iterable[str]) -> str:
    given = set(verdicts)
    return FAILS if FAILS in given else UNDECIDED if UNDECIDED in given else HOLDS


def same_digits(ours: float, printed: float, digits: int) -> bool:
    """Whether ours may be printed so: both ways of rounding a half are."""
    return ours == printed or abs(ours - printed) <= 0.5 * 10.0**-digits * (1 + 1e-9)


def said(interval: Interval) -> str:
    if interval.low == interval.high:
        return short(interval.mean)
    if not interval.known:
        return f"{short(interval.mean)} (n = {interval.count}: no interval)"
    return f"{short(interval.mean)} [{short(interval.low)}, {short(interval.high)}], n = {interval.count}"


def are_same(interval: Interval) -> bool:
    """Of a difference: none at all, in no seed."""
    return interval.low == interval.high == 0


def short(value: Any) -> str:
    """Four digits; whole numbers below a million in full."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    whole = abs(value) < 1e6 and value == round(value)
    return f"{value:.0f}" if whole else f"{value:.4g}"


def _finite(value: float, sign: int) -> float:
    return sign * math.inf if math.isnan(value) else value
