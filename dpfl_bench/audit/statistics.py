"""What numbers prove: lower bounds on eps and tests of assumptions. numpy and scipy, float64 alone.

Nothing here imports the accountants, so a fault in their formulas is not repeated. Every bound
holds with the confidence that it is given: a right claim is exceeded with probability at most
1 - confidence. Several bounds at one confidence share it (`shared`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.special import log_ndtr

Array = np.ndarray[Any, Any]
LARGEST_EPS = 1e4


def shared(confidence: float, tests: int) -> float:
    """The confidence of each of several tests that hold together (Bonferroni)."""
    return 1 - (1 - confidence) / max(1, tests)


def joint_p(each: Iterable[float]) -> float:
    """The p of the smallest of several p-values (Bonferroni)."""
    known = list(each)
    return min(1.0, len(known) * min(known)) if known else 1.0


# the Gaussian privacy profile: N(0, 1) against N(mu, 1)


def gaussian_delta(mu: float, eps: float) -> float:
    """delta at eps. Two numbers of nearly the same size are subtracted in log space."""
    if mu <= 0:
        return 0.0
    one, other = log_ndtr(mu / 2 - eps / mu), eps + log_ndtr(-mu / 2 - eps / mu)
    return 0.0 if other >= one else float(math.exp(one) * -math.expm1(other - one))


def gaussian_eps(mu: float, delta: float) -> float:
    """The smallest eps at delta."""
    if mu <= 0 or gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if mu == math.inf:
        return math.inf
    high = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)) + 1
    return float(brentq(lambda eps: gaussian_delta(mu, eps) - delta, 0.0, high, xtol=1e-12))


def gaussian_mu(eps: float, delta: float) -> float:
    """The mu whose eps at delta is `eps`."""
    high = 1.0
    while gaussian_eps(high, delta) < eps:
        high *= 2
    return float(brentq(lambda mu: gaussian_eps(mu, delta) - eps, 0.0, high, xtol=1e-12))


# residuals: noise divided by the standard deviation that it is said to have


def scale_at_most(squares: float, count: int, confidence: float) -> float:
    """Upper bound on the standard deviation of `count` normal numbers. squares: sum of squares."""
    return math.sqrt(squares / float(stats.chi2.ppf(1 - confidence, count)))


def scale_p(squares: float, count: int) -> float:
    """p of a standard deviation of 1, against smaller and larger ones."""
    below, above = stats.chi2.cdf(squares, count), stats.chi2.sf(squares, count)
    return min(1.0, 2 * float(min(below, above)))


def scale_below_p(squares: float, count: int, std: float) -> float:
    """p of a standard deviation of at least `std`, against smaller ones."""
    return float(stats.chi2.cdf(squares / std**2, count))


def shape(values: Array) -> tuple[float, float]:
    """(Kolmogorov and Smirnov's distance from N(0, 1), its p)."""
    found = stats.kstest(values, "norm", method="asymp" if len(values) > 1000 else "auto")
    return float(found.statistic), float(found.pvalue)


def alike(rows: Sequence[Array], most: int = 64) -> tuple[float, float]:
    """Whether two of several vectors go together: (largest |z| over pairs, p over all pairs).

    Given the first vector, a . b / |a| of an independent standard normal b is standard normal,
    exactly, however short they are.
    """
    taken = [np.asarray(row, np.float64) for row in rows[:most]]
    largest, pairs = 0.0, 0
    for a, b in combinations(taken, 2):
        size = math.sqrt(float(a @ a))
        if size > 0:
            largest, pairs = max(largest, abs(float(a @ b)) / size), pairs + 1
    return largest, min(1.0, 2 * pairs * float(stats.norm.sf(largest)))


def lagged(rows: Array) -> tuple[float, float]:
    """Whether coordinates of a vector go together: (largest |z| over lags, p over all lags).

    rows: (n, d), independent standard normal under the hypothesis. The lags: 1 to 32, powers of
    two, and half of d, as far as d goes.
    """
    d = rows.shape[1]
    lags = {*range(1, 33), *(2**k for k in range(6, 30)), (d + 1) // 2, d // 2}
    known = sorted(lag for lag in lags if 0 < lag < d)
    largest = 0.0
    for lag in known:
        early, late = rows[:, :-lag], rows[:, lag:]
        products = float(np.einsum("nd,nd->", early, late, dtype=np.float64))
        largest = max(largest, abs(products) / math.sqrt(early.size))
    return largest, min(1.0, 2 * max(1, len(known)) * float(stats.norm.sf(largest)))


def repeated(rows: Array, digits: int = 3) -> tuple[float, float]:
    """(how many rows begin like another one, up to sign and rounding; p of so many).

    rows: (n, d), independent standard normal under the hypothesis. Two numbers fall into one cell
    of width h with probability h / sqrt(pi) at most.
    """
    taken = min(4, rows.shape[1])
    cells = np.round(np.abs(rows[:, :taken].astype(np.float64)), digits)
    again = len(rows) - len(np.unique(cells, axis=0))
    expected = len(rows) ** 2 / 2 * (10.0**-digits / math.sqrt(math.pi)) ** taken
    return float(again), float(stats.poisson.sf(again - 1, expected)) if again else 1.0


# canaries: scores of those that are in, and of those that are out


def shift_at_least(inside: Array, outside: Array, confidence: float) -> float:
    """Lower bound on mu, the distance of two normal laws in their common standard deviation.

    The estimate's variance is 1/n + 1/m + mu^2 / (2 (n + m)), the last term for the deviation,
    which is estimated too.
    """
    n, m = len(inside), len(outside)
    found = shift(inside, outside)
    error = math.sqrt(1 / n + 1 / m + found**2 / (2 * (n + m)))
    return max(0.0, found - float(stats.norm.ppf(confidence)) * error)


def shift(inside: Array, outside: Array) -> float:
    """The estimate itself."""
    n, m = len(inside), len(outside)
    squares = ((inside - inside.mean()) ** 2).sum() + ((outside - outside.mean()) ** 2).sum()
    spread = math.sqrt(float(squares) / (n + m - 2))
    return float(inside.mean() - outside.mean()) / spread if spread > 0 else math.inf


def shift_p(inside: Array, outside: Array, mu: float) -> float:
    """p of a distance of at most `mu`, against larger ones."""
    n, m = len(inside), len(outside)
    error = math.sqrt(1 / n + 1 / m + mu**2 / (2 * (n + m)))
    return float(stats.norm.sf((shift(inside, outside) - mu) / error))


def share_at_least(hits: int, count: int, confidence: float) -> float:
    """Clopper and Pearson's lower bound on a probability."""
    return float(stats.beta.ppf(1 - confidence, hits, count - hits + 1)) if hits > 0 else 0.0


def share_at_most(hits: int, count: int, confidence: float) -> float:
    """Clopper and Pearson's upper bound."""
    return float(stats.beta.ppf(confidence, hits + 1, count - hits)) if hits < count else 1.0


def two_rates(hits: int, inside: int, alarms: int, outside: int, delta: float, confidence: float) -> float:
    """eps at least: an (eps, delta) mechanism has P(hit) <= e^eps P(alarm) + delta."""
    half = shared(confidence, 2)
    most, least = share_at_most(alarms, outside, half), share_at_least(hits, inside, half)
    return max(0.0, math.log((least - delta) / most)) if least > delta else 0.0


def two_rates_p(hits: int, inside: int, alarms: int, outside: int, eps: float) -> float:
    """p of (eps, 0): the largest doubt at which `two_rates` proves no more than eps."""
    low, high = -300.0, 0.0  # log10
    if two_rates(hits, inside, alarms, outside, 0.0, 0.5) <= eps:
        return 1.0
    while high - low > 0.01:
        middle = (low + high) / 2
        fits = two_rates(hits, inside, alarms, outside, 0.0, 1 - 10**middle) <= eps
        low, high = (middle, high) if fits else (low, middle)
    return float(10**high)


def best_threshold(mu: float, inside: int, outside: int, delta: float, confidence: float) -> float:
    """The score above which `two_rates` is expected to prove most, chosen before any score is seen.
    Scores: N(0, 1) outside, N(mu, 1) inside.
    """

    def proves(at: float) -> float:
        hits, alarms = inside * stats.norm.sf(at - mu), outside * stats.norm.sf(at)
        return two_rates(round(hits), inside, round(alarms), outside, delta, confidence)

    return float(max(np.linspace(0, mu + 4, 60), key=proves))


def one_run_p(correct: int, guesses: int, canaries: int, eps: float, delta: float) -> float:
    """p of (eps, delta), of `correct` of `guesses` right ones about `canaries` fair coins, all in
    one run (Steinke, Nasr and Jagielski 2023, theorem 5.2).

    beta is the tail of Binomial(guesses, e^eps / (1 + e^eps)) from `correct` on. delta adds 2 m
    delta times the largest mean of the i probabilities just below that tail.
    """
    right = 1 / (1 + math.exp(-eps))
    beta = float(stats.binom.sf(correct - 1, guesses, right))
    if correct == 0 or delta == 0:
        return min(1.0, beta)
    below = stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, right)
    worst = float((np.cumsum(below) / np.arange(1, correct + 1)).max())
    return min(1.0, beta + 2 * canaries * delta * worst)


def one_run_eps(correct: int, guesses: int, canaries: int, delta: float, confidence: float) -> float:
    """eps at least, by `one_run_p`."""
    level = 1 - confidence
    if guesses == 0 or one_run_p(correct, guesses, canaries, 0.0, delta) > level:
        return 0.0
    high = 1.0
    while high < LARGEST_EPS and one_run_p(correct, guesses, canaries, high, delta) <= level:
        high *= 2
    low = high / 2 if high > 1 else 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        fits = one_run_p(correct, guesses, canaries, middle, delta) <= level
        low, high = (middle, high) if fits else (low, middle)
    return low


def best_guesses(mu: float, canaries: int, delta: float, confidence: float) -> int:
    """How many guesses `one_run_eps` is expected to prove most with, chosen before any score."""

    def proves(guesses: int) -> float:
        # |score - mu/2| of the surest guesses; each is right with probability 1 / (1 + e^-mu|.|)
        at = float(brentq(lambda t: _surer(mu, t) - guesses / canaries, 0, mu / 2 + 10))
        right = float(stats.norm.sf(at - mu / 2)) / _surer(mu, at)
        return one_run_eps(int(guesses * right), guesses, canaries, delta, confidence)

    tried = {max(2, round(canaries * share)) for share in (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)}
    return max(sorted(tried), key=proves)


def _surer(mu: float, at: float) -> float:
    """P(|score| >= at) of scores N(+-mu/2, 1)."""
    return float(stats.norm.sf(at - mu / 2) + stats.norm.sf(at + mu / 2))


# counts


def counts_p(counts: Array, trials: int, rate: float, fixed: bool) -> float:
    """p of equal inclusion: how often each of n units was drawn in `trials` draws at `rate`. fixed:
    each draw has the same number of units. Against any other spread, larger and smaller.
    """
    n = len(counts)
    expected, spread = trials * rate, trials * rate * (1 - rate)
    if spread == 0:
        return 1.0 if np.all(counts == expected) else 0.0
    squares = float(((counts - expected) ** 2).sum()) / spread
    return scale_p(squares * (n - 1) / n, n - 1) if fixed else scale_p(squares, n)


def share_p(hits: int, count: int, share: float) -> float:
    """p of a probability, two-sided."""
    return float(stats.binomtest(hits, count, share).pvalue) if count else 1.0


def even_p(counts: Array) -> float:
    """p of equal probabilities, against any other ones."""
    if len(counts) < 2 or counts.sum() < 5 * len(counts):
        return 1.0
    return float(stats.chisquare(counts).pvalue)


def mean_p(values: Array, mean: float, variance: float) -> float:
    """p of a mean, for independent values of known variance."""
    if variance == 0:
        return 1.0 if np.all(values == mean) else 0.0
    z = (float(values.mean()) - mean) / math.sqrt(variance / len(values))
    return min(1.0, 2 * float(stats.norm.sf(abs(z))))


def sizes_p(sizes: Array, population: int, rate: float) -> float:
    """p of binomial sizes: their mean and their spread."""
    variance = population * rate * (1 - rate)
    if variance == 0:
        return 1.0 if np.all(sizes == population * rate) else 0.0
    squares = float(((sizes - population * rate) ** 2).sum()) / variance
    return joint_p([mean_p(sizes, population * rate, variance), scale_p(squares, len(sizes))])
