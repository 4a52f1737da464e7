"""Brackets of the tight epsilon, by integrating privacy losses: an accountant of its own, which
imports nothing of ours.

A pair (P, Q) of neighbours' outputs is cut into cells of space whose masses under P and under Q are
exact. Then

- low: cells of about equal loss are merged (post-processing of the pair) and the merged loss is
  rounded down to a grid;
- high: a cell is split between two points of the grid that enclose all its losses, which keeps both
  its masses. That dominates the pair: to a convex function of the likelihood ratio nothing is worse
  than all mass at the ends.

delta(eps) = E_P max(0, 1 - exp(eps - loss)) rises with every loss, so the composed grids give eps
from below and from above. Each release and each convolution is charged `CHARGE` of delta, against
itself in both: float64 errors, tails beyond 9 deviations, trimming.

Everything is in units of the sensitivity: z = std / sensitivity, and what neighbours contribute
differs by 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial, reduce

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import gammaln, logsumexp, ndtr

Vector = NDArray[np.float64]
Point = tuple[float, ...]
Mixture = list[tuple[float, Point]]  # (weight, mean) of its normals, which share their deviations

CHARGE = 2e-13  # of delta; half of it is trimmed, and a convolution of 1e6 points is off by about 1e-14
ROUNDING = 1e-12  # of eps, for each release: the float64 error of its losses


@dataclass(frozen=True)
class Cells:
    """A pair (P, Q), cell by cell: its masses, and an interval that holds its losses log(p/q)."""

    p: Vector
    q: Vector
    least: Vector
    most: Vector

    def reversed(self) -> Cells:
        return Cells(self.q, self.p, -self.most, -self.least)


Pair = Callable[[int], Cells]  # cut into so many cells


@dataclass(frozen=True)
class Rounds:
    """`times` rounds. In each a visible coin of probability `share` lets the parts happen: (pair,
    how often).
    """

    parts: tuple[tuple[Pair, int], ...]
    times: int = 1
    share: float = 1.0


Run = tuple[Rounds, ...]  # one after the other


@dataclass(frozen=True)
class Losses:
    """Masses at the losses (start, start + 1, ...) * step, and the delta that may be missing or
    spurious.
    """

    start: int
    mass: Vector
    charge: float = CHARGE


# ---- pairs ----


def normals(p: Mixture, q: Mixture, stds: Point) -> Pair:
    """Two mixtures of product normals; in no coordinate is a mean of p below one of q.

    Then log(p/q) rises in every coordinate: its derivative is (posterior mean under P - posterior
    mean under Q) / std^2 (Tweedie).
    """
    means = np.array([mean for _, mean in p + q])
    return partial(
        _cut, p, q, stds, means.min(axis=0) - 9 * np.array(stds), means.max(axis=0) + 9 * np.array(stds)
    )


def _cut(p: Mixture, q: Mixture, stds: Point, first: Vector, last: Vector, cells: int) -> Cells:
    side = cells if len(stds) == 1 else int(4 * math.sqrt(cells))
    ends = [np.linspace(a, b, side + 1) for a, b in zip(first, last, strict=True)]
    loss = _log_density(ends, p, stds) - _log_density(ends, q, stds)
    least, most = (loss[(corner,) * len(stds)].ravel() for corner in (slice(None, -1), slice(1, None)))
    return Cells(_mass(ends, p, stds), _mass(ends, q, stds), least, most)


def _log_density(ends: list[Vector], mixture: Mixture, stds: Point) -> Vector:
    parts = [
        reduce(
            np.add.outer,
            [-((x - mean) ** 2) / (2 * std**2) for x, mean, std in zip(ends, means, stds, strict=True)],
        )
        + math.log(weight)
        for weight, means in mixture
    ]
    return logsumexp(parts, axis=0)


def _mass(ends: list[Vector], mixture: Mixture, stds: Point) -> Vector:
    products = (
        weight
        * reduce(
            np.multiply.outer,
            [_normal_mass((x - mean) / std) for x, mean, std in zip(ends, means, stds, strict=True)],
        )
        for weight, means in mixture
    )
    return sum(products).ravel()


def _normal_mass(ends: Vector) -> Vector:
    left, right = ends[:-1], ends[1:]
    flip = left + right > 0  # an upper tail as a lower one, whose small numbers are exact
    return ndtr(np.where(flip, -left, right)) - ndtr(np.where(flip, -right, left))


def gaussian(z: float) -> Pair:
    return normals([(1, (1,))], [(1, (0,))], (z,))


def poisson(rate: float, *z: float) -> Pair:
    """Add/remove: the record is in the lot with probability `rate`. Several z: as many releases of
    the same lot.
    """
    absent, present = (0,) * len(z), (1,) * len(z)
    return normals([(1 - rate, absent), (rate, present)], [(1, absent)], z)


def lots_reached(rate: float, others: Point, *z: float) -> Pair:
    """Replace-one, lots of fixed size: what neighbours reach if every other record contributes
    `others`, each in [-1/2, 1/2].

    A lot without the replaced record holds one more of the others.
    """
    up, down = (0.5,) * len(z), (-0.5,) * len(z)
    return normals([(1 - rate, others), (rate, up)], [(1 - rate, others), (rate, down)], z)


def lots_bounded(rate: float, z: float) -> Pair:
    """The pair with delta(eps) = rate delta_gaussian(log(1 + (e^eps - 1) / rate)), both ways (Balle
    et al. 2018, Theorem 10).

    Its positive losses are those of (1-q)N(0) + qN(1) against N(0), its negative ones their mirror
    image; the rest has none.
    """

    def cut(cells: int) -> Cells:
        ends = np.array([0.5]), np.array([1 + 9 * z])
        up = _cut([(1 - rate, (0,)), (rate, (1,))], [(1, (0,))], (z,), *ends, cells // 2)
        rest = np.array([1 - up.p.sum() - up.q.sum()])
        none = np.zeros(1)
        columns = zip(
            (up.p, up.q, up.least, up.most),
            (up.q, up.p, -up.most, -up.least),
            (rest, rest, none, none),
            strict=True,
        )
        return Cells(*map(np.concatenate, columns))

    return cut


# ---- one release on the grid ----


def rounded_down(pair: Cells, step: float) -> Losses:
    kept = (pair.p > 0) & (pair.q > 0)
    p, q, middle = pair.p[kept], pair.q[kept], (pair.least + pair.most)[kept] / 2
    # A merged loss just under its point falls by a whole step. Moving all cells up makes that rare,
    # and costs as much: choose.
    _, mass, excess = _merged(p, q, middle, step)
    order = np.argsort(-excess)
    shift = -excess[order][np.argmin(step * (1 - np.cumsum(mass[order])) - excess[order])]
    point, mass, excess = _merged(p, q, middle - shift, step)
    point = point + np.floor((excess + ROUNDING) / step).astype(int)
    return Losses(int(point.min()), np.bincount(point - point.min(), weights=mass))


def _merged(p: Vector, q: Vector, middle: Vector, step: float) -> tuple[NDArray[np.int_], Vector, Vector]:
    """Cells around each point of the grid, as one: the point, P's mass, and by how much the loss
    exceeds the point.
    """
    nearest = np.floor(middle / step + 0.5).astype(int)
    start = nearest.min()
    p, q = np.bincount(nearest - start, weights=p), np.bincount(nearest - start, weights=q)
    index = np.flatnonzero(p)
    return index + start, p[index], np.log(p[index] / q[index]) - (index + start) * step


def split_up(pair: Cells, step: float) -> Losses:
    low = np.floor(pair.least / step).astype(int)
    high = np.maximum(np.ceil(pair.most / step).astype(int), low + 1)
    up = np.clip((pair.p - pair.q * np.exp(low * step)) / -np.expm1((low - high) * step), 0, pair.p)
    start, size = low.min(), int(high.max() - low.min()) + 1
    return Losses(
        int(start), np.bincount(low - start, pair.p - up, size) + np.bincount(high - start, up, size)
    )


# ---- composition ----


def _convolved(a: Vector, b: Vector) -> Vector:
    """scipy.signal.fftconvolve to the bit; of a vector with itself one transform less."""
    if min(len(a), len(b)) == 1:
        return a * b
    size = len(a) + len(b) - 1
    cells = next_fast_len(size, real=True)
    one = rfft(a, cells)
    both: Vector = irfft(one * (one if a is b else rfft(b, cells)), cells)[:size]
    return both


def composed(a: Losses, b: Losses) -> Losses:
    mass = np.maximum(_convolved(a.mass, b.mass), 0)
    first = int(np.searchsorted(np.cumsum(mass), CHARGE / 4))
    last = len(mass) - int(np.searchsorted(np.cumsum(mass[::-1]), CHARGE / 4))
    return Losses(a.start + b.start + first, mass[first:last], a.charge + b.charge + CHARGE)


def power(losses: Losses, times: int) -> Losses:
    if times == 1:
        return losses
    half = power(losses, times // 2)
    twice = composed(half, half)
    return composed(twice, losses) if times % 2 else twice


def _seldom(losses: Losses, share: float) -> Losses:
    """(1 - share) at loss 0, since the coin is visible."""
    if share == 1:
        return losses
    start, stop = min(losses.start, 0), max(losses.start + len(losses.mass), 1)
    mass = np.zeros(stop - start)
    mass[losses.start - start :][: len(losses.mass)] = share * losses.mass
    mass[-start] += 1 - share
    return Losses(start, mass, losses.charge)


def spent(losses: Losses, step: float, delta: float) -> float:
    """The eps >= 0 (up to 700) at which E max(0, 1 - exp(eps - loss)) is delta."""
    if delta <= 0:
        return math.inf
    skipped = max(0, -losses.start)
    mass = losses.mass[skipped:]
    loss = np.minimum((np.arange(len(mass)) + losses.start + skipped) * step, 700)  # e^700 is still a float
    if not len(mass):
        return 0.0
    above, tilted = np.cumsum(mass[::-1])[::-1], np.cumsum((mass * np.exp(-loss))[::-1])[::-1]
    deltas = np.append(above[1:], 0) - np.exp(loss) * np.append(tilted[1:], 0)  # at eps = each loss
    first = int(np.argmax(deltas <= delta))  # eps is at most this loss, and above the one before
    return max(0.0, math.log(max(above[first] - delta, 1e-300) / tilted[first]))


@lru_cache(maxsize=16)
def _cells(pair: Pair, cells: int) -> Cells:
    """Cut once for both orders of the pair."""
    return pair(cells)


def _bounds(run: Run, delta: float, step: float, cells: int, mirrored: bool) -> list[float]:
    cuts = {pair: _cells(pair, cells) for rounds in run for pair, _ in rounds.parts}
    epsilons = []
    for on_grid, sign in ((rounded_down, 1), (split_up, -1)):
        ready = {pair: on_grid(cut.reversed() if mirrored else cut, step) for pair, cut in cuts.items()}
        done = [(reduce(composed, [power(ready[pair], often) for pair, often in r.parts]), r) for r in run]
        total = reduce(composed, [power(_seldom(losses, r.share), r.times) for losses, r in done])
        count = sum(often * r.times for r in run for _, often in r.parts)
        epsilons.append(max(0.0, spent(total, step, delta + sign * total.charge) - sign * ROUNDING * count))
    return epsilons


def _step(run: Run) -> tuple[float, float]:
    """A first guess of the grid, in eps, and how many times finer than one release's deviation it
    is.
    """
    count = variance = 0.0
    for rounds in run:
        for pair, often in rounds.parts:
            cells = _cells(pair, 2000)
            loss = (cells.least + cells.most) / 2
            releases = rounds.times * rounds.share * often
            count, variance = (
                count + releases,
                variance + releases * max(cells.p @ loss**2 - (cells.p @ loss) ** 2, 1e-24),
            )
    finer = 10 * max(count, 1) ** 0.25
    return math.sqrt(variance / count) / finer, finer


def bracket(
    run: Run, delta: float, orders: tuple[bool, ...] = (False, True), tolerance: float = 0.005
) -> tuple[float, float]:
    """(low, high) with low <= eps(delta) <= high of the run, the worse of both orders of its pairs;
    (True,) is Q against P alone.
    """
    lows, highs = zip(*(_refined(run, delta, mirrored, tolerance) for mirrored in orders), strict=True)
    return max(lows), max(highs)


def _refined(run: Run, delta: float, mirrored: bool, tolerance: float) -> list[float]:
    step, finer = _step(run)
    for _ in range(5):
        low, high = _bounds(run, delta, step, int(400 * finer), mirrored)
        if high - low <= tolerance * max(low, 0.05):
            break
        step, finer = step / 2, finer * 2
    return [low, high]


def pure(eps: float, times: int, delta: float) -> float:
    """`times` randomised responses of eps each, the worst of all eps-DP mechanisms: every outcome
    of the binomial, no grid.
    """
    ones = np.arange(times + 1)
    log_p = (
        gammaln(times + 1)
        - gammaln(ones + 1)
        - gammaln(times - ones + 1)
        + ones * eps
        - times * np.logaddexp(0, eps)
    )
    loss = (2 * ones - times) * eps
    low, high = 0.0, times * eps
    for _ in range(100):
        middle = (low + high) / 2
        over = np.exp(log_p[loss > middle]) @ -np.expm1(middle - loss[loss > middle]) > delta
        low, high = (middle, high) if over else (low, middle)
    return high
