"""The two numerical accountants, PLD and RDP. Unit: one client; noise multipliers: std / sensitivity (`accounting.py`).

The pair of distributions behind `fixed` (m of M clients without replacement, replace_one, rate q = m/M): whichever way the
neighbours are ordered, delta(eps) of one release is at most q delta_G(log(1 + (e^eps - 1)/q)) for eps >= 0, delta_G being
the unsampled Gaussian's (Balle, Barthe & Gaboardi 2018, Theorem 10), hence at most 1 - e^eps + e^eps delta(-eps) for
eps < 0. A convex profile that bounds both orders belongs to a dominating pair, and dominating pairs compose adaptively (Zhu,
Dong & Wang 2022, Theorem 10). It halves RDP's eps.

dp_accounting takes a second to import, so it is imported in here only when asked for.
"""

from __future__ import annotations

import logging
import math
from functools import lru_cache
from typing import Any

import numpy as np

_REAL_ORDERS = [1.01, 1.02, 1.05] + [1 + k / 20 for k in range(2, 20)] + [2 + k / 10 for k in range(80)]
_WHOLE_ORDERS = [*range(2, 33), *range(36, 65, 4), 72, 80, 96, 112, 128, 160, 192, 224, 256]
_LARGE_ORDERS = [320, 384, 512, 640, 768, 1024, 1536, 2048]
_CELLS = 2**17  # of one release's PLD (a second to make), an eighth of its composition's (8 MB, a tenth of a second)


def pld_epsilon(mechanism: str, rate: float, z: float, times: int, delta: float) -> float:
    """Eps by privacy loss distributions, pessimistic; inf where a grid cannot hold it (use rdp there).

    gaussian: either relation, no sampling. poisson: add_remove_one, both directions. fixed: replace_one, without replacement.
    Rounding inside its FFT was seen to move delta by 2e-14, to the unsafe side too: delta is lowered by far more than that.
    """
    sure = delta - 1e-12 - 1e-15 * times
    if 0.5 / z**2 + 10 / z > 500 or times > 10**6 or sure <= 0:
        return math.inf
    return _pld_epsilon(mechanism, rate, z, times, sure, _interval(rate, z, times))


def _interval(rate: float, z: float, times: int) -> float:
    """The grid's step, a power of 2: a 64th of one release's standard deviation, unless that takes too many cells."""
    deviation = rate * math.sqrt(math.expm1(min(1 / z**2, 30.0)))
    mean = min(deviation**2, rate / z**2) / 2 + 1e-12
    spread = times * mean + 20 * math.sqrt(times) * min(deviation, 10 / z)
    step = max(min(1e-3, deviation / 64), _tail(rate, z) / _CELLS, spread / (8 * _CELLS))
    return float(2.0 ** math.floor(math.log2(step)))


def _tail(rate: float, z: float) -> float:
    """The privacy loss that one release exceeds with a probability below 1e-23 (ten standard deviations)."""
    loss = 0.5 / z**2 + 10 / z
    if loss < 30:
        return math.log1p(rate * math.expm1(loss))
    large = loss + math.log(rate)
    return max(large, 0.0) + math.log1p(math.exp(-abs(large)))


@lru_cache(maxsize=256)
def _pld_epsilon(mechanism: str, rate: float, z: float, times: int, delta: float, interval: float) -> float:
    composed = _pld(mechanism, rate, z, interval).self_compose(times)
    return float(composed.get_epsilon_for_delta(delta))


@lru_cache(maxsize=8)
def _pld(mechanism: str, rate: float, z: float, interval: float) -> Any:
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    if mechanism != "fixed":
        return privacy_loss_distribution.from_gaussian_mechanism(z, sampling_prob=rate, value_discretization_interval=interval)
    cells = math.ceil(_tail(rate, z) / interval)
    deltas = _profile_without_replacement(np.arange(-cells, cells + 1) * interval, rate, z)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -cells, cells, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def _profile_without_replacement(eps: Any, rate: float, z: float) -> Any:
    """delta at each eps of one release under `fixed` (module docstring). eps: (n,)."""
    from scipy.special import log_ndtr, ndtr

    size = np.abs(eps)
    inner = np.where(size < 30, np.log1p(np.expm1(np.minimum(size, 30)) / rate), size - math.log(rate))
    upper, lower = 0.5 / z - inner * z, -0.5 / z - inner * z
    delta = rate * np.maximum(ndtr(upper) - np.exp(inner + log_ndtr(lower)), 0)
    return np.clip(np.where(eps < 0, np.exp(-size) * delta - np.expm1(-size), delta), 0, 1)


def rdp_epsilon(mechanism: str, population: int, sample: int, z: float, times: int, delta: float) -> float:
    """Eps by dp-accounting's RDP. poisson: add_remove_one. fixed: replace_one, without replacement."""
    from dp_accounting.rdp import rdp_privacy_accountant

    orders, curve = _rdp(mechanism, population, sample, z)
    return float(rdp_privacy_accountant.compute_epsilon(orders, times * curve, delta)[0])


@lru_cache(maxsize=64)
def _rdp(mechanism: str, population: int, sample: int, z: float) -> tuple[Any, Any]:
    """(orders, Rényi divergence of one release at each)."""
    import dp_accounting as dpa

    release = dpa.GaussianDpEvent(z)
    event: dpa.DpEvent
    if mechanism == "fixed":  # between whole orders Theorem 27's curve is interpolated: real orders add nothing
        orders, relation = _WHOLE_ORDERS + _LARGE_ORDERS, dpa.NeighboringRelation.REPLACE_ONE
        event = dpa.SampledWithoutReplacementDpEvent(population, sample, release)
    else:
        orders, relation = _REAL_ORDERS + _WHOLE_ORDERS[9:] + _LARGE_ORDERS, dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
        event = dpa.PoissonSampledDpEvent(sample / population, release)
    accountant = dpa.rdp.RdpAccountant(orders, relation)
    absl = logging.getLogger("absl")
    level = absl.level
    absl.setLevel(logging.ERROR)  # it warns of each small order it leaves out, which costs tightness, not validity
    try:
        accountant.compose(event)
    finally:
        absl.setLevel(level)
    return accountant.orders, accountant.rdp


def gaussian_rdp_epsilon(mu: float, delta: float) -> float:
    """Eps of an unsampled Gaussian by RDP, alpha mu^2/2 at order alpha (either relation), over real orders; imports nothing."""
    if delta**2 > -math.expm1(-mu * mu / 2):  # total variation <= sqrt(1 - exp(-KL))
        return 0.0
    centre = math.sqrt(2 * math.log(1 / delta)) / mu  # the best order - 1, up to a factor
    excesses = (centre * 2 ** (k / 64) for k in range(-256, 257))
    return max(0.0, min(_converted((1 + a) * mu * mu / 2, a, delta) for a in excesses))


def _converted(divergence: float, excess: float, delta: float) -> float:
    """Eps from a Rényi divergence of order 1 + excess (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    return divergence + math.log(excess / (1 + excess)) - (math.log(delta) + math.log1p(excess)) / excess
