"""Sampled releases never cost less than what neighbours really spend: an own lower bound that shares no code with the accountants."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp, ndtr

from dpfl_bench.privacy.accounting import epsilon
from dpfl_bench.privacy.releases import Composition


def _log_density(x: np.ndarray, mixture: list[tuple[float, float]], std: float) -> np.ndarray:
    terms = [math.log(w) - (x - mean) ** 2 / (2 * std**2) for w, mean in mixture if w > 0]
    return logsumexp(terms, axis=0)


def lower_bound(p: list, q: list, std: float, times: int, delta: float, step: float) -> float:
    """Eps that `times` releases of the pair (p, q) of (weight, mean) mixtures spend at least: losses are rounded down to a grid.

    The loss is monotone in x for every pair below, so its least value in a cell is at one of the cell's ends.
    """
    ends = np.linspace(-1 - 9 * std, 1 + 9 * std, 20_001)
    mass = np.diff(sum(w * ndtr((ends - mean) / std) for w, mean in p))
    loss = _log_density(ends, p, std) - _log_density(ends, q, std)
    cell = np.floor(np.minimum(loss[1:], loss[:-1]) / step).astype(int)
    pmf = np.bincount(cell - cell.min(), weights=mass)
    size = 1 << (times * pmf.size).bit_length()
    composed = np.maximum(np.fft.irfft(np.fft.rfft(pmf, size) ** times, size), 0)
    losses = (np.arange(size) + times * cell.min()) * step
    kept = composed > 1e-18
    losses, composed = losses[kept][::-1], composed[kept][::-1]
    deltas = np.cumsum(composed) - np.exp(losses) * np.cumsum(composed * np.exp(-losses))  # at eps = each loss, falling
    return max(0.0, float(losses[np.argmax(deltas > delta)]))  # the largest eps whose delta is above


def pairs_of(mechanism: str, rate: float) -> list[tuple[list, list]]:
    """Pairs that neighbours really reach, in units of the sensitivity: others send 0 (poisson), or all of them the same c (fixed)."""
    if mechanism == "poisson":
        absent, present = [(1.0, 0.0)], [(1 - rate, 0.0), (rate, 1.0)]
        return [(present, absent), (absent, present)]
    shifted = [([(1 - rate, c), (rate, 0.5)], [(1 - rate, c), (rate, -0.5)]) for c in (-0.5, 0.0, 0.5)]
    return [pair for up, down in shifted for pair in ((up, down), (down, up))]


def spent_at_least(mechanism: str, rate: float, z: float, times: int, delta: float, step: float) -> float:
    return max(lower_bound(p, q, z, times, delta, step) for p, q in pairs_of(mechanism, rate))


def sampled(mechanism: str, sample: int, population: int, times: int) -> Composition:
    return Composition(mechanism, times, sample / population, population, sample)  # type: ignore[arg-type]


def configurations(mechanism: str, count: int) -> list[tuple[str, int, int, float, int, float]]:
    draw = np.random.Generator(np.random.Philox(key=7))
    return [
        (
            mechanism,
            int(draw.integers(1, 20)),
            20,
            float(np.exp(draw.uniform(math.log(0.5), math.log(4)))),
            int(draw.choice([1, 2, 3, 5])),
            float(10 ** draw.uniform(-7, -3)),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("case", configurations("poisson", 20) + configurations("fixed", 16), ids=str)
def test_never_below_what_neighbours_really_spend(case: tuple[str, int, int, float, int, float]) -> None:
    mechanism, sample, population, z, times, delta = case
    released = sampled(mechanism, sample, population, times)
    pld, rdp = epsilon(released, z, delta, "pld"), epsilon(released, z, delta, "rdp")
    step = max(pld, 0.02) / (500 * times)
    lower = spent_at_least(mechanism, sample / population, z, times, delta, step)
    assert min(pld, rdp) >= lower
    assert rdp >= pld - 1e-6
    if mechanism == "poisson" and 0.1 <= pld <= 10:
        assert pld <= 1.02 * lower
    # the same check rejects an accountant that credits twice the noise
    if lower > 0.05:
        assert epsilon(released, 2 * z, delta, "pld") < lower


def test_the_check_rejects_one_direction_only() -> None:
    """Negative control: the absent-to-present direction alone is what an accountant without both would report."""
    (present, absent), _ = pairs_of("poisson", 0.1)
    both = spent_at_least("poisson", 0.1, 1.0, 3, 1e-5, 1e-4)
    assert lower_bound(absent, present, 1.0, 3, 1e-5, 1e-4) + 3e-4 < both <= epsilon(sampled("poisson", 2, 20, 3), 1.0, 1e-5)
