"""Releases that are pure eps_0-DP each: their optimal composition and their Rényi divergences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpfl_bench.privacy.divergences.losses import eps_of_losses
from dpfl_bench.privacy.divergences.renyi import CLOSED_ORDERS
from dpfl_bench.privacy.released.composition import Rounds


def pure_epsilon(pure: float, times: int, delta: float) -> float:
    """Eps at delta of `times` adaptive releases that are pure `pure`-DP each, either relation: the
    optimal composition theorem (Kairouz, Oh & Viswanath 2015).

    No such release is worse than randomised response, whose losses are +pure and -pure. Exact,
    rounded up by 1e-9 of itself, and never above times * pure.
    """
    heads = np.arange(times // 2 + 1)
    # log of the number of ways to have `heads` losses of -pure
    log_counts = np.append(0, np.cumsum(np.log((times - heads[:-1]) / (heads[:-1] + 1))))
    logs = log_counts - heads * pure - times * math.log1p(math.exp(-pure))
    eps = eps_of_losses(((times - 2 * heads) * pure)[::-1], np.exp(logs)[::-1], 0.0, delta)
    return min(eps * (1 + 1e-9), times * pure)


def participation_pure_epsilon(pure: float, share: float, rounds: Rounds, delta: float) -> float:
    """Eps at delta of a participation whose releases are pure `pure`-DP each, either relation,
    rounded up. Basic composition where the participation is too long. rounds: pairs (releases of
    one round, number of such rounds).

    As in `pure_epsilon` no release is worse than randomised response. Its losses are +pure and
    -pure, so their sums are whole multiples of pure.
    """
    most = sum(k * count for k, count in rounds)
    sure = delta - 1e-12
    if sure <= 0 or most > 2**20:
        return most * pure
    cells = 1 << (2 * most).bit_length()  # at least 2 most + 1: nothing wraps around
    losses, down = np.zeros(cells), math.exp(-pure) / (1 + math.exp(-pure))
    losses[1], losses[-1] = 1 - down, down
    release, composed = np.fft.rfft(losses), np.ones(cells // 2 + 1, complex)
    for k, count in rounds:
        composed *= (1 - share + share * release**k) ** count
    probabilities = np.fft.fftshift(np.fft.irfft(composed, cells))
    eps = eps_of_losses((np.arange(cells) - cells // 2) * pure, probabilities, 0.0, sure)
    return min(eps * (1 + 1e-9), most * pure)


def pure_rdp(pure: float, times: int) -> tuple[Any, Any]:
    """(orders, Rényi divergences) of `times` adaptive releases that are pure `pure`-DP each, either
    relation, (n,) both.

    Every pair that is pure-DP is a post-processing of randomised response (Kairouz, Oh & Viswanath
    2015), and post-processing raises no divergence. So exp((a - 1) D_a) is at most (e^(a pure) +
    e^((1 - a) pure)) / (1 + e^pure), with equality for randomised response.
    """
    excess = CLOSED_ORDERS - 1
    logs = np.logaddexp(CLOSED_ORDERS * pure, -excess * pure) - np.logaddexp(0, pure)
    return CLOSED_ORDERS, times * np.minimum(logs / excess, pure)
