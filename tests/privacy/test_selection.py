"""Private selection: the theorems' bounds against exact distributions of the best of K trials, a
second derivation, and dp-accounting.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import dp_accounting as dpa
import numpy as np
import pytest
from scipy import stats

from dpfl_bench.privacy import accounting, selection
from dpfl_bench.privacy.divergences.gaussian import delta_of_gaussian, eps_of_gaussian
from dpfl_bench.privacy.divergences.pure import pure_epsilon, pure_rdp
from dpfl_bench.privacy.divergences.renyi import CLOSED_ORDERS
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.released.composition import Companion, Composition
from dpfl_bench.privacy.selection import Trial, trial

pytestmark = pytest.mark.one_in(6)

DELTA = 1e-5
MEANS = (1.5, 3.0, 10.0, 30.0)
CASES = [(d, m) for d in selection.DISTRIBUTIONS for m in MEANS]


def gaussian(mu: float) -> Trial:
    return trial([(Composition("gaussian", 1), 1 / mu)])


def counts(distribution: str, mean: float) -> np.ndarray:
    """P[K = k] for k = 0, 1, ... from the definitions: all but 1e-16 of the mass."""
    if distribution == "poisson":
        return np.asarray(stats.poisson.pmf(np.arange(int(mean + 30 * math.sqrt(mean) + 60)), mean))
    if distribution == "geometric":
        q = 1 - 1 / mean
        k = np.arange(1, int(40 / -math.log(q)) + 2)
        return np.append(0, q ** (k - 1) / mean)
    q = solved(lambda q: -q / ((1 - q) * math.log1p(-q)) - mean)
    k = np.arange(1, int(40 / -math.log(q)) + 2)
    return np.append(0, q**k / (-k * math.log1p(-q)))


def solved(f: Callable[[float], float], low: float = 1e-12, high: float = 1 - 1e-12) -> float:
    """The zero of an increasing function."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) < 0 else (low, middle)
    return low


def best_of(q: np.ndarray, pmf: np.ndarray) -> np.ndarray:
    """The exact distribution of the best of K draws of outputs 0 < 1 < ... with probabilities q;
    last, that of no draw at all.

    F^k - G^k = (F - G) (F^(k-1) + F^(k-2) G + ... + G^(k-1)), F and G being P(at most y) and
    P(below y): nothing cancels.
    """
    below = np.append(0, np.cumsum(q)[:-1])
    at_most = below + q
    made, terms, power = np.zeros_like(q), np.zeros_like(q), np.ones_like(q)
    for p in pmf[1:]:
        terms, power = terms * below + power, power * at_most
        made += p * q * terms
    return np.append(made, pmf[0])


def divergence(p: np.ndarray, q: np.ndarray, a: float) -> float:
    held = p > 0  # best outputs that underflow have no part in a sum
    logs = a * np.log(p[held]) + (1 - a) * np.log(q[held])
    return float(np.logaddexp.reduce(logs) / (a - 1))


def hockey_stick(p: np.ndarray, q: np.ndarray, eps: float) -> float:
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())


def exact_epsilon(p: np.ndarray, q: np.ndarray, delta: float) -> float:
    return solved(lambda eps: delta - max(hockey_stick(p, q, eps), hockey_stick(q, p, eps)), 0.0, 200.0)


