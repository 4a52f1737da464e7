"""Privacy loss distributions of a participation, composed in Fourier space.

A participation's round (`released.composition.Composition`): the observer sees the coin, which is the same
between neighbours, and after it k releases or none. So the privacy loss of the round is 0 with
probability 1 - share and that of k releases with probability share: its distribution is the mixture
(1 - share) delta_0 + share PLD^k, for either order of the neighbours. Independent of the past, it
composes adaptively.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np

from dpfl_bench.privacy.divergences.sampled import CELLS
from dpfl_bench.privacy.divergences.profiles import delta_absent, delta_present, tail
from dpfl_bench.privacy.divergences.losses import eps_of_losses
from dpfl_bench.privacy.released.composition import Rounds

_CUT = 1e-15  # probability beyond the window that a participation's losses are composed in


def participation_pld_epsilon(
    mechanism: str, rate: float, z: float, share: float, rounds: Rounds, delta: float
) -> float:
    """Eps of a participation by privacy loss distributions, pessimistic; inf where a grid cannot
    hold it (use rdp there).

    gaussian: either relation, no sampling of records. poisson: add_remove_one, both directions.
    fixed: replace_one, without replacement. Rounding inside the FFT was seen to move delta by
    2.5e-16 for every expected release: delta is lowered by far more.
    """
    counts: Counter[int] = Counter()
    for k, count in rounds:
        counts[k] += count
    expected = share * sum(k * count for k, count in counts.items())
    sure = delta - 1e-12 - 2e-15 * expected
    if 0.5 / z**2 + 10 / z > 500 or expected > 10**7 or sure <= 0:
        return math.inf
    orders = ("present", "absent") if mechanism == "poisson" else ("either",)
    rate, z = (
        1.0 if mechanism == "gaussian" else rate,
        min(z, 1e7),
    )  # less noise than 1e7 is pessimistic, and all that floats resolve
    return max(_participation(order, rate, z, share, tuple(sorted(counts.items())), sure) for order in orders)


@lru_cache(maxsize=512)
def _participation(order: str, rate: float, z: float, share: float, counts: Rounds, delta: float) -> float:
    """The rounds' mixtures are multiplied in Fourier space, on a window that holds all but _CUT of
    the composed losses.
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
    """(losses of one release, their grid's step, the window's first cell, its cells): a 256th of
    the release's standard deviation, half or a quarter of that where it spares cells, less where
    there would be too many.
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
    dots: pessimistic at every eps.

    Negative losses are those of the other order of the pair, times e^loss: nothing cancels there.
    Replaces what lies between two points of the grid by these points, so that both distributions
    keep their mass.
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
    """Ends of what the composed loss leaves with a probability of at most _CUT on either side
    (Chernoff).
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
