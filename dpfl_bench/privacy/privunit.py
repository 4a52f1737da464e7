"""PrivUnit (Bhowmick et al. 2018; Asi et al. 2022) and ScalarDP: a client's update, made private by
itself (`fedexp`, appendix D).

The norm goes through ScalarDP and the direction through PrivUnit, with randomness of their own; the
message is r_hat z, and E[r_hat z] is the update. Unit: client, one whole update; replace_one: any
two updates of norm at most `clip`; local, pure DP (delta = 0), no sampling; k releases of the same
client add up to k eps.

Deviations from the print: the cap is drawn with probability p, not gamma (a misprint: the estimate
would be biased), k = ceil(e^(eps2/3)), not e^ceil(eps2/3) (as in the source and in the proof of
Lemma D.4), and an update of 0, which has no direction, is given a uniform one, as is one that is
not finite and counts as 0.

For simulation: neither Philox nor float64 is fit for a deployment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_LARGEST_EPS = 100.0  # e^eps and 1/P(cap) stay far from overflow
_LARGEST_GAMMA = 1 - 1e-9


def _check_eps(name: str, eps: float) -> None:
    if not 0 < eps <= _LARGEST_EPS:
        raise ValueError(
            f"{name}={eps}: expected 0 < {name} <= {_LARGEST_EPS:g} (use eps=inf for no privacy)"
        )


def _check_clip(clip: float) -> None:
    if not 0 < clip < math.inf:
        raise ValueError(f"clip={clip}: expected a finite number > 0 (the largest norm of an update)")


def _check_dimension(dimension: int) -> None:
    if not dimension >= 3:
        raise ValueError(
            f"dimension={dimension}: expected at least 3 (PrivUnit needs a sphere; use the gaussian"
            " mechanism)"
        )


@dataclass(frozen=True)
class ScalarDP:
    """r in [0, clip] -> r_hat = a (J_hat - b), J_hat in {0, ..., k}: E[r_hat] = r, and pure eps-DP
    between any two r, exactly.
    """

    eps: float
    clip: float

    def __post_init__(self) -> None:
        _check_eps("eps2", self.eps)
        _check_clip(self.clip)

    @cached_property
    def k(self) -> int:
        return math.ceil(math.exp(self.eps / 3))

    @cached_property
    def a(self) -> float:
        return (math.exp(self.eps) + self.k) / math.expm1(self.eps) * self.clip / self.k

    @cached_property
    def b(self) -> float:
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
                f"eps2={self.eps}: k (k + 1) / (e^eps2 + k) = {2 * self.b:.6g} is whole, so the sign of a"
                f" norm is lost: expected any other (take eps2={max(1.01 * self.eps, 0.01):.4g})"
            )

    def square(self, r_hat: np.ndarray) -> np.ndarray:
        """s_hat of Algorithm 5, (c,): E[s_hat] <= r^2."""
        c1, c2, c3 = self.variance_bound
        return np.asarray((r_hat**2 - c2 * r_hat - c3) / (1 + c1))


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
            _check_eps(name, getattr(self, name))
        _check_clip(self.clip)
        _check_dimension(self.dimension)

    @cached_property
    def scalar(self) -> ScalarDP:
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
        nothing.
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
        """The exact eps of one release: the log of the direction's largest likelihood ratio, plus
        eps2.
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
    if not 0 < release_eps <= 2 * _LARGEST_EPS:
        raise ValueError(
            f"eps={release_eps} a release: expected 0 < eps <= {2 * _LARGEST_EPS:g} (use eps=inf for no"
            " privacy)"
        )
    low, high = release_eps / 3, release_eps / 2  # 2 s < release_eps(s) <= 3 s
    while low < (middle := (low + high) / 2) < high:
        meets = PrivUnit(middle, middle, middle, 1.0, dimension).release_eps <= release_eps
        low, high = (middle, high) if meets else (low, middle)
    return low


def _gamma(eps1: float, dimension: int) -> float:
    """The larger of what the two rules of Algorithm 3 allow."""
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
    """The eps1 that it asks for; increases with gamma."""
    return (
        0.5 * math.log(dimension)
        + math.log(6)
        - (dimension - 1) / 2 * _log_one_minus_square(gamma)
        + math.log(gamma)
    )


def _log_one_minus_square(gamma: float) -> float:
    return math.log1p(-gamma) + math.log1p(gamma)


def _norm(row: np.ndarray) -> float:
    """Of (d,). No BLAS, whose sums may depend on where a row lies in memory."""
    return math.sqrt(float(np.sum(row * row)))


def _normalise(row: np.ndarray) -> float:
    """Divide (d,) by its norm, in place, and return the norm; dividing by the largest entry first,
    nothing over- or underflows.

    What is not finite becomes 0.
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