def binned(mu: float, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """N(0, 1) and N(mu, 1) in bins: a pair of finite distributions whose divergences are at most
    the Gaussians'.
    """
    edges = np.concatenate([[-np.inf], np.linspace(-7, 7 + mu, count - 1), [np.inf]])

    def cells(mean: float) -> np.ndarray:
        x = edges - mean
        return np.where(
            x[:-1] > 0, -np.diff(stats.norm.sf(x)), np.diff(stats.norm.cdf(x))
        )  # each tail from its own end

    return cells(0.0), cells(mu)


def responses(eps: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs that are eps-DP: randomised response, and a rare output that eps moves as far as it
    may.
    """
    p = math.exp(eps) / (1 + math.exp(eps))
    rare = 1e-3
    pairs = [(np.array([p, 1 - p]), np.array([1 - p, p]))]
    pairs.append((np.array([1 - rare, rare]), np.array([1 - rare * math.exp(eps), rare * math.exp(eps)])))
    pairs.append((np.array([rare, 1 - rare]), np.array([rare * math.exp(eps), 1 - rare * math.exp(eps)])))
    return pairs


def both_ways(pairs: list[tuple[np.ndarray, np.ndarray]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Either neighbour first, and the outputs ranked in either way."""
    return [pair for p, q in pairs for pair in ((p, q), (q, p), (p[::-1], q[::-1]), (q[::-1], p[::-1]))]


@pytest.mark.parametrize(("distribution", "mean"), CASES)
def test_no_exact_divergence_is_above_the_bound(distribution: str, mean: float) -> None:
    """Gaussians in bins and randomised response, at every order up to 500."""
    pmf = counts(distribution, mean)
    assert pmf.sum() == pytest.approx(1, abs=1e-12)
    assert pmf @ np.arange(len(pmf)) == pytest.approx(mean, rel=1e-9)
    for one, pairs in (
        *((gaussian(mu), [binned(mu)]) for mu in (0.1, 0.5, 2.0)),
        *((trial([(Composition("pure", 1), 1 / eps)]), responses(eps)) for eps in (0.1, 1.0, 3.0)),
    ):
        bound = selection.divergences(one, distribution, mean)
        for p, q in both_ways(pairs):
            selected = best_of(p, pmf), best_of(q, pmf)
            for a, limit in zip(one.orders, bound, strict=True):
                if a < 500:
                    assert divergence(*selected, a) <= limit + 1e-9, (a, mean)


@pytest.mark.parametrize(("distribution", "mean"), CASES)
@pytest.mark.parametrize("mu", [0.2, 0.48, 1.0])
def test_eps_holds_and_is_not_absurdly_loose(distribution: str, mean: float, mu: float) -> None:
    """The best of K Gaussians, in either order: exact eps at delta against the bound's, which
    covers every pair (seen: 1.2 to 2.3).
    """
    pmf, one = counts(distribution, mean), gaussian(mu)
    exact = max(
        exact_epsilon(best_of(p, pmf), best_of(q, pmf), DELTA) for p, q in both_ways([binned(mu, 2000)])
    )
    assert exact <= selection.epsilon(one, DELTA, distribution, mean) <= 2.4 * exact
    if mean > 2:
        assert exact > 1.01 * eps_of_gaussian(mu, DELTA), "the best of several is less private than one"


def generic(mu: float, distribution: str, mean: float, a: float) -> float:
    """A second derivation, by the generating function f of K: P(best <= y) = f(F(y)), so the best
    has density q(y) f'(F(y)) and D_a(best, best') <= D_a(Q, Q') + sup over y of log(f'(F(y))^a
    f'(F'(y))^(1 - a)) / (a - 1), here for N(0, 1) and N(mu, 1).
    """
    pmf = counts(distribution, mean)
    k = np.arange(1, len(pmf))
    y = np.linspace(-12, 12 + mu, 800)
    worst = -math.inf
    for sign in (1, -1):  # whether large or small is best
        logs = [
            np.log((k * pmf[1:] * stats.norm.cdf(sign * (y - m))[:, None] ** (k - 1)).sum(axis=1))
            for m in (0, mu)
        ]
        worst = max(worst, *(float((a * f - (a - 1) * g).max()) for f, g in itertools.permutations(logs)))
    return float(np.logaddexp((a - 1) * a * mu**2 / 2 + worst, math.log(pmf[0]) if pmf[0] else -math.inf)) / (
        a - 1
    )


@pytest.mark.parametrize(
    ("distribution", "mean"), [(d, m) for d in selection.DISTRIBUTIONS for m in (3.0, 8.0)]
)
@pytest.mark.parametrize("mu", [0.2, 1.0])
def test_between_the_exact_and_the_bound_lies_the_second_derivation(
    distribution: str, mean: float, mu: float
) -> None:
    one, pmf = gaussian(mu), counts(distribution, mean)
    selected = [(best_of(p, pmf), best_of(q, pmf)) for p, q in both_ways([binned(mu)])]
    for a, limit in list(zip(one.orders, selection.divergences(one, distribution, mean), strict=True))[
        24:80:8
    ]:
        exact = max(divergence(p, q, a) for p, q in selected)
        between = generic(mu, distribution, mean, a)
        assert exact <= between * (1 + 1e-9)
        assert between <= limit * (1 + 1e-9)


def theorem(one: Trial, distribution: str, mean: float, *, without: str = "") -> np.ndarray:
    """Theorems 2 and 6 written down once more, term by term, with one term left out."""
    a, d = one.orders, one.divergences
    log_mean = 0.0 if without == "log E[K]" else math.log(mean)
    base = 0.0 * d if without == "D(a)" else d
    if distribution == "poisson":
        deltas = np.array([0.0 if without == "delta" else one.delta(math.log(e / (e - 1))) for e in a])
        return np.asarray(base + mean * deltas + log_mean / (a - 1))
    log_gamma = math.log(selection.gamma(distribution, mean))
    shape = {"geometric": 1, "logarithmic": 0}[distribution]
    second = min(
        (1 - 1 / b) * (0.0 if without == "D(b)" else e) - log_gamma / b for b, e in zip(a, d, strict=True)
    )
    if without == "1/gamma":
        second = min((1 - 1 / b) * e for b, e in zip(a, d, strict=True))
    return np.asarray(
        base + (shape if without == "1 of 1 + eta" else 1 + shape) * second + log_mean / (a - 1)
    )


def violated(
    one: Trial, bound: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray]], pmf: np.ndarray
) -> bool:
    for p, q in both_ways(pairs):
        selected = best_of(p, pmf), best_of(q, pmf)
        if any(
            divergence(*selected, a) > limit * (1 + 1e-9)
            for a, limit in zip(one.orders, bound, strict=True)
            if a < 500
        ):
            return True
    return False


