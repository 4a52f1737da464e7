"""The numbers that a claim's test took, as the rows of claims.csv."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpfl_bench.results.select.cells import Cell
from dpfl_bench.results.select.intervals import Key

HEAD = ["claim", "cell", "side", "with", "along", "split", "seed", "value", "tuned"]
EXACT = "exact"  # in place of the seed of what has no randomness


@dataclass(frozen=True)
class Taken:
    """Numbers of one side, at one place of the axes."""

    values: Mapping[Key, float] = field(default_factory=dict)  # none: the runs lack what the test needs
    exact: bool = False
    side: str = ""  # of, than, at, to
    across: Any = None  # the value of the claim's `with`
    along: Any = None  # the value of its `along` or `x`, or the round
    tuned: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(cell: Cell, side: str = "", across: Any = None, along: Any = None) -> Taken:
        return Taken(cell.values, cell.exact, side, across, along, cell.tuned)


def rows(claim: str, cell: str, every: Iterable[Taken]) -> Iterator[list[str]]:
    for each in every:
        at = [claim, cell, each.side, *map(_word, (each.across, each.along))]
        tuned = ", ".join(f"{name}={value}" for name, value in each.tuned.items())
        for (split, *seed), value in each.values.items():
            yield [*at, _split(split), _seed(seed, each.exact), repr(float(value)), tuned]
        if not each.values:
            yield [*at, "", "", "", tuned]


def _split(split: Any) -> str:
    """The seeds of data set and partition."""
    return "/".join(map(_word, split)) if isinstance(split, tuple) else _word(split)


def _seed(seed: Iterable[Any], is_exact: bool) -> str:
    """With the values of `spread` behind it."""
    first, *spread = seed
    return "/".join(filter(None, (EXACT if is_exact else _word(first), *map(_word, spread))))


def _word(value: Any) -> str:
    if value is None:
        return ""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)
