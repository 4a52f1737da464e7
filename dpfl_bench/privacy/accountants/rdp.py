"""Rényi divergences (RDP).

gaussian: no sampling, either neighbouring relation, in closed form over real orders. poisson:
add_remove_one, by dp-accounting (Mironov, Talwar & Zhang 2019). fixed: without replacement,
replace_one, by dp-accounting (Wang, Balle & Kasiviswanathan 2019, Theorem 27). A participation:
each of the three under a coin that shows.
"""

from __future__ import annotations

import math

from dpfl_bench.privacy.accountants.accountant import Accountant
from dpfl_bench.privacy.released.composition import Composition


def refusal(composition: Composition) -> str | None:
    """Pure releases have no Gaussian noise."""
    return "it is for Gaussian noise" if composition.mechanism == "pure" else None


def epsilon(composition: Composition, noise: float, delta: float) -> float:
    """Eps at delta. noise: std / sensitivity."""
    from dpfl_bench.privacy.divergences import renyi

    c = composition
    sampled = c.mechanism, c.rate, c.population, c.sample, noise
    if c.rounds:
        return renyi.participation_rdp_epsilon(*sampled, c.share, c.rounds, delta)
    if c.mechanism == "gaussian":  # T releases are one with noise / sqrt(T)
        return renyi.gaussian_rdp_epsilon(1 / (noise / math.sqrt(c.times)), delta)
    return renyi.rdp_epsilon(*sampled, c.times, delta)


ACCOUNTANT = Accountant("rdp", refusal, epsilon)