def three(eps: float, top: float, middle: float) -> tuple[np.ndarray, np.ndarray]:
    """eps one way at the best output, eps the other way at the second best."""
    e = math.exp(eps)
    return np.array([1 - middle * e - top, middle * e, top]), np.array(
        [1 - middle - top * e, middle, top * e]
    )


TERMS = {
    "geometric": ("D(a)", "D(b)", "1/gamma", "1 of 1 + eta"),
    "logarithmic": ("D(a)", "D(b)", "1/gamma"),
    "poisson": ("D(a)", "delta", "log E[K]"),
}


@pytest.mark.parametrize(("distribution", "term"), [(d, t) for d, terms in TERMS.items() for t in terms])
def test_without_one_of_its_terms_the_bound_is_wrong(distribution: str, term: str) -> None:
    """The negative control. (No pair was found that needs log E[K] under the negative binomials:
    Corollary 4 holds that one.)
    """
    pmf, caught = counts(distribution, 10), []
    for eps in (0.3, 1.0, 3.0):
        one = trial([(Composition("pure", 1), 1 / eps)])
        pairs = [*responses(eps), *([three(eps, 0.3, 0.1)] if eps < 1 else [])]
        assert not violated(one, selection.divergences(one, distribution, 10), pairs, pmf)
        assert not violated(one, theorem(one, distribution, 10) + 0.01, pairs, pmf)
        caught.append(violated(one, theorem(one, distribution, 10, without=term), pairs, pmf))
    assert any(caught)


@pytest.mark.parametrize(("distribution", "mean"), CASES)
def test_the_theorems_written_down_once_more(distribution: str, mean: float) -> None:
    for one in (gaussian(0.5), trial([(Composition("pure", 20), 10.0)])):
        ours, theirs = selection.divergences(one, distribution, mean), theorem(one, distribution, mean)
        if distribution == "poisson":  # and the outcome K = 0, e^-mean of it, which Theorem 6 leaves out
            theirs = np.logaddexp(-mean, (one.orders - 1) * theirs) / (one.orders - 1)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_theorem_6_as_printed_is_wrong_for_few_trials() -> None:
    """Mean .01: the best of hardly any trial is said to have a negative divergence; ours covers the
    exact one.
    """
    p, q = responses(1.0)[0]
    one, pmf = trial([(Composition("pure", 1), 1.0)]), counts("poisson", 0.01)
    assert theorem(one, "poisson", 0.01)[10] < 0
    assert violated(one, theorem(one, "poisson", 0.01), [(p, q)], pmf)
    assert not violated(one, selection.divergences(one, "poisson", 0.01), [(p, q)], pmf)


@pytest.mark.parametrize("shape", [("geometric", 1), ("logarithmic", 0)])
@pytest.mark.parametrize(("eps", "mean"), [(1.0, 1000.0), (0.1, 10.0)])
def test_corollary_3_pure_runs_cost_two_or_three_eps(shape: tuple[str, int], eps: float, mean: float) -> None:
    """(2 + eta) eps for eps-DP: at the largest orders, and at a delta of nearly nothing."""
    distribution, eta = shape
    one = trial([(Composition("pure", 1), 1 / eps)])
    assert selection.divergences(one, distribution, mean)[-1] == pytest.approx((2 + eta) * eps, rel=1e-3)
    assert selection.epsilon(one, 1e-30, distribution, mean) == pytest.approx((2 + eta) * eps, rel=1e-2)


