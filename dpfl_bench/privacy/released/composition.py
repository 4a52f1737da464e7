"""Adaptive releases of one mechanism, and their algebra: what an accountant is asked about."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpfl_bench.privacy import refusals

Mechanism = Literal["gaussian", "poisson", "fixed", "pure"]
Rounds = tuple[tuple[int, int], ...]  # in order: (releases of one round, rounds with that many)


@dataclass(frozen=True)
class Companion:
    """A further Gaussian release that goes with each main release of noise multiplier z. Its own
    noise multiplier is value * z (kind "times") or value * z^2 (kind "squared").
    """

    name: str
    kind: Literal["times", "squared"]
    value: float

    def __post_init__(self) -> None:
        refusals.check_known(kind=(self.kind, ("times", "squared")))
        if not 0 < self.value < math.inf:
            raise refusals.companion_without_value(self.name, self.value)

    def noise_multiplier(self, z: float) -> float:
        """Of the companion, where the main release has z."""
        return self.value * (z if self.kind == "times" else z * z)


@dataclass(frozen=True)
class Composition:
    """`times` adaptive releases of one mechanism. Same unit and neighbouring relation as the
    releases that it describes. `scale` multiplies the noise.

    mechanism:

    - gaussian: no sampling, either neighbouring relation.
    - poisson: sampled at `rate`, add_remove_one.
    - fixed: `sample` of `population` without replacement, replace_one.
    - pure: every release is eps_0-DP, whatever the sampling. The noise multiplier is 1/eps_0;
      `scale` and `companions` do not change it.

    With `rounds` the composition is a *participation*. In each round a coin shows heads with
    probability `share`, independently of everything else, and the observer sees the coin. After
    heads k releases follow, after tails none. `times` counts the releases of all rounds, as if
    every coin showed heads.
    """

    mechanism: Mechanism
    times: int
    rate: float = 1.0
    population: int = 1
    sample: int = 1
    scale: float = 1.0
    companions: tuple[Companion, ...] = ()
    share: float = 1.0
    rounds: Rounds = ()
    cohort_size: int = 1  # clients of one round: for the paper's accountant
    client_share: float | None = None  # l, which the paper's accountant counts with in place of `share`

    def __post_init__(self) -> None:
        if self.rounds and not 0 < self.share <= 1:
            raise refusals.count_out_of_range("share", self.share, "a participation with 0 < share <= 1")
        if self.rounds and self.times != sum(k * count for k, count in self.rounds):
            raise refusals.count_out_of_range(
                "times", self.times, f"the releases of all rounds={self.rounds}"
            )

    def joint(self, z: float) -> float:
        """The noise multiplier of main release and companions together, as one Gaussian: 1/joint^2
        = 1/z^2 + sum of 1/companion(z)^2.

        Main release and companions of a round are of the same cohort. Divide each coordinate by its
        own noise: the result is one standard Gaussian vector. A client (or record) of the cohort
        moves the mean of that vector by at most 1/joint, whoever else is in the cohort. The
        theorems on sampled Gaussians need no more than this bound, so they hold for the vector.
        Releases that are sampled separately would need a coin each.
        """
        noises = [z, *(c.noise_multiplier(z) for c in self.companions)]
        if self.mechanism == "pure" or not self.companions or z == math.inf:
            return z
        return 0.0 if min(noises) == 0 else 1 / math.hypot(*(1 / noise for noise in noises))

    def apart(self, joint: float) -> float:
        """The inverse of `joint`: joint noise multiplier -> the main release's z, never rounded
        down.
        """
        if self.mechanism == "pure" or not self.companions or joint == math.inf:
            return joint
        straight = 1 + sum(1 / c.value**2 for c in self.companions if c.kind == "times")
        squared = sum(1 / c.value**2 for c in self.companions if c.kind == "squared")
        # u = 1/z^2 is the solution of straight * u + squared * u^2 = 1/joint^2
        return (
            joint * math.sqrt((straight + math.sqrt(straight**2 + 4 * squared / joint**2)) / 2) * (1 + 1e-12)
        )


View = tuple[Composition, ...]  # each alone bounds the whole run, so the smallest epsilon holds
