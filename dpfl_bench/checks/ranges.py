"""Ranges of values: checked when settings are composed, and again by functions that users may call
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl_bench.checks import nearest
from dpfl_bench.checks.errors import ConfigError


@dataclass(frozen=True)
class Range:
    holds: Callable[[Any], bool]
    expected: str | Callable[[Any], str]  # what is said of a value out of it
    words: tuple[str, ...] = ()  # where it is one of these

    @staticmethod
    def of(*words: str) -> Range:
        return Range(lambda v: v in words, f"one of {', '.join(words)}", words)


ANY = Range(lambda v: True, "any value")
LEAST, LARGEST = 1e-30, 1e250  # a model that so large steps make infinite ends its run as diverged


def limited(least: float, most: float, expected: str, wrong: Callable[[Any], bool]) -> Range:
    """From least to most. `expected` is said of what is wrong in itself, the limits of the rest."""
    return Range(
        lambda v: least <= v <= most,
        lambda v: expected if wrong(v) else f"{expected}, {least:g} to {most:g}",
    )


POSITIVE = limited(LEAST, LARGEST, "a number > 0", lambda v: not 0 < v < math.inf)
NOT_NEGATIVE = Range(lambda v: v == 0 or LEAST <= v <= LARGEST, f"a number >= 0 and <= {LARGEST:g}")
FACTOR = Range(lambda v: 0 <= v < 1, "a number >= 0 and < 1")
CHANCE = Range(lambda v: 0 <= v <= 1, "a number >= 0 and <= 1")
MOST = 10**9
COUNT = limited(1, MOST, "at least 1", lambda v: v < 1)
SEED = Range(lambda v: 0 <= v < 2**62, "a whole number >= 0 and < 2^62")
LEAST_CLIP = 1e-12  # in float32, squares of a gradient may vanish that are no longer nothing beside less
LARGEST_CLIP = 1e30  # sums of so long updates, and of their noise, stay within float32

SHAPE = Range(
    lambda v: bool(v) and all(type(n) is int and 1 <= n <= MOST for n in v), "a list of whole numbers >= 1"
)
CLASSES = Range(lambda v: 0 <= v <= MOST, "at least 2 (0: regression; null: read off the records)")
PATH = Range(lambda v: _expands(v), "a path; there is no such user (write the path in full)")

# of data sets, partitions and models: each is asked in two places
TEST_FRACTION = Range(lambda v: 0 <= v < 1, "0 <= test_fraction < 1")
FRACTION = Range(lambda v: 0 < v <= 1, "0 < fraction <= 1 (1 keeps every record)")
ALPHA = Range(lambda v: 0 < v < math.inf, "a finite alpha > 0 (use partition=iid for equal clients)")
OVERLAP = Range(lambda v: 0 < v <= 100, "0 < percent <= 100")
SPREAD = Range(lambda v: 0 <= v <= 2, "0 <= spread <= 2 (0: equal clients)")
SIMILARITY = Range(lambda v: 0 <= v <= 100, "0 <= percent <= 100")
HIDDEN = Range(
    lambda v: all(type(n) is int and n >= 1 for n in v), "whole numbers >= 1 ([] for no hidden layer)"
)
POOLED = Range(lambda v: v >= 1, "at least 1 (null: as large as the maps are)")
NORM = Range.of("none", "group", "batch")
ACTIVATION = Range.of("relu", "tanh", "tempered")


def _expands(path: str) -> bool:
    try:
        Path(path).expanduser()
    except RuntimeError:
        return False
    return "\0" not in path


def check(path: str, value: Any, allowed: Range) -> None:
    """Raise ConfigError for a value out of its range; null has none."""
    if value is not None and not allowed.holds(value):
        short = f"{value:g}" if isinstance(value, float) else value
        shown = (
            repr(value) if short != value and isinstance(value, float) and float(short) != value else short
        )
        expected = allowed.expected if isinstance(allowed.expected, str) else allowed.expected(value)
        near = nearest.choice(str(value), allowed.words)
        meant = nearest.did_you_mean(near and f"{path}={near}")
        raise ConfigError(f"{path}={shown}: expected {expected}{meant}")