@pytest.mark.parametrize("shape", [("geometric", 1), ("logarithmic", 0)])
@pytest.mark.parametrize(("rho", "mean"), [(0.01, 5.0), (0.1, 50.0), (1.0, 20.0)])
def test_corollary_4_gaussian_runs_in_closed_form(shape: tuple[str, int], rho: float, mean: float) -> None:
    """rho-zCDP, rho <= log(1/gamma): rho (a - 1) + log E[K] / (a - 1) + 2 (1 + eta) sqrt(rho
    log(1/gamma)) - eta rho at large orders a.
    """
    distribution, eta = shape
    log_gamma = math.log(1 / selection.gamma(distribution, mean))
    assert rho <= log_gamma
    one = gaussian(math.sqrt(2 * rho))
    a = one.orders
    told = rho * (a - 1) + math.log(mean) / (a - 1) + 2 * (1 + eta) * math.sqrt(rho * log_gamma) - eta * rho
    np.testing.assert_allclose(
        selection.divergences(one, distribution, mean), told, rtol=2e-3
    )  # b is on a grid, 9 % apart


@pytest.mark.parametrize(
    ("distribution", "shape"), [("geometric", 1.0), ("logarithmic", 0.0), ("poisson", math.inf)]
)
@pytest.mark.parametrize("mean", [2.0, 10.0, 50.0])
def test_dp_accounting_says_the_same(distribution: str, shape: float, mean: float) -> None:
    orders = [1.0, *CLOSED_ORDERS]
    for sigma, times in ((1.0, 1), (20.0, 100)):
        accountant = dpa.rdp.RdpAccountant(orders, dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)
        release = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(sigma), times)
        accountant.compose(dpa.dp_event.RepeatAndSelectDpEvent(release, mean, shape))
        one = trial([(Composition("gaussian", times), sigma)])
        if (
            distribution == "poisson"
        ):  # theirs takes delta from the divergences, ours the Gaussian's own, which is less
            one = Trial(one.orders, one.divergences, None)
        ours = selection.epsilon(one, DELTA, distribution, mean)
        assert ours == pytest.approx(
            accountant.get_epsilon(DELTA), rel=1e-3 if distribution == "poisson" else 1e-6
        )


def test_a_gaussians_own_delta_is_less_than_what_its_divergences_tell() -> None:
    one = gaussian(0.5)
    looser = Trial(one.orders, one.divergences, None)
    for eps in (0.01, 0.1, 1.0):
        assert delta_of_gaussian(0.5, eps) == one.delta(eps) < looser.delta(eps)
    assert selection.epsilon(one, DELTA, "poisson", 10) < selection.epsilon(looser, DELTA, "poisson", 10)


@pytest.mark.parametrize("distribution", ["geometric", "logarithmic"])
def test_one_trial_costs_what_a_run_costs(distribution: str) -> None:
    for c, z in (
        (Composition("gaussian", 20), 10.0),
        (Composition("pure", 20), 10.0),
        (Composition("poisson", 100, rate=0.1), 1.0),
    ):
        base = dpa.rdp.rdp_privacy_accountant.compute_epsilon(*accounting.renyi(c, z), DELTA)[0]
        one = trial([(c, z)])
        assert selection.epsilon(one, DELTA, distribution, 1) == pytest.approx(base, rel=1e-9)
        assert selection.epsilon(one, DELTA, distribution, 1 + 1e-9) == pytest.approx(base, rel=1e-3)


@pytest.mark.parametrize("distribution", selection.DISTRIBUTIONS)
def test_more_trials_and_less_noise_cost_more(distribution: str) -> None:
    by_mean = [
        selection.epsilon(gaussian(0.5), DELTA, distribution, m) for m in (1.0, 1.5, 2, 4, 8, 16, 64, 256)
    ]
    by_noise = [selection.epsilon(gaussian(mu), DELTA, distribution, 10) for mu in (0.01, 0.1, 0.5, 1, 3)]
    by_delta = [selection.epsilon(gaussian(0.5), delta, distribution, 10) for delta in (1e-3, 1e-5, 1e-9)]
    for rising in (by_mean, by_noise, by_delta):
        assert rising == sorted(rising)
        assert len(set(rising)) == len(rising)


@pytest.mark.parametrize("mean", [1.0, 1 + 1e-6, 1.5, 3.0, 50.0, 1e6])
def test_gamma_gives_the_mean(mean: float) -> None:
    geometric, logarithmic = selection.gamma("geometric", mean), selection.gamma("logarithmic", mean)
    assert 1 / geometric == pytest.approx(mean)
    told = 1.0 if logarithmic == 1 else (1 / logarithmic - 1) / -math.log(logarithmic)
    assert told == pytest.approx(mean, rel=1e-6)
    assert told >= mean * (1 - 1e-9), "rounded down, the private way"


