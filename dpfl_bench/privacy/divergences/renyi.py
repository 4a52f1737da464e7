"""Rényi divergences of Gaussian releases and of participations, and the epsilon that they give.

Unit: client or record. z is std / sensitivity of one release. Neighbouring relation: gaussian (no
sampling) either one; poisson add_remove_one; fixed (without replacement) replace_one.

dp_accounting takes a second to import, so it is imported only when a sampled curve is asked for.
"""

from __future__ import annotations

import logging
import math
from functools import lru_cache
from typing import Any

import numpy as np

from dpfl_bench.privacy.released.composition import Rounds

_REAL_ORDERS = [1.01, 1.02, 1.05] + [1 + k / 20 for k in range(2, 20)] + [2 + k / 10 for k in range(80)]
_WHOLE_ORDERS = [*range(2, 33), *range(36, 65, 4), 72, 80, 96, 112, 128, 160, 192, 224, 256]
_LARGE_ORDERS = [320, 384, 512, 640, 768, 1024, 1536, 2048]
CLOSED_ORDERS = 1 + 2.0 ** (np.arange(-48, 161) / 8)  # 1 + 1/64 to 1 + 2^20: for closed formulas


def rdp_epsilon(
    mechanism: str, rate: float, population: int, sample: int, z: float, times: int, delta: float
) -> float:
    """Eps at delta of `times` adaptive releases, by dp-accounting's RDP. mechanism: poisson (at
    `rate`) or fixed (`sample` of `population`).
    """
    from dp_accounting.rdp import rdp_privacy_accountant

    orders, curve = sampled_rdp(mechanism, rate, population, sample, z, times)
    return float(rdp_privacy_accountant.compute_epsilon(orders, curve, delta)[0])


def participation_rdp_epsilon(
    mechanism: str,
    rate: float,
    population: int,
    sample: int,
    z: float,
    share: float,
    rounds: Rounds,
    delta: float,
) -> float:
    """Eps at delta of a participation. mechanism: gaussian, poisson or fixed. rounds: pairs
    (releases of one round, number of such rounds).
    """
    from dp_accounting.rdp import rdp_privacy_accountant

    orders, curve = participation_rdp(mechanism, rate, population, sample, z, share, rounds)
    return float(rdp_privacy_accountant.compute_epsilon(orders, curve, delta)[0])


def participation_rdp(
    mechanism: str, rate: float, population: int, sample: int, z: float, share: float, rounds: Rounds
) -> tuple[Any, Any]:
    """(orders, Rényi divergences) of a participation, (n,) both."""
    return mixed_rdp(*_rdp(mechanism, rate, population, sample, z), share, rounds)


def mixed_rdp(orders: Any, curve: Any, share: float, rounds: Rounds) -> tuple[Any, Any]:
    """(orders, Rényi divergences) of a participation, from the `curve` of one release at `orders`,
    (n,) all.

    exp((a - 1) D_a) of a round is 1 - share + share exp((a - 1) k D_a of one release).
    """
    excess = np.asarray(orders) - 1
    with np.errstate(divide="ignore"):
        absent = np.log1p(-share)
    return orders, sum(
        count * np.logaddexp(absent, math.log(share) + excess * k * curve) / excess for k, count in rounds
    )


def sampled_rdp(
    mechanism: str, rate: float, population: int, sample: int, z: float, times: int
) -> tuple[Any, Any]:
    """(orders, Rényi divergences) of `times` adaptive releases, (n,) both. mechanism: poisson (at
    `rate`) or fixed (`sample` of `population`).
    """
    orders, curve = _rdp(mechanism, rate, population, sample, z)
    return orders, times * curve


def gaussian_rdp(mu: float) -> tuple[Any, Any]:
    """(orders, Rényi divergences) of unsampled Gaussians, exact, (n,) both. mu: sqrt(T) / z."""
    return CLOSED_ORDERS, CLOSED_ORDERS * mu * mu / 2


@lru_cache(maxsize=64)
def _rdp(mechanism: str, rate: float, population: int, sample: int, z: float) -> tuple[Any, Any]:
    """(orders, Rényi divergence of one release at each)."""
    if mechanism == "gaussian":
        real = _REAL_ORDERS + _WHOLE_ORDERS[9:] + _LARGE_ORDERS
        return real, np.array(real) / (2 * z**2)
    import dp_accounting as dpa

    release = dpa.GaussianDpEvent(z)
    event: dpa.DpEvent
    if mechanism == "fixed":
        # whole orders only: between them Theorem 27's curve is interpolated
        orders, relation = _WHOLE_ORDERS + _LARGE_ORDERS, dpa.NeighboringRelation.REPLACE_ONE
        event = dpa.SampledWithoutReplacementDpEvent(population, sample, release)
    else:
        orders, relation = (
            _REAL_ORDERS + _WHOLE_ORDERS[9:] + _LARGE_ORDERS,
            dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
        )
        event = dpa.PoissonSampledDpEvent(rate, release)
    accountant = dpa.rdp.RdpAccountant(orders, relation)
    absl = logging.getLogger("absl")
    level = absl.level
    absl.setLevel(logging.ERROR)  # it warns of each small order left out: that costs tightness only
    try:
        accountant.compose(event)
    finally:
        absl.setLevel(level)
    return accountant.orders, accountant.rdp


def gaussian_rdp_epsilon(mu: float, delta: float) -> float:
    """Eps at delta of unsampled Gaussian releases by RDP over real orders: alpha mu^2/2 at order
    alpha. mu: sqrt(T) / z. Needs no dp_accounting.
    """
    if delta**2 > -math.expm1(-mu * mu / 2):  # total variation <= sqrt(1 - exp(-KL))
        return 0.0
    centre = math.sqrt(2 * math.log(1 / delta)) / mu  # the best order - 1, up to a factor
    excesses = (centre * 2 ** (k / 64) for k in range(-256, 257))
    return max(0.0, min(_converted((1 + a) * mu * mu / 2, a, delta) for a in excesses))


def _converted(divergence: float, excess: float, delta: float) -> float:
    """Eps from a Rényi divergence of order 1 + excess (Canonne, Kamath & Steinke 2020, Proposition
    12).
    """
    return divergence + math.log(excess / (1 + excess)) - (math.log(delta) + math.log1p(excess)) / excess
