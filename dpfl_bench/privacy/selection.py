"""What it costs to release the best of several runs: private selection with a random number of
trials.

Papernot & Steinke 2022, "Hyperparameter Tuning with Rényi Differential Privacy" (arXiv 2110.03620).
A trial draws one of the candidate runs uniformly at random and releases what that run releases, its
score included. There are K trials; K is drawn beforehand and kept secret. Only the best trial is
released (nothing, if K = 0). Unit, neighbouring relation and sampling are those of the
candidates. With D(a) the largest Rényi divergence of order a of any candidate (a trial's is no
larger: which candidate it drew is part of what it releases and does not depend on data), the
release's Rényi divergence at every order a > 1 is at most

- geometric (eta = 1) and logarithmic (eta = 0), the truncated negative binomials of Definition 1,
  by Theorem 2: D(a) + (1 + eta) min over b >= 1 of ((1 - 1/b) D(b) + log(1/gamma) / b) + log E[K] /
  (a - 1);
- poisson of mean m, by Theorem 6: log(e^-m + m exp((a - 1) (D(a) + m d))) / (a - 1), d being a
  trial's delta at eps = log(a / (a - 1)). The e^-m is the outcome K = 0. The theorem leaves it out,
  which is wrong for small m.

| paper | here |
|---|---|
| lambda, lambda-hat | a, b |
| gamma, eta | gamma, shape |
| K, E[K], mu | trials, mean, mean |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfl_bench.privacy import accounting, refusals
from dpfl_bench.privacy.divergences import gaussian
from dpfl_bench.privacy.released.composition import Composition

DISTRIBUTIONS = ("geometric", "logarithmic", "poisson")
_SHAPES = {"geometric": 1.0, "logarithmic": 0.0}
# what a run releases, with the noise multiplier of its first composition
Candidate = tuple[Composition, float]


@dataclass(frozen=True)
class Trial:
    """Bounds on one trial, whichever candidate it draws."""

    orders: Any  # (n,), ascending, > 1
    divergences: Any  # (n,): Rényi divergences at these orders
    mu: float | None  # of one Gaussian that bounds a trial, if all candidates are unsampled Gaussians

    def delta(self, eps: float) -> float:
        """A trial's delta at eps > 0."""
        if self.mu is not None:
            return gaussian.delta_of_gaussian(self.mu, eps)
        from dp_accounting.rdp import rdp_privacy_accountant

        return float(rdp_privacy_accountant.compute_delta(self.orders, self.divergences, eps)[0])


def trial(candidates: Sequence[Candidate]) -> Trial:
    """The largest divergence over the candidates, at every order at which one of them is known.

    candidates: (composition, noise multiplier) of each, all of one unit and neighbouring relation.
    """
    curves = [accounting.renyi(*candidate) for candidate in dict.fromkeys(candidates)]
    orders = np.unique(np.concatenate([np.asarray(known, dtype=float) for known, _ in curves]))
    orders = orders[orders > 1]
    largest = np.max([_extended(orders, *curve) for curve in curves], axis=0)
    mus = [
        math.sqrt(c.times) / (c.joint(z) * c.scale)
        for c, z in candidates
        if c.mechanism == "gaussian" and not c.rounds
    ]
    return Trial(orders, largest, max(mus) if len(mus) == len(candidates) else None)


def _extended(orders: Any, known: Any, divergences: Any) -> Any:
    """A curve at other orders. (a - 1) D(a) is convex and 0 at a = 1, so chords are above it.
    Beyond the last known order it is inf.
    """
    known, divergences = np.append(1.0, known), np.append(0.0, divergences)
    finite = np.isfinite(divergences)
    heights = np.interp(orders, known[finite], ((known - 1) * divergences)[finite], right=math.inf)
    return heights / (orders - 1)


def epsilon(one: Trial, delta: float, distribution: str, mean: float) -> float:
    """Eps at delta of releasing the best of K trials.

    distribution: of K, one of DISTRIBUTIONS. mean: E[K].
    """
    from dp_accounting.rdp import rdp_privacy_accountant

    return float(
        rdp_privacy_accountant.compute_epsilon(one.orders, divergences(one, distribution, mean), delta)[0]
    )


def divergences(one: Trial, distribution: str, mean: float) -> Any:
    """Rényi divergence of the best of K trials at each of the trial's orders, (n,). Arguments as of
    `epsilon`.
    """
    check(distribution, mean)
    if distribution == "poisson":
        return _poisson(one, mean)
    return _negative_binomial(one, _SHAPES[distribution], gamma(distribution, mean), mean)


def check(distribution: str, mean: float) -> None:
    """PrivacyError for an unknown distribution of K, or for a mean that it cannot have."""
    refusals.check_known(distribution=(distribution, DISTRIBUTIONS))
    if distribution == "poisson" and not 0 < mean < math.inf:
        raise refusals.trials_out_of_range(mean, distribution)
    if distribution != "poisson" and not 1 <= mean < math.inf:
        raise refusals.trials_out_of_range(mean, distribution)


def _negative_binomial(one: Trial, shape: float, gamma: float, mean: float) -> Any:
    a, d = one.orders, one.divergences
    at_one = math.log(1 / gamma)  # b = 1
    chosen = min(at_one, float(np.min((1 - 1 / a) * d + math.log(1 / gamma) / a)))
    return d + (1 + shape) * chosen + math.log(mean) / (a - 1)


def _poisson(one: Trial, mean: float) -> Any:
    excess = one.orders - 1
    deltas = np.array([one.delta(math.log1p(1 / e)) for e in excess])
    return np.logaddexp(-mean, math.log(mean) + excess * (one.divergences + mean * deltas)) / excess


def gamma(distribution: str, mean: float) -> float:
    """The parameter gamma of the truncated negative binomial with that mean >= 1, rounded down:
    1/mean for geometric, by bisection for logarithmic.
    """
    if distribution == "geometric" or mean == 1:
        return 1 / mean
    # bounds on log(gamma): (1/gamma - 1) / log(1/gamma) falls with gamma, and is above mean at low
    low, high = -2.0 * (math.log(mean) + 1), 0.0
    while high - low > 1e-12 * abs(low):
        middle = (low + high) / 2
        low, high = (low, middle) if math.expm1(-middle) / -middle < mean else (middle, high)
    return math.exp(low)
