"""Student's intervals: against scipy, what is counted, and how often they cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.sources import keyed, share
from scipy import stats

from dpfl_bench.results.select import intervals
from dpfl_bench.results.select.intervals import of_difference, of_mean, of_prediction

pytestmark = pytest.mark.one_in(3)
INF = math.inf


@pytest.mark.parametrize("count", [3, 4, 10, 40])
def test_mean_against_scipy(count: int) -> None:
    values = np.random.default_rng(count).normal(5, 2, count)
    found = of_mean(keyed(*values))
    low, high = stats.t.interval(0.95, count - 1, loc=values.mean(), scale=stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), low, high), rel=1e-9)
    assert found.count == count


def test_difference_against_scipys_paired_test() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(0, 1, 6), rng.normal(1, 3, 6)
    found = of_difference(keyed(*ours), keyed(*theirs))
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_a_difference_is_over_what_both_have_whatever_the_order() -> None:
    ours = {("a", 0): 5.0, ("a", 1): 6.0, ("a", 2): 9.0, ("b", 0): 100.0}
    theirs = {("c", 0): -50.0, ("a", 2): 1.0, ("a", 0): 2.0, ("a", 1): 4.0}
    found = of_difference(ours, theirs)
    assert found == of_mean(keyed(3.0, 2.0, 8.0))
    assert of_difference(ours, {("d", 0): 1.0}).count == 0
    assert not of_difference(ours, {("d", 0): 1.0}).known


def test_several_splits_are_counted_as_splits() -> None:
    rng = np.random.default_rng(3)
    of_split = {split: rng.normal(split, 0.1, 5) for split in range(4)}
    values = {(split, seed): value for split, each in of_split.items() for seed, value in enumerate(each)}
    found = of_mean(values)
    assert found.count == 4
    assert found == of_mean(keyed(*(float(np.mean(each)) for each in of_split.values())))
    two = {key: value for key, value in values.items() if key[0] < 2}
    assert not of_mean(two).known  # ten seeds, and two splits
    assert of_mean({key: value for key, value in values.items() if key[0] == 2}).count == 5


def test_an_uneven_split_counts_once() -> None:
    values = {("a", 0): 0.0, ("a", 1): 2.0, ("b", 0): 5.0, ("c", 0): 9.0}
    assert of_mean(values).mean == pytest.approx((1 + 5 + 9) / 3)


@pytest.mark.parametrize("values", [(), (1.0,), (1.0, 1.0), (1.0, 2.0), (INF,), (INF, INF), (1.0, INF)])
def test_fewer_than_three_values_have_no_interval(values: tuple[float, ...]) -> None:
    """Not even two that agree, or that both diverged."""
    for found in (of_mean(keyed(*values)), of_prediction(keyed(*values), 3)):
        assert not found.known
        assert (found.low, found.high) == (-INF, INF)
        assert found.ends == (None, None)


def test_diverged_runs() -> None:
    assert of_mean(keyed(INF, INF, INF)).low == INF  # all: worse than any number
    some = of_mean(keyed(1.0, INF, 2.0, 3.0))
    assert (some.mean, some.low, some.high) == (INF, -INF, INF)
    both = of_difference(keyed(INF, INF, INF), keyed(INF, INF, INF))
    assert not both.known
    assert math.isnan(both.mean)
    assert of_difference(keyed(INF, INF, INF), keyed(1.0, 2.0, 3.0)).low == INF
    assert of_difference(keyed(1.0, 2.0, 3.0), keyed(INF, INF, INF)).high == -INF


def test_exact_numbers() -> None:
    found = intervals.exactly(0.3)
    assert (found.mean, found.low, found.high, found.half) == (0.3, 0.3, 0.3, 0.0)
    assert found.known
    assert of_prediction(keyed(2.0, 2.0, 2.0), 5).half == 0.0


def test_prediction_of_an_exact_number_is_the_interval_of_the_mean() -> None:
    values = keyed(1.0, 4.0, 2.0, 7.0)
    assert of_prediction(values, 0) == of_mean(values)
    assert of_prediction(values, 4).half == pytest.approx(of_mean(values).half * math.sqrt(2))


TIMES = 3000
ERROR = 4 * math.sqrt(0.95 * 0.05 / TIMES)  # four standard errors of the share


@pytest.mark.parametrize("runs", [1, 3, 10])
@pytest.mark.parametrize("ours", [3, 5])
def test_a_prediction_interval_covers_the_mean_of_further_seeds(ours: int, runs: int) -> None:
    def covers(rng: np.random.Generator, widened: float = 1.0) -> bool:
        interval = of_prediction(keyed(*rng.normal(7, 3, ours)), runs)
        return abs(rng.normal(7, 3, runs).mean() - interval.mean) <= widened * interval.half

    assert share(covers, TIMES) == pytest.approx(0.95, abs=ERROR)
    assert share(lambda rng: covers(rng, 0.6), TIMES) < 0.95 - ERROR  # a negative control


def test_an_interval_of_seeds_in_place_of_splits_would_not_cover() -> None:
    """What is counted matters: seeds of one split share its luck."""

    def values(rng: np.random.Generator) -> dict[tuple[int, int], float]:
        luck = rng.normal(0, 1, 4)
        return {(split, seed): luck[split] + rng.normal(0, 0.2) for split in range(4) for seed in range(5)}

    def covers(rng: np.random.Generator) -> bool:
        interval = of_mean(values(rng))
        return interval.low <= 0 <= interval.high

    def naive(rng: np.random.Generator) -> bool:
        interval = of_mean(keyed(*values(rng).values()))
        return interval.low <= 0 <= interval.high

    assert share(covers, TIMES) == pytest.approx(0.95, abs=ERROR)
    assert share(naive, TIMES) < 0.8
