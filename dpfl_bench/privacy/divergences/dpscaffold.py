"""`dpscaffold`'s own accountant, to regenerate its tables. Not a guarantee: the epsilon that a run
really has is `accounting.epsilon`'s.

Unit: one record, replace_one; lots without replacement at rate s within clients sampled at rate l;
observer: a third party. Three things are wrong with it:

- It credits each of the K local steps with the whole cohort's noise, sigma_g sqrt(l M), though only
  the sum of a client's K steps is ever averaged. At K = 2, s = 1, alpha = 2, s R = 800, sigma_g =
  60 and 20 clients it claims 2.778e-5 a round where 7.836e-5 is achieved.
- It lets sampling clients amplify, though a client that stays away takes its whole update with it.
  At K = 1, sigma_g = 5, l = .01, T = 1000 and delta = 1e-5 it claims .90 where 3.02 is true.
- Its epsilon does not fall with the noise as it should. The bound of Theorem 9 stays above 0
  without any privacy loss, and infinite noise prints nearly the epsilons of the paper's figures.

| paper | here |
|---|---|
| sigma_g sqrt(l M) | noise |
| s, l | rate, share |
| K, T | pairs (K, rounds) of `rounds` |
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from dpfl_bench.privacy.released.composition import Rounds

_ORDERS = np.arange(2, 101)


def epsilon(noise: float, rate: float, share: float, rounds: Rounds, delta: float) -> float:
    """min over the orders of (sum of K(alpha) over the rounds + log(1/delta)) / (alpha - 1).

    noise: sigma_g sqrt(l M) / sensitivity. rate, share: s, l. rounds: pairs (K, number of rounds).
    """
    spent = sum((count * round_curve(noise, rate, share, k) for k, count in rounds), np.zeros(_ORDERS.size))
    return float(((spent - math.log(delta)) / (_ORDERS - 1)).min())


@lru_cache(maxsize=1024)
def round_curve(noise: float, rate: float, share: float, k: int) -> Any:
    """K(alpha) = (alpha - 1) x RDP of one round at alpha = 2, ..., 100. Gaussian, sampled records,
    k steps, sampled clients.
    """
    gaussian = _ORDERS / 2 / max(noise, 1e-100) ** 2  # floats hold no less noise
    return _sampled(k * _sampled(gaussian, rate) / (_ORDERS - 1), share)


def _sampled(divergences: Any, rate: float) -> Any:
    """Wang, Balle & Kasiviswanathan 2020, Theorem 9, for any mechanism: its RDP at 2, ..., 100 ->
    (alpha - 1) x RDP of its subsample.
    """
    if rate == 1:
        return (_ORDERS - 1) * divergences
    with np.errstate(divide="ignore"):
        pairs = np.minimum(
            math.log(4) + divergences[0] + np.log(-np.expm1(-divergences[0])), math.log(2) + divergences[0]
        )
    logs = np.append(pairs, math.log(2) + (_ORDERS[1:] - 1) * divergences[1:]) + _ORDERS * math.log(rate)
    terms = _log_binomials() + logs
    largest = np.maximum(terms.max(axis=1), 0)
    return largest + np.log(np.exp(-largest) + np.exp(terms - largest[:, None]).sum(axis=1))


@lru_cache(maxsize=1)
def _log_binomials() -> Any:
    """log C(alpha, j), a row for each alpha and a column for each j; -inf for j > alpha."""
    return np.array(
        [[math.log(math.comb(a, j)) if j <= a else -math.inf for j in range(2, 101)] for a in range(2, 101)]
    )
