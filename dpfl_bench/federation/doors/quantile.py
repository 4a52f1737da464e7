"""Adaptive clipping (Andrew et al. 2021): C follows a quantile of the norms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpfl_bench.checks.ranges import LARGEST_CLIP, LEAST_CLIP


@dataclass(frozen=True)
class Quantile:
    """C follows the `target` quantile, by a noised share of the norms that are at most C."""

    target: float
    lr: float
    # standard deviation of the noise on the cohort's sum of (1[norm <= C] - 1/2); under local
    # trust, of the noise on each client's term
    std: float

    def next(self, clip: float, share: float) -> float:
        """C of the next round. clip: C of this round. share: noised share of the norms below it."""
        return min(max(LEAST_CLIP, float(clip * np.exp(-self.lr * (share - self.target)))), LARGEST_CLIP)
