"""Basic composition: pure releases add up. Either neighbouring relation, any sampling, delta =
0.
"""

from __future__ import annotations

from dpfl_bench.privacy.accountants.accountant import Accountant
from dpfl_bench.privacy.released.composition import Composition


def refusal(composition: Composition) -> str | None:
    """Gaussian releases are not pure."""
    return None if composition.mechanism == "pure" else "it adds up the eps of pure releases"


def epsilon(composition: Composition, noise: float, delta: float) -> float:
    """times * eps_0, whatever delta. noise: 1/eps_0."""
    return composition.times * (1 / noise)


ACCOUNTANT = Accountant("basic", refusal, epsilon)
