"""The Gaussian mechanism without sampling, in closed form.

Unit: client or record; either neighbouring relation, because mu is sensitivity / std. T releases
of noise multiplier z are one release with mu = sqrt(T) / z. Imports nothing but the standard
library.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dpfl_bench.privacy import refusals

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_GAUSS_LEGENDRE = (  # 8 points: (node, weight), each standing for +node and -node
    (0.1834346424956498, 0.3626837833783620),
    (0.5255324099163290, 0.3137066458778873),
    (0.7966664774136267, 0.2223810344533745),
    (0.9602898564975363, 0.1012285362903763),
)


def _mills(x: float) -> tuple[float, float]:
    """R(x) = (1 - Phi(x)) / phi(x) and S(x) = 1 - x R(x) = -R'(x) > 0, both to about 1e-14, for x
    >= -1.
    """
    if x < 3:
        ratio = math.exp(x * x / 2 + _LOG_SQRT_2PI) * math.erfc(x / math.sqrt(2)) / 2
        return ratio, 1 - x * ratio
    tail = 0.0
    for k in range(120, 1, -1):  # R = 1/(x + 1/(x + 2/(x + 3/...)))
        tail = k / (x + tail)
    inner = 1 / (x + tail)
    return 1 / (x + inner), inner / (x + inner)


def _log_delta(mu: float, eps: float) -> float:
    """log of delta(eps) = Phi(-x) - e^eps Phi(-x - mu) = phi(x) (R(x) - R(x + mu)), where x =
    eps/mu - mu/2 and R is Mills' ratio.
    """
    x = eps / mu - mu / 2
    if x < 0 and mu >= 0.5:  # the first term is at least 1/2, so nothing cancels
        return math.log(
            math.erfc(x / math.sqrt(2)) / 2 - math.exp(-x * x / 2 - _LOG_SQRT_2PI) * _mills(x + mu)[0]
        )
    if mu < max(0.5, x / 10):  # the integral of S > 0 over [x, x + mu]: no cancellation
        points = ((w, x + mu / 2 * (1 + sign * n)) for n, w in _GAUSS_LEGENDRE for sign in (-1, 1))
        gap = mu / 2 * sum(w * _mills(point)[1] for w, point in points)
    else:
        gap = _mills(x)[0] - _mills(x + mu)[0]
    return -x * x / 2 - _LOG_SQRT_2PI + math.log(gap)


def delta_of_gaussian(mu: float, eps: float) -> float:
    """delta(eps) of T unsampled Gaussian releases, exact.

    mu: sqrt(T) / noise multiplier, >= 0. Returns a number in [0, 1].
    """
    if mu == 0 or eps == math.inf:
        return 0.0
    return math.exp(_log_delta(mu, eps)) if mu < math.inf else 1.0


@lru_cache(maxsize=1024)  # a run asks for each observer, and again with each row
def eps_of_gaussian(mu: float, delta: float) -> float:
    """The smallest eps with `delta_of_gaussian(mu, eps)` <= delta, rounded up by at most 2e-12 of
    itself. mu: sqrt(T) / noise multiplier.
    """
    check_delta(delta)
    if mu == 0 or mu == math.inf:
        return mu
    target = math.log(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(-2 * target)  # from Phi(-x) <= exp(-x^2/2)
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _log_delta(mu, middle) <= target else (middle, high)
    return high * (1 + 1e-12)


@lru_cache(maxsize=1000)
def mu_for(eps: float, delta: float) -> float:
    """The largest mu = sqrt(T) / noise multiplier with `eps_of_gaussian(mu, delta)` <= eps, rounded
    down by at most 4e-12 of itself.
    """
    check_delta(delta)
    if not eps >= 0:
        raise refusals.eps_out_of_range(eps, zero=True)
    if eps == math.inf:
        return math.inf
    target = math.log(delta)
    low = eps / (math.sqrt(eps - 2 * target) + math.sqrt(-2 * target)) if eps > 0 else delta
    high = 2 * low
    while _log_delta(high, eps) <= target:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _log_delta(middle, eps) <= target else (low, middle)
    return low * (1 - 3e-12)


def check_delta(delta: float) -> None:
    """PrivacyError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise refusals.delta_out_of_range(delta)