def test_a_trial_that_draws_its_candidate_is_no_worse_than_the_worst() -> None:
    """Uniform over two Gaussians, which one being part of the output: exact divergence against the
    largest.
    """
    pairs = [binned(0.2), binned(1.0)]
    mixed = tuple(np.concatenate([pair[i] for pair in pairs]) / 2 for i in (0, 1))
    one = trial(
        [
            (Composition("gaussian", 1), 5.0),
            (Composition("gaussian", 4), 2.0),
            (Composition("gaussian", 1), 5.0),
        ]
    )
    assert one.mu == 1.0
    np.testing.assert_allclose(one.divergences, gaussian(1.0).divergences, rtol=1e-12)
    for a, limit in zip(one.orders, one.divergences, strict=True):
        if a < 200:
            assert divergence(mixed[0], mixed[1], a) <= limit


def test_unlike_candidates_are_compared_at_every_order() -> None:
    """Between the orders of a sampled Gaussian a chord is above it, and beyond its last order
    nothing is known.
    """
    sampled, plain = (Composition("fixed", 100, 0.1, 100, 10), 2.0), (Composition("gaussian", 1), 10.0)
    one, alone = trial([sampled, plain]), trial([sampled])
    assert one.mu is None
    assert np.isinf(one.divergences[one.orders > 2048]).all()
    assert np.isfinite(one.divergences[one.orders <= 2048]).all()
    assert np.diff(one.divergences[one.orders <= 2048]).min() >= -1e-12
    both = np.isin(one.orders, alone.orders)
    np.testing.assert_allclose(
        one.divergences[both], np.maximum(alone.divergences, alone.orders / 200), rtol=1e-12
    )
    assert selection.epsilon(one, DELTA, "geometric", 5) >= selection.epsilon(
        alone, DELTA, "geometric", 5
    ) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("composition", "z"),
    [
        (Composition("gaussian", 7, scale=3.0, companions=(Companion("norms", "times", 2.0),)), 1.5),
        (Composition("poisson", 50, rate=0.2, scale=2.0), 0.7),
        (Composition("fixed", 50, 0.2, 100, 20), 1.5),
        (Composition("poisson", 60, rate=0.2, share=0.5, rounds=((3, 20),)), 1.2),
    ],
)
def test_the_divergences_of_a_run_give_its_eps(composition: Composition, z: float) -> None:
    """`renyi` is what the accountant `rdp` converts (for a Gaussian over a grid of orders in place
    of all).
    """
    told = dpa.rdp.rdp_privacy_accountant.compute_epsilon(*accounting.renyi(composition, z), DELTA)[0]
    assert told == pytest.approx(accounting.epsilon(composition, z, DELTA, "rdp"), rel=1e-3)


def test_the_divergences_of_pure_runs_are_those_of_randomised_response() -> None:
    for eps in (1e-3, 0.1, 1.0, 5.0):
        orders, curve = pure_rdp(eps, 1)
        p, q = responses(eps)[0]
        for a, found in zip(orders, curve, strict=True):
            if a < 100:
                assert found == pytest.approx(divergence(p, q, a), rel=1e-6, abs=1e-12)
        assert curve.max() <= eps
        for p, q in both_ways(responses(min(eps, 3.0))[1:]):
            assert all(
                divergence(p, q, a) <= found + 1e-12
                for a, found in zip(orders, pure_rdp(min(eps, 3.0), 1)[1], strict=True)
                if a < 100
            )
    told = dpa.rdp.rdp_privacy_accountant.compute_epsilon(*pure_rdp(0.1, 100), DELTA)[0]
    assert pure_epsilon(0.1, 100, DELTA) <= told <= 1.1 * pure_epsilon(0.1, 100, DELTA)


@pytest.mark.parametrize(
    ("distribution", "mean", "said"),
    [
        ("binomial", 5, "geometric, logarithmic, poisson"),
        *[
            ("geometric", 0.5, "mean >= 1"),
            ("geometric", math.nan, "mean >= 1"),
            ("logarithmic", math.inf, "mean >= 1"),
        ],
        *[("poisson", 0.0, "mean > 0"), ("poisson", math.nan, "mean > 0")],
    ],
)
def test_what_cannot_be_is_refused(distribution: str, mean: float, said: str) -> None:
    with pytest.raises(PrivacyError, match=said):
        selection.epsilon(gaussian(1.0), DELTA, distribution, mean)
