"""Privacy loss distributions (PLD), pessimistic, by dp-accounting and by `divergences/`.

gaussian: no sampling, either neighbouring relation. poisson: add_remove_one. fixed: without
replacement, replace_one. A participation: each of the three under a coin that shows.

dp-accounting's `GaussianDpEvent` means std / C in its PLD accountant under REPLACE_ONE, but std /
sensitivity in its RDP accountant, sampled or not. Here PLDs are therefore built for sensitivity 1,
never with REPLACE_ONE.
"""

from __future__ import annotations

import math

from dpfl_bench.privacy.accountants.accountant import Accountant
from dpfl_bench.privacy.released.composition import Composition


def refusal(composition: Composition) -> str | None:
    """Pure releases have no Gaussian noise."""
    return "it is for Gaussian noise" if composition.mechanism == "pure" else None


def epsilon(composition: Composition, noise: float, delta: float) -> float:
    """Eps at delta; inf where a grid cannot hold the losses. noise: std / sensitivity."""
    from dpfl_bench.privacy.divergences import participation, sampled

    c = composition
    if c.rounds:
        return participation.participation_pld_epsilon(c.mechanism, c.rate, noise, c.share, c.rounds, delta)
    if c.mechanism == "gaussian":  # T releases are one with noise / sqrt(T)
        return sampled.pld_epsilon("gaussian", 1.0, noise / math.sqrt(c.times), 1, delta)
    return sampled.pld_epsilon(c.mechanism, c.rate, noise, c.times, delta)


ACCOUNTANT = Accountant("pld", refusal, epsilon)
