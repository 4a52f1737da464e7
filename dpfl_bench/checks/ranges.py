"""Ranges of values: checked when settings are composed, and again by functions that users may call
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpfl_bench.checks import nearest
from dpfl_bench.checks.errors import ConfigError


@dataclass(frozen=True)
class Range:
    holds: Callable[[Any], bool]
    expected: str
    words: tuple[str, ...] = ()  # where it is one of these

    @staticmethod
    def of(*words: str) -> Range:
        return Range(lambda v: v in words, f"one of {', '.join(words)}", words)


POSITIVE = Range(lambda v: 0 < v < math.inf, "a number > 0")
NOT_NEGATIVE = Range(lambda v: 0 <= v < math.inf, "a number >= 0")
FACTOR = Range(lambda v: 0 <= v < 1, "a number >= 0 and < 1")
CHANCE = Range(lambda v: 0 <= v <= 1, "a number >= 0 and <= 1")
COUNT = Range(lambda v: v >= 1, "at least 1")
LEAST_CLIP = 1e-12  # in float32, squares of a gradient may vanish that are no longer nothing beside less
LARGEST_CLIP = 1e30  # sums of so long updates, and of their noise, stay within float32

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


def check(path: str, value: Any, allowed: Range) -> None:
    """Raise ConfigError for a value out of its range; null has none."""
    if value is not None and not allowed.holds(value):
        shown = f"{value:g}" if isinstance(value, float) else value
        near = nearest.choice(str(value), allowed.words)
        meant = nearest.did_you_mean(near and f"{path}={near}")
        raise ConfigError(f"{path}={shown}: expected {allowed.expected}{meant}")
