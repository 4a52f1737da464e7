"""What eps means to an attacker: how often the best test of two neighbours is right.

Unit and neighbouring relation are those of the eps. A test says which of two neighbouring
federations an observer's view comes from. Its *false alarms*: how often it names the second where
it was the first. Its *power*: how often it names the second where it was the second. Imports
nothing but the standard library.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from dpfl_bench.privacy import refusals
from dpfl_bench.privacy.divergences.gaussian import check_delta

_NORMAL = NormalDist()


def power_of_gaussian(mu: float, alarms: float) -> float:
    """The power of the best test of T unsampled Gaussian releases, exact: Phi(Phi^-1(alarms) + mu).
    It attains every delta(eps) of the profile (Dong, Roth & Su 2022, Theorem 2.7).

    mu: sqrt(T) / noise multiplier.
    """
    _check_alarms(alarms)
    return 1.0 if mu == math.inf else _NORMAL.cdf(_NORMAL.inv_cdf(alarms) + mu)


def power_at_most(eps: float, delta: float, alarms: float) -> float:
    """No test is more powerful, whatever the mechanism: min(e^eps alarms + delta, 1 - e^-eps (1 -
    delta - alarms)) (Kairouz, Oh & Viswanath 2015, Theorem 2.1).
    """
    check_delta(delta)
    _check_alarms(alarms)
    if eps > 700:
        return 1.0
    return min(1.0, math.exp(eps) * alarms + delta, 1 - math.exp(-eps) * max(0.0, 1 - delta - alarms))


def _check_alarms(alarms: float) -> None:
    if not 0 < alarms < 1:
        raise refusals.count_out_of_range("alarms", alarms, "a rate of false alarms, 0 < alarms < 1")
