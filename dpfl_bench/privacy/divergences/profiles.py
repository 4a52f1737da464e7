"""delta at each eps of one sampled Gaussian release.

The pair of distributions behind `fixed` (m of M clients without replacement, replace_one, rate q =
m/M): whichever way the neighbours are ordered, delta(eps) of one release is at most q delta_G(log(1
+ (e^eps - 1)/q)) for eps >= 0, delta_G being the unsampled Gaussian's (Balle, Barthe & Gaboardi
2018, Theorem 10), hence at most 1 - e^eps + e^eps delta(-eps) for eps < 0. A convex profile that
bounds both orders belongs to a dominating pair, and dominating pairs compose adaptively (Zhu, Dong
& Wang 2022, Theorem 10). It halves RDP's eps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def profile_without_replacement(eps: Any, rate: float, z: float) -> Any:
    """delta at each eps of one release under `fixed` (module docstring). eps: (n,)."""
    size = np.abs(eps)
    delta = delta_present(size, rate, z)
    return np.clip(np.where(eps < 0, np.exp(-size) * delta - np.expm1(-size), delta), 0, 1)


def delta_present(eps: Any, rate: float, z: float) -> Any:
    """delta at each eps >= 0 of one sampled release, the first of the pair being the one that may
    hold the unit: (n,).
    """
    inner = np.where(eps < 30, np.log1p(np.expm1(np.minimum(eps, 30)) / rate), eps - math.log(rate))
    return rate * _delta_unsampled(inner, z)


def delta_absent(eps: Any, rate: float, z: float) -> Any:
    """The same with the neighbours in the other order, under poisson: its loss is below log(1/(1 -
    rate)). (n,).
    """
    inner = 1 + np.expm1(-eps) / rate
    within = inner > 0
    return np.where(
        within,
        inner
        * rate
        * np.exp(np.minimum(eps, 700))
        * _delta_unsampled(-np.log(np.where(within, inner, 1)), z),
        0,
    )


def _delta_unsampled(eps: Any, z: float) -> Any:
    from scipy.special import log_ndtr, ndtr

    return np.maximum(ndtr(0.5 / z - eps * z) - np.exp(eps + log_ndtr(-0.5 / z - eps * z)), 0)


def tail(rate: float, z: float) -> float:
    """The privacy loss that one release exceeds with a probability below 1e-23 (ten standard
    deviations).
    """
    loss = 0.5 / z**2 + 10 / z
    if loss < 30:
        return math.log1p(rate * math.expm1(loss))
    large = loss + math.log(rate)
    return max(large, 0.0) + math.log1p(math.exp(-abs(large)))
