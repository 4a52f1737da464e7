"""ScalarDP: the norm of a client's update, made private by itself (Bhowmick et al. 2018; `fedexp`,
appendix D).

Unit: client, one norm in [0, clip]; replace_one: any two norms; local, pure DP (delta = 0), no
sampling. PrivUnit sends a norm through it (`privunit.py`).

Deviation from the print: k = ceil(e^(eps2/3)), not e^ceil(eps2/3) (as in the source and in the
proof of Lemma D.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

LARGEST_EPS = 100.0  # e^eps and 1/P(cap) stay far from overflow


def check_eps(name: str, eps: float) -> None:
    """ValueError unless 0 < eps <= LARGEST_EPS; `name` is its key."""
    if not 0 < eps <= LARGEST_EPS:
        raise ValueError(f"{name}={eps}: expected 0 < {name} <= {LARGEST_EPS:g} (use eps=inf for no privacy)")


def check_clip(clip: float) -> None:
    """ValueError unless 0 < clip < inf."""
    if not 0 < clip < math.inf:
        raise ValueError(f"clip={clip}: expected a finite number > 0 (the largest norm of an update)")


@dataclass(frozen=True)
class ScalarDP:
    """r in [0, clip] -> r_hat = a (J_hat - b), J_hat in {0, ..., k}: E[r_hat] = r, and pure eps-DP
    between any two r, exactly.
    """

    eps: float
    clip: float

    def __post_init__(self) -> None:
        check_eps("eps2", self.eps)
        check_clip(self.clip)

    @cached_property
    def k(self) -> int:
        """The largest J_hat: k + 1 values can be sent."""
        return math.ceil(math.exp(self.eps / 3))

    @cached_property
    def a(self) -> float:
        """The distance of two neighbouring values of r_hat."""
        return (math.exp(self.eps) + self.k) / math.expm1(self.eps) * self.clip / self.k

    @cached_property
    def b(self) -> float:
        """The J_hat, in general not whole, that would stand for r_hat = 0."""
        return self.k * (self.k + 1) / (2 * (math.exp(self.eps) + self.k))

    @cached_property
    def variance_bound(self) -> tuple[float, float, float]:
        """(c1, c2, c3) of the bound E[(r_hat - r)^2] <= c1 r^2 + c2 r + c3."""
        k, odds, square = self.k, math.expm1(self.eps), self.clip**2
        c1 = (k + 1) / odds
        inner = (2 * k + 1) * (math.exp(self.eps) + k) / (6 * k * odds) - (k + 1) / (4 * odds)
        return c1, -c1 * self.clip, (c1 + 1) * square / (4 * k**2) + c1 * square * inner

    def value(self, index: np.ndarray) -> np.ndarray:
        """r_hat of each J_hat."""
        return np.asarray(self.a * (index - self.b))

    def randomise(self, norms: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """norms: (c,), clamped to clip; draws: (3, c), uniform on [0, 1) -> r_hat, (c,)."""
        exact = self.k * (np.minimum(norms, self.clip) / self.clip)
        index = np.floor(exact) + (draws[0] < exact % 1)
        other = np.floor(draws[1] * self.k)
        others = self.k * math.exp(-self.eps)
        return self.value(np.where(draws[2] < others / (1 + others), other + (other >= index), index))

    def recover(self, sizes: np.ndarray) -> np.ndarray:
        """|r_hat| -> r_hat, (c,): its nearest value, with the sign. NaN stays NaN."""
        steps = sizes / self.a
        above = self.value(np.clip(np.rint(self.b + steps), 0, self.k))
        below = self.value(np.clip(np.rint(self.b - steps), 0, self.k))
        nearest = np.where(np.abs(np.abs(below) - sizes) < np.abs(np.abs(above) - sizes), below, above)
        if np.any(np.abs(np.abs(nearest) - sizes) > 1e-6 * sizes):
            raise ValueError(
                "a norm that this mechanism cannot have sent: expected the messages as `randomise` returned"
                " them"
            )
        return nearest

    def check_recoverable(self) -> None:
        """Refuse an eps at which two values differ in nothing but the sign, within what float32 can
        tell.
        """
        sum_of_two = round(2 * self.b)  # j + j' of values a (j - b) = -a (j' - b)
        if sum_of_two >= 1 and abs(2 * self.b - sum_of_two) < 1e-5:
            raise ValueError(
                f"eps2={self.eps}: k (k + 1) / (e^eps2 + k) = {2 * self.b:.6g} is whole, so the sign"
                f" of a norm is lost: expected any other (take privacy.eps2={max(1.01 * self.eps, 0.01):.4g})"
            )

    def square(self, r_hat: np.ndarray) -> np.ndarray:
        """s_hat of Algorithm 5, (c,): E[s_hat] <= r^2."""
        c1, c2, c3 = self.variance_bound
        return np.asarray((r_hat**2 - c2 * r_hat - c3) / (1 + c1))
