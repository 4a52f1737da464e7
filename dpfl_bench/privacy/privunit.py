"""PrivUnit: a client's update, made private by itself (Bhowmick et al. 2018; Asi et al. 2022;
`fedexp`, appendix D).

ScalarDP makes the norm private (`scalar_dp.py`), PrivUnit the direction, each with randomness of
its own. The message is r_hat z, and E[r_hat z] is the update. Unit: client, one whole update;
replace_one: any two updates of norm at most `clip`; local, pure DP (delta = 0), no sampling. k
releases of the same client add up to k eps.

Deviations from the print:

- The cap is drawn with probability p, not gamma: with gamma, a misprint, the estimate would be
  biased.
- An update of 0 has no direction and is given a uniform one. So is an update that is not finite,
  which counts as 0.

For simulation: neither Philox nor float64 is fit for a deployment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpfl_bench.privacy.scalar_dp import LARGEST_EPS, ScalarDP, check_clip, check_eps

_LARGEST_GAMMA = 1 - 1e-9


def _check_dimension(dimension: int) -> None:
    if not dimension >= 3:
        raise ValueError(
            f"dimension={dimension}: expected at least 3 (PrivUnit needs a sphere; use"
            " privacy.mechanism=gaussian)"
        )


@dataclass(frozen=True)
class PrivUnit:
    """Algorithms 3 and 4. One release is pure `release_eps`-DP <= eps0 + eps1 + eps2 (unit and
    neighbours: above).
    """

    eps0: float  # which side of the cap
    eps1: float  # how large the cap is
    eps2: float  # the norm
    clip: float
    dimension: int

    def __post_init__(self) -> None:
        for name in ("eps0", "eps1", "eps2"):
            check_eps(name, getattr(self, name))
        check_clip(self.clip)
        _check_dimension(self.dimension)

    @cached_property
    def scalar(self) -> ScalarDP:
        """What the norm goes through."""
        return ScalarDP(self.eps2, self.clip)

    @cached_property
    def gamma(self) -> float:
        """The cap of u is {v: <v, u> >= gamma}."""
        return _gamma(self.eps1, self.dimension)

    @cached_property
    def cap_rate(self) -> float:
        """p: how often the direction is drawn from the cap."""
        return 1 / (1 + math.exp(-self.eps0))

    @cached_property
    def belt(self) -> float:
        """P(|<v, u>| < gamma) of a uniform direction v."""
        from scipy.special import betainc

        return float(betainc(0.5, (self.dimension - 1) / 2, self.gamma**2))

    @cached_property
    def cap(self) -> float:
        """P(<v, u> >= gamma) of a uniform direction v: by the belt or by the tail, whichever loses
        no digits.
        """
        from scipy.special import betainc

        alpha = (self.dimension - 1) / 2
        return (1 - self.belt) / 2 if self.belt < 0.5 else float(betainc(alpha, alpha, (1 - self.gamma) / 2))

    @cached_property
    def m(self) -> float:
        """E <v, u>, the length by which a direction is divided."""
        from scipy.special import poch

        alpha = (self.dimension - 1) / 2
        excess = (
            math.tanh(self.eps0 / 2) + self.belt
        ) / 2  # p - P(cap), where nothing cancels at a small eps
        log_whole = 0.5 * math.log(math.pi) - math.log(poch(alpha, 0.5))  # 2^(d-2) B(alpha, alpha)
        log_slice = alpha * _log_one_minus_square(self.gamma) - math.log(self.dimension - 1) - log_whole
        return math.exp(log_slice + math.log(excess) - math.log(self.cap) - math.log1p(-self.cap))

    @cached_property
    def release_eps(self) -> float:
        """The exact eps of one release, pure DP, replace_one: the log of the direction's largest
        likelihood ratio, plus eps2.
        """
        return self.eps0 + math.log1p(-self.cap) - math.log(self.cap) + self.eps2

    def randomise(self, updates: np.ndarray, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """updates: (c, d), norms above clip are clamped; rngs: one per client -> messages, (c, d),
        float64.

        An update with a NaN or an infinity in it counts as 0.
        """
        messages = np.array(updates, dtype=np.float64, order="C")
        if messages.shape != (len(rngs), self.dimension):
            raise ValueError(
                f"updates of shape {messages.shape}: expected {(len(rngs), self.dimension)}, a row for each"
                " generator"
            )
        draws = np.array([rng.random(5) for rng in rngs]).reshape(len(rngs), 5).T
        norms = np.array([_normalise(row) for row in messages])
        lengths = self.scalar.randomise(norms, draws[:3]) / self.m
        heights, radii = self.heights(draws[3], draws[4])
        for row, norm, length, height, radius, rng in zip(
            messages, norms, lengths, heights, radii, rngs, strict=True
        ):
            if norm == 0:
                _uniform(row, rng)
            row[:] = length * (height * row + radius * _orthogonal(row, rng))
        return messages

    def heights(self, sides: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """t = <v, u> and sqrt(1 - t^2), (c,) both, from uniforms on [0, 1), (c,) both.

        P(T > t) is uniform on [0, P(cap)] or on the rest of [0, 1]; it is inverted from the smaller
        of the two tails.
        """
        from scipy.special import betaincinv

        inside = sides < self.cap_rate
        above = np.where(inside, self.cap * (1 - draws), self.cap + (1 - self.cap) * draws)
        below = np.where(inside, 1.0, (1 - self.cap) * (1 - draws))
        alpha = (self.dimension - 1) / 2
        tail = betaincinv(alpha, alpha, np.minimum(above, below))  # (1 - |t|) / 2
        return np.where(above <= below, 1 - 2 * tail, 2 * tail - 1), 2 * np.sqrt(tail * (1 - tail))

    def check_norms_recoverable(self) -> None:
        """Refuse an eps2 at which `square_norms` could not tell r_hat from -r_hat."""
        self.scalar.check_recoverable()

    def square_norms(self, messages: np.ndarray) -> np.ndarray:
        """s_hat of Algorithm 5 from messages alone, (c, d) -> (c,): E[s_hat] <= |update|^2.
        Post-processing, at no further eps.
        """
        self.check_norms_recoverable()
        sizes = self.m * np.array([_norm(np.asarray(row, dtype=np.float64)) for row in messages])
        return self.scalar.square(self.scalar.recover(sizes))


def equal_split(release_eps: float, dimension: int) -> float:
    """The largest eps0 = eps1 = eps2 whose exact `release_eps` is at most the given one, by
    bisection from the private side.
    """
    _check_dimension(dimension)
    if not 0 < release_eps <= 2 * LARGEST_EPS:
        raise ValueError(
            f"eps={release_eps} a release: expected 0 < eps <= {2 * LARGEST_EPS:g} (use eps=inf for no"
            " privacy)"
        )
    low, high = release_eps / 3, release_eps / 2  # 2 s < release_eps(s) <= 3 s
    while low < (middle := (low + high) / 2) < high:
        meets = PrivUnit(middle, middle, middle, 1.0, dimension).release_eps <= release_eps
        low, high = (middle, high) if meets else (low, middle)
    return low


def _gamma(eps1: float, dimension: int) -> float:
    """The larger gamma of those that the two rules of Algorithm 3 allow."""
    first = math.tanh(eps1 / 2) * math.sqrt(math.pi / (2 * (dimension - 1)))
    low, high = math.sqrt(2 / dimension), _LARGEST_GAMMA
    if _second_rule(low, dimension) > eps1:
        return first
    if _second_rule(high, dimension) <= eps1:
        return high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _second_rule(middle, dimension) <= eps1 else (low, middle)
    return max(first, low)


def _second_rule(gamma: float, dimension: int) -> float:
    """The eps1 that the second rule asks for; it increases with gamma."""
    return (
        0.5 * math.log(dimension)
        + math.log(6)
        - (dimension - 1) / 2 * _log_one_minus_square(gamma)
        + math.log(gamma)
    )


def _log_one_minus_square(gamma: float) -> float:
    return math.log1p(-gamma) + math.log1p(gamma)


def _norm(row: np.ndarray) -> float:
    """The norm of (d,). No BLAS: its sums may depend on where a row lies in memory."""
    return math.sqrt(float(np.sum(row * row)))


def _normalise(row: np.ndarray) -> float:
    """Divide (d,) by its norm, in place, and return the norm. A row that is not finite becomes 0.

    The row is divided by its largest entry first, so nothing overflows or underflows.
    """
    largest = float(np.abs(row).max())
    if largest == 0 or not math.isfinite(largest):
        row[:] = 0
        return 0.0
    row /= largest
    norm = _norm(row)
    row /= norm
    return largest * norm


def _uniform(row: np.ndarray, rng: np.random.Generator) -> None:
    """Overwrite (d,) with a uniform direction."""
    rng.standard_normal(out=row)
    _normalise(row)


def _orthogonal(unit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A uniform direction among those orthogonal to a unit vector, (d,)."""
    drawn = rng.standard_normal(len(unit))
    drawn -= float(np.sum(drawn * unit)) * unit
    _normalise(drawn)
    return drawn
