"""Epsilon of a participation by privacy loss distributions, composed in Fourier space.

In a round of a participation (`released.composition.Composition`) the observer sees the coin, which
is the same between neighbours, and then k releases or none. So the privacy loss of the round is 0
with probability 1 - share, and that of k releases with probability share. Its distribution is the
mixture (1 - share) delta_0 + share PLD^k, for either order of the neighbours. The coins are
independent of the past, so the rounds compose adaptively.

One pass over Fourier space does it. dp-accounting's `compute_mixture`, to which the tests hold the
result, takes a composition for every length of round.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np

from dpfl_bench.privacy.divergences.losses import eps_of_losses
from dpfl_bench.privacy.divergences.profiles import delta_absent, delta_present, tail
from dpfl_bench.privacy.divergences.sampled import CELLS
from dpfl_bench.privacy.released.composition import Rounds

_CUT = 1e-15  # the most probability that composed losses may have on either side of the window


def participation_pld_epsilon(
    mechanism: str, rate: float, z: float, share: float, rounds: Rounds, delta: float
) -> float:
    """Eps at delta of a participation, pessimistic; inf where a grid cannot hold the losses (RDP
    can).

    mechanism: gaussian (no sampling, either relation), poisson (add_remove_one, both orders of the
    neighbours) or fixed (without replacement, replace_one). z: std / sensitivity of one release.
    share: the probability of a coin. rounds: pairs (releases of one round, number of such rounds).

    Rounding inside the FFT was seen to move delta by 2.5e-16 for every expected release. Delta is
    therefore lowered by far more than that.
    """
    counts: Counter[int] = Counter()
    for k, count in rounds:
        counts[k] += count
    expected = share * sum(k * count for k, count in counts.items())
    sure = delta - 1e-12 - 2e-15 * expected
    if 0.5 / z**2 + 10 / z > 500 or expected > 10**7 or sure <= 0:
        return math.inf
    orders = ("present", "absent") if mechanism == "poisson" else ("either",)
    rate = 1.0 if mechanism == "gaussian" else rate
    z = min(z, 1e7)  # pessimistic: less noise than there is; floats resolve no more
    return max(_participation(order, rate, z, share, tuple(sorted(counts.items())), sure) for order in orders)


@lru_cache(maxsize=512)
def _participation(order: str, rate: float, z: float, share: float, counts: Rounds, delta: float) -> float:
    """Multiply the rounds' mixtures in Fourier space, on a window that holds all but _CUT of the
    composed losses.
    """
    (losses, pmf, lost), step, start, cells = _grid(order, rate, z, share, counts)
    where = np.round(losses / step).astype(np.int64) % cells
    release = np.fft.rfft(np.bincount(where, pmf, cells))
    composed, power, at, log_kept = np.ones_like(release), np.ones_like(release), 0, 0.0
    for k, count in counts:
        power, at = power * release ** (k - at), k
        mixture = 1 - share + share * power
        composed *= mixture if count == 1 else mixture**count
        log_kept += count * math.log1p(share * math.expm1(k * math.log1p(-lost)))
    probabilities = np.roll(np.fft.irfft(composed, cells), -(start % cells))
    return eps_of_losses((start + np.arange(cells)) * step, probabilities, _CUT - math.expm1(log_kept), delta)


def _grid(
    order: str, rate: float, z: float, share: float, counts: Rounds
) -> tuple[tuple[Any, Any, float], float, int, int]:
    """(what `_release` says of one release, the grid's step, the window's first cell, its cells).

    The step is a 256th of the release's standard deviation. It is doubled until the window has few
    enough cells.
    """
    deviation = rate * math.sqrt(math.expm1(min(1 / z**2, 30.0)))
    step = 2.0 ** math.floor(math.log2(max(min(1e-3, deviation / 256), tail(rate, z) / CELLS)))
    while True:
        release = _release(order, rate, z, step)
        first, last = _window(*release[:2], share, counts)
        cells = 1 << math.ceil((last - first) / step).bit_length()
        if cells <= (2 if step < deviation / 64 else 8) * CELLS:
            return release, step, math.floor(first / step), cells
        step *= 2


@lru_cache(maxsize=8)
def _release(order: str, rate: float, z: float, step: float) -> tuple[Any, Any, float]:
    """(losses, probabilities, probability of an infinite loss) of one release, by connecting the
    dots, which is pessimistic at every eps.

    Probability between two points of the grid moves to these points, in a way that both
    distributions of the pair keep their mass. The probabilities of negative losses are those of the
    other order of the pair times e^loss, so nothing cancels.
    """
    eps = np.arange(math.ceil(tail(rate, z) / step) + 1) * step
    profile = {"present": (delta_present, delta_absent), "absent": (delta_absent, delta_present)}
    above, below = (f(eps, rate, z) for f in profile.get(order, (delta_present, delta_present)))
    up, down = _dots(above, step), _dots(below, step) * np.exp(-eps[1:])
    middle = max(0.0, 1 - up.sum() - down.sum() - above[-1])
    return np.concatenate([-eps[:0:-1], eps]), np.concatenate([down[::-1], [middle], up]), float(above[-1])


def _dots(deltas: Any, step: float) -> Any:
    """Probabilities of the losses step, 2 step, ... from delta at eps = 0, step, 2 step, ...: (n +
    1,) -> (n,).
    """
    slopes = np.diff(np.minimum.accumulate(deltas))
    inside = (slopes[1:] - slopes[:-1] * math.exp(step)) / math.expm1(step)
    return np.maximum(np.append(inside, slopes[-1] / math.expm1(-step)), 0)


def _window(losses: Any, pmf: Any, share: float, counts: Rounds) -> tuple[float, float]:
    """(first, last) loss of the window: the composed loss is outside with a probability of at most
    _CUT on either side (Chernoff).
    """
    mean = float(losses @ pmf)
    variance = float((losses - mean) ** 2 @ pmf)
    spread = math.sqrt(
        sum(count * share * (k * variance + (1 - share) * (k * mean) ** 2) for k, count in counts)
    )
    with np.errstate(divide="ignore"):
        log_pmf, log_absent = np.log(pmf), float(np.log1p(-share))

    def bound(order: float) -> float:
        terms = log_pmf + order * losses
        log_moment = terms.max() + math.log(np.exp(terms - terms.max()).sum())
        total = sum(count * np.logaddexp(log_absent, math.log(share) + k * log_moment) for k, count in counts)
        return float(total - math.log(_CUT)) / order

    orders = [8 / spread * 2.0**power for power in (-4, -3, -2, -1, -0.5, 0, 0.5, 1)]
    return max(bound(-order) for order in orders), min(bound(order) for order in orders)
