"""Intervals over seeds and splits: of a mean, of a paired difference, and of what another's mean
would be.

A key is (split, seed). Seeds of one split share who holds which record, so their mean says nothing
of other splits. Where there are several splits, the splits are therefore what is counted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

CONFIDENCE = 0.95
LEAST = 3  # seeds or splits: two that agree by chance would make an interval of no width
Key = tuple[Hashable, ...]  # (split, seed, ...)


@dataclass(frozen=True)
class Interval:
    """A mean and where it may lie. Without an interval (fewer than LEAST values) low and high are
    infinite.
    """

    mean: float
    low: float
    high: float
    count: int  # values that were counted: seeds, or splits

    @property
    def known(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    @property
    def ends(self) -> tuple[float, float] | tuple[None, None]:
        return (self.low, self.high) if self.known else (None, None)


def counted(values: Mapping[Key, float]) -> list[float]:
    """The values of a single split by seed; of several splits, each split's mean."""
    splits: dict[Hashable, list[float]] = {}
    for key, value in values.items():
        splits.setdefault(key[0], []).append(value)
    if len(splits) == 1:
        return list(values.values())
    return [math.fsum(each) / len(each) for each in splits.values()]


def of_mean(values: Mapping[Key, float]) -> Interval:
    """The mean over seeds and splits, with Student's interval."""
    return _student(counted(values), lambda n: 1 / n)


def of_difference(ours: Mapping[Key, float], theirs: Mapping[Key, float]) -> Interval:
    """The mean of ours - theirs over the seeds and splits that both have. Pairs share the data and,
    where the sizes agree, the noise.
    """
    return of_mean({key: ours[key] - theirs[key] for key in ours if key in theirs})


def of_prediction(values: Mapping[Key, float], runs: int) -> Interval:
    """Where the mean of `runs` further seeds would lie. runs=0: a number without randomness."""
    return _student(counted(values), lambda n: 1 / n + (1 / runs if runs else 0))


def of_spread(mean: float, std: float, count: int) -> Interval:
    """The interval of a mean whose values' standard deviation is known."""
    half = _quantile(count - 1) * std / math.sqrt(count) if count >= LEAST else math.inf
    return Interval(mean, mean - half, mean + half, count)


def agree(first: Interval, second: Interval) -> bool:
    """Whether each mean lies where the other's seeds expect that of so many further ones."""
    apart = abs(first.mean - second.mean)
    return all(
        apart <= one.half * math.sqrt(1 + one.count / other.count)
        for one, other in ((first, second), (second, first))
    )


def exactly(value: float) -> Interval:
    """Of a number without randomness."""
    return Interval(value, value, value, 1)


def _student(values: list[float], share: Callable[[int], float]) -> Interval:
    """share: the variance of the quantity in multiples of one value's, of n values."""
    count = len(values)
    if count >= LEAST and len(set(values)) == 1 and math.isinf(values[0]):
        return Interval(values[0], values[0], values[0], count)  # all diverged
    if count < LEAST or not all(map(math.isfinite, values)):
        mean = sum(values) / count if count else math.nan
        return Interval(mean, -math.inf, math.inf, count)
    mean = math.fsum(values) / count
    half = _quantile(count - 1) * statistics.stdev(values) * math.sqrt(share(count))
    return Interval(mean, mean - half, mean + half, count)


def _quantile(degrees: int) -> float:
    """Student's t at the upper end of CONFIDENCE."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + CONFIDENCE / 2))
