"""Closed forms, where nothing is tighter: unsampled Gaussians, and the optimal composition of pure
releases.

Either neighbouring relation, client or record. Pure releases: any sampling, also over coins that
show (`rounds`).
"""

from __future__ import annotations

import math

from dpfl_bench.privacy.accountants.accountant import Accountant
from dpfl_bench.privacy.divergences.gaussian import eps_of_gaussian, mu_for
from dpfl_bench.privacy.released.composition import Composition


def refusal(composition: Composition) -> str | None:
    """Sampled Gaussians and participations have no closed form."""
    if composition.mechanism == "pure" or (composition.mechanism == "gaussian" and not composition.rounds):
        return None
    return "there is a closed form for unsampled Gaussian and for pure releases alone"


def epsilon(composition: Composition, noise: float, delta: float) -> float:
    """Eps at delta. noise: std / sensitivity, or 1/eps_0."""
    c = composition
    if c.mechanism == "gaussian":
        return eps_of_gaussian(math.sqrt(c.times) / noise, delta)
    from dpfl_bench.privacy.divergences import pure

    if c.rounds:
        return pure.participation_pure_epsilon(1 / noise, c.share, c.rounds, delta)
    return pure.pure_epsilon(1 / noise, c.times, delta)


def least_noise(composition: Composition, eps: float, delta: float) -> float | None:
    """The noise multiplier, companions included, for eps at delta; None for pure releases."""
    if composition.mechanism == "pure":
        return None
    return math.sqrt(composition.times) / (mu_for(eps, delta) * composition.scale)


ACCOUNTANT = Accountant("exact", refusal, epsilon, auto="alone", least_noise=least_noise, instant=True)
