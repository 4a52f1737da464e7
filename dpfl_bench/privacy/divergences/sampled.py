"""Epsilon of sampled Gaussian releases by privacy loss distributions (PLD), with dp-accounting.

dp_accounting takes a second to import, so it is imported only when an epsilon is asked for.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from dpfl_bench.privacy.divergences.profiles import profile_without_replacement, tail

# cells of one release's PLD, which takes a second; a composition has eight times as many (8 MB, a
# tenth of a second)
CELLS = 2**17


def pld_epsilon(mechanism: str, rate: float, z: float, times: int, delta: float) -> float:
    """Eps at delta of `times` adaptive releases, pessimistic; inf where a grid cannot hold the
    losses (RDP can).

    mechanism: gaussian (no sampling, either relation), poisson (add_remove_one, both orders of the
    neighbours) or fixed (without replacement, replace_one). z: std / sensitivity.

    Rounding inside the FFT was seen to move delta by 2e-14, to the unsafe side too. Delta is
    therefore lowered by far more than that.
    """
    sure = delta - 1e-12 - 1e-15 * times
    if 0.5 / z**2 + 10 / z > 500 or times > 10**6 or sure <= 0:
        return math.inf
    return _pld_epsilon(mechanism, rate, z, times, sure, _interval(rate, z, times))


def _interval(rate: float, z: float, times: int) -> float:
    """The grid's step, a power of 2: a 64th of one release's standard deviation, unless that takes
    too many cells.
    """
    deviation = rate * math.sqrt(math.expm1(min(1 / z**2, 30.0)))
    mean = min(deviation**2, rate / z**2) / 2 + 1e-12
    spread = times * mean + 20 * math.sqrt(times) * min(deviation, 10 / z)
    step = max(min(1e-3, deviation / 64), tail(rate, z) / CELLS, spread / (8 * CELLS))
    return float(2.0 ** math.floor(math.log2(step)))


@lru_cache(maxsize=256)
def _pld_epsilon(mechanism: str, rate: float, z: float, times: int, delta: float, interval: float) -> float:
    composed = _pld(mechanism, rate, z, interval).self_compose(times)
    return float(composed.get_epsilon_for_delta(delta))


@lru_cache(maxsize=8)
def _pld(mechanism: str, rate: float, z: float, interval: float) -> Any:
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    if mechanism != "fixed":
        return privacy_loss_distribution.from_gaussian_mechanism(
            z, sampling_prob=rate, value_discretization_interval=interval
        )
    cells = math.ceil(tail(rate, z) / interval)
    deltas = profile_without_replacement(np.arange(-cells, cells + 1) * interval, rate, z)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -cells, cells, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)
