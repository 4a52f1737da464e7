"""Privacy profiles: delta at each eps of one sampled Gaussian release of noise multiplier z.

Unit: client or record. `poisson` is for add_remove_one, where the two orders of the neighbours
differ. `fixed` (m of M clients or records without replacement, rate q = m/M) is for replace_one. No
sampling is rate = 1, for either relation.

The pair of distributions behind `fixed`: whichever way the neighbours are ordered, delta(eps) of
one release is at most q delta_G(log(1 + (e^eps - 1)/q)) for eps >= 0, where delta_G is the
unsampled Gaussian's (Balle, Barthe & Gaboardi 2018, Theorem 10). Hence delta(eps) is at most 1 -
e^eps + e^eps delta(-eps) for eps < 0. A convex profile that bounds both orders belongs to a
dominating pair, and dominating pairs compose adaptively (Zhu, Dong & Wang 2022, Theorem 10). The
eps by this pair is half of RDP's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def profile_without_replacement(eps: Any, rate: float, z: float) -> Any:
    """delta of one release under `fixed`, replace_one. eps: (n,), any sign -> (n,)."""
    size = np.abs(eps)
    delta = delta_present(size, rate, z)
    return np.clip(np.where(eps < 0, np.exp(-size) * delta - np.expm1(-size), delta), 0, 1)


def delta_present(eps: Any, rate: float, z: float) -> Any:
    """delta of one sampled release, the unit being there in the first distribution of the pair and
    absent in the second. eps: (n,), >= 0 -> (n,).
    """
    inner = np.where(eps < 30, np.log1p(np.expm1(np.minimum(eps, 30)) / rate), eps - math.log(rate))
    return rate * _delta_unsampled(inner, z)


def delta_absent(eps: Any, rate: float, z: float) -> Any:
    """delta of one poisson-sampled release, the unit being absent in the first distribution of the
    pair. The privacy loss is below log(1/(1 - rate)). eps: (n,), >= 0 -> (n,).
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
    """delta of one unsampled Gaussian release, (n,) -> (n,)."""
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
