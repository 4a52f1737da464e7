"""Epsilons against closed forms at 60 digits, published values and each other."""

import itertools
import math
import subprocess
import sys

import mpmath
import numpy as np
import pytest

from dpfl_bench.privacy.accounting import accountants_for, best, epsilon
from dpfl_bench.privacy.divergences import gaussian, renyi
from dpfl_bench.privacy.divergences.gaussian import delta_of_gaussian, eps_of_gaussian, mu_for
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.released.composition import Companion, Composition

pytestmark = pytest.mark.one_in(4)

# ---- the unsampled Gaussian ----


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 0.499, 0.5, 0.501, 1, 7, 100, 1e4])
@pytest.mark.parametrize("deviations", [0, 0.1, 1, 4, 9, 20, 36])
def test_delta_to_ten_digits(mu: float, deviations: float) -> None:
    for eps in (mu * deviations, mu * mu / 2 + mu * deviations):
        with mpmath.workdps(60):
            x, mu_ = mpmath.mpf(eps) / mpmath.mpf(mu) - mpmath.mpf(mu) / 2, mpmath.mpf(mu)
            exact = mpmath.ncdf(-x) - mpmath.exp(eps) * mpmath.ncdf(-x - mu_)
        if exact > mpmath.mpf("1e-300"):
            assert abs(float(delta_of_gaussian(mu, eps) / exact - 1)) < 1e-10


@pytest.mark.parametrize(("mu", "eps"), [(0.3, 0.5), (1.0, 2.0), (2.5, 0.0), (4.0, 15.0)])
def test_delta_is_the_hockey_stick(mu: float, eps: float) -> None:
    """delta = integral of max(0, p - e^eps q), p = N(mu, 1), q = N(0, 1)."""
    x = np.linspace(-15, 15 + mu, 400_001)
    gap = np.exp(-((x - mu) ** 2) / 2) - math.exp(eps) * np.exp(-(x**2) / 2)
    delta = np.maximum(gap, 0).sum() * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    assert delta_of_gaussian(mu, eps) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.5, 3.0, 100.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-10, 1e-5, 0.1, 0.9])
def test_inverses_err_on_the_private_side(mu: float, delta: float) -> None:
    eps = eps_of_gaussian(mu, delta)
    assert delta_of_gaussian(mu, eps) <= delta
    if eps > 0:
        assert delta_of_gaussian(mu, eps * (1 - 1e-9)) > delta
        assert mu * (1 - 1e-10) < mu_for(eps, delta) < mu
        assert eps_of_gaussian(mu_for(eps, delta), delta) <= eps


@pytest.mark.parametrize(
    ("mu", "eps"),
    [
        (2 / 0.7, 15.65812),
        (math.sqrt(49) * 0.4, 15.25705),
        (math.sqrt(50) * 0.4, 15.45616),
        (math.sqrt(50 * (0.16 + (1000 / (25 * 500)) ** 2)), 15.85091),
        (math.sqrt(50) * 2 / 0.7, 289.34),
    ],
)
def test_fedexp_table_1(mu: float, eps: float) -> None:
    """docs/papers.md, fedexp; the synthetic row has M = 1000 clients."""
    assert eps_of_gaussian(mu, 1e-5) == pytest.approx(eps, abs=6e-3 if eps > 100 else 6e-6)


@pytest.mark.parametrize(
    ("dimension", "times", "eps"),
    [(500, 49, 15.64620), (500, 50, 15.85091), (5046, 49, 15.26090), (5046, 50, 15.46005)],
)
def test_fedexp_table_1_with_its_norms(dimension: int, times: int, eps: float) -> None:
    """CDP-FedEXP, M = 1000, replace_one: sigma = 5 C is z = 2.5, and the norms' noise d sigma^2 / M
    is 4 d/M z^2 times C^2.
    """
    norms = Companion("norms", "squared", 4 * dimension / 1000)
    released = Composition("gaussian", times, companions=(norms,))
    assert epsilon(released, 2.5, 1e-5) == pytest.approx(eps, abs=6e-6)
    assert (
        epsilon(Composition("gaussian", times), 2.5, 1e-5) < eps - 1e-3
    )  # the negative control: the norms for free


@pytest.mark.parametrize("mu", [0.02, 0.1, 0.7, 3.0, 10.0, 18.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-5, 1e-2])
def test_three_accountants_of_the_gaussian(mu: float, delta: float) -> None:
    import dp_accounting as dpa

    released = Composition("gaussian", 16)
    exact, pld, rdp = (epsilon(released, 4 / mu, delta, name) for name in ("exact", "pld", "rdp"))
    assert exact - 1e-6 <= pld <= 1.01 * exact + 1e-6
    assert rdp >= exact
    library = dpa.rdp.RdpAccountant([1 + 1.1**k for k in range(-60, 80)])
    library.compose(dpa.GaussianDpEvent(4 / mu), 16)
    assert rdp <= library.get_epsilon(delta) * (1 + 1e-4)
    assert rdp == pytest.approx(library.get_epsilon(delta), rel=1e-2, abs=1e-6)


# ---- sampled releases (their lower bound: test_brackets.py) ----


def sampled(mechanism: str, sample: int, population: int, times: int) -> Composition:
    return Composition(mechanism, times, sample / population, population, sample)  # type: ignore[arg-type]


@pytest.mark.slow
def test_rdp_is_near_its_best_from_small_to_large_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = [1 + 1.1**k for k in range(-30, 80)]
    for z, times in ((20.0, 10), (3.0, 100), (0.7, 100), (0.35, 60)):
        ours = epsilon(sampled("poisson", 2, 20, times), z, 1e-5, "rdp")
        monkeypatch.setattr(renyi, "_REAL_ORDERS", grid)
        renyi._rdp.cache_clear()
        finest = epsilon(sampled("poisson", 2, 20, times), z, 1e-5, "rdp")
        monkeypatch.undo()
        renyi._rdp.cache_clear()
        assert ours <= finest * 1.01


def test_pld_refuses_what_its_rounding_cannot_resolve() -> None:
    """dp-accounting's FFT alone gives 2 % too little at delta = 1e-14 (10,000 releases at z = 100):
    ours says inf, `auto` takes RDP.
    """
    released = sampled("poisson", 10, 20, 10_000)
    assert epsilon(released, 100.0, 1e-13, "pld") == math.inf
    assert best(released, 100.0, 1e-13) == ("rdp", epsilon(released, 100.0, 1e-13, "rdp"))
    assert epsilon(released, 100.0, 1e-9, "pld") < epsilon(released, 100.0, 1e-9, "rdp")


@pytest.mark.parametrize(
    ("rate", "z", "kind", "value"),
    [(0.3, 1.2, "times", 1.5), (1.0, 0.9, "squared", 2.0), (0.05, 2.0, "squared", 0.2)],
)
def test_companions_by_a_sum_over_the_plane(rate: float, z: float, kind: str, value: float) -> None:
    """delta of one Poisson-sampled release of a sum and its companion, from their two densities:
    that of one sum with less noise.
    """
    companion = Companion("norms", kind, value)  # type: ignore[arg-type]
    other = companion.noise_multiplier(z)
    x, y = np.meshgrid(np.linspace(-8, 8 + 1 / z, 1501), np.linspace(-8, 8 + 1 / other, 1501))
    absent = np.exp(-(x**2 + y**2) / 2)
    present = (1 - rate) * absent + rate * np.exp(-((x - 1 / z) ** 2 + (y - 1 / other) ** 2) / 2)
    cell = (x[0, 1] - x[0, 0]) * (y[1, 0] - y[0, 0]) / (2 * math.pi)
    delta = float(np.maximum(present - math.exp(0.2) * absent, 0).sum() * cell)
    released = Composition("poisson", 1, rate, companions=(companion,))
    assert epsilon(released, z, delta, "pld") == pytest.approx(0.2, rel=2e-3)
    assert epsilon(released, 2 * z, delta, "pld") < 0.15


# ---- pure releases ----


def brute_force(pure: float, times: int, delta: float) -> float:
    """Eps of randomised response over all 2^times outcomes, by bisection."""
    p = 1 / (1 + math.exp(-pure))
    outcomes = list(itertools.product((p, 1 - p), repeat=times))
    pairs = [(math.prod(o), math.prod(1 - q for q in o)) for o in outcomes]
    low, high = 0.0, pure * times
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (
            (low, middle)
            if sum(max(0, a - math.exp(middle) * b) for a, b in pairs) <= delta
            else (middle, high)
        )
    return high


@pytest.mark.parametrize("pure", [0.01, 0.3, 2.0, 6.0])
@pytest.mark.parametrize("times", [1, 2, 5, 10])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_pure_against_all_outcomes(pure: float, times: int, delta: float) -> None:
    released = Composition("pure", times)
    found = epsilon(released, 1 / pure, delta)
    assert found == pytest.approx(brute_force(pure, times, delta), rel=1e-7, abs=1e-9)
    assert found <= epsilon(released, 1 / pure, delta, "basic") == pytest.approx(times * pure)


@pytest.mark.parametrize("times", [50, 500, 5000])
@pytest.mark.parametrize("pure", [0.01, 1.0, 6.0])
def test_pure_at_sixty_digits(pure: float, times: int) -> None:
    found = epsilon(Composition("pure", times), 1 / pure, 1e-5, "exact")

    def delta_at(eps: float) -> mpmath.mpf:
        p, total = 1 / (1 + mpmath.exp(-mpmath.mpf(pure))), mpmath.mpf(0)
        for tails in range((times + 1) // 2):
            loss = (times - 2 * tails) * mpmath.mpf(pure)
            if loss <= eps:
                break
            total += (
                mpmath.binomial(times, tails)
                * p ** (times - tails)
                * (1 - p) ** tails
                * (1 - mpmath.exp(eps - loss))
            )
        return total

    with mpmath.workdps(60):
        assert delta_at(found) <= 1e-5 < delta_at(found * (1 - 3e-9))


def test_pure_limits() -> None:
    for pure, times in ((0.3, 7), (6.0, 50), (1.0, 1)):
        released = Composition("pure", times)
        assert epsilon(released, 1 / pure, 1e-300, "exact") == pytest.approx(
            times * pure, rel=1e-6
        )  # nothing but delta = 0 left
        dressed = Composition("pure", times, scale=3.0, companions=(Companion("x", "times", 1.0),))
        assert epsilon(dressed, 1 / pure, 1e-5) == epsilon(released, 1 / pure, 1e-5)
    assert epsilon(Composition("pure", 50), 1 / 6, 1e-5, "basic") == pytest.approx(300)
    assert best(Composition("pure", 500), 10.0, 1e-5)[0] == "exact"
    assert (
        epsilon(Composition("pure", 5000), 100.0, 1e-5)
        < 3.0
        < epsilon(Composition("pure", 5000), 100.0, 1e-5, "basic")
    )
    assert [epsilon(Composition("pure", 5), z, 1e-5) for z in (0.0, math.inf)] == [math.inf, 0.0]
    assert epsilon(Composition("pure", 0), 0.0, 1e-5) == 0
    almost_gaussian = epsilon(Composition("pure", 10_000), 100.0, 1e-5)
    assert almost_gaussian == pytest.approx(eps_of_gaussian(1.0, 1e-5), rel=2e-2)


# ---- what is asked and answered ----


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["gaussian", "poisson", "fixed", "pure"])
def test_monotone_and_consistent(mechanism: str) -> None:
    made = [sampled(mechanism, 4, 20, times) for times in (1, 5, 25)]
    for name in accountants_for(made[0]):
        values = np.array([[epsilon(c, z, 1e-5, name) for z in (0.6, 1.0, 3.0)] for c in made])
        assert (np.diff(values, axis=0) > 0).all()
        assert (np.diff(values, axis=1) < 0).all()
        assert epsilon(made[0], 0.0, 1e-5, name) == math.inf
        assert epsilon(sampled(mechanism, 4, 20, 0), 0.0, 1e-5, name) == 0
    assert best(made[1], 1.0, 1e-5)[1] == min(
        epsilon(made[1], 1.0, 1e-5, name) for name in accountants_for(made[1])
    )


def test_alternatives_and_scale() -> None:
    amplified, known = sampled("fixed", 4, 20, 10), Composition("gaussian", 6)
    both = epsilon((amplified, known), 1.0, 1e-5)
    assert both == min(epsilon(amplified, 1.0, 1e-5), epsilon(known, 1.0, 1e-5))
    assert epsilon(Composition("gaussian", 6, scale=3.0), 1.0, 1e-5) == epsilon(known, 3.0, 1e-5)


def test_noise_beyond_measure_costs_hardly_anything() -> None:
    lots = Composition("fixed", 60, 0.25, 12, 3, rounds=((10, 6),), share=0.5)
    for composition in (lots, sampled("poisson", 4, 20, 10), Composition("gaussian", 6)):
        assert 0 <= epsilon(composition, 1e9, 1e-5) < 1e-4


def test_refusals() -> None:
    released = sampled("poisson", 4, 20, 10)
    for arguments, words in (
        ((released, 1.0, 1e-5, "exact"), "not valid for poisson"),
        ((released, 1.0, 1e-5, "gdp"), "expected one of auto"),
        (
            (released, 1.0, 1e-5, "basic"),
            r"not valid for poisson: .*\(use privacy.accountant=auto or privacy.accountant=pld",
        ),
        (
            (Composition("pure", 3), 1.0, 1e-5, "pld"),
            r"not valid for pure: .*\(use privacy.accountant=auto or privacy.accountant=basic",
        ),
        (
            (Composition("gaussian", 3, share=0.5, rounds=((3, 1),)), 1.0, 1e-5, "exact"),
            "not valid for participation",
        ),
        ((released, 1.0, 0.0, "auto"), "delta=0.0"),
        ((released, -1.0, 1e-5, "auto"), "noise_multiplier=-1.0"),
        ((released, math.nan, 1e-5, "auto"), "noise_multiplier=nan"),
    ):
        with pytest.raises(PrivacyError, match=words):
            epsilon(*arguments)


def test_importing_costs_no_heavy_library() -> None:
    modules = "accounting, calibration"
    code = (
        f"import sys; from dpfl_bench.problems import theory; from dpfl_bench.privacy import {modules};"
        " print(*sys.modules)"
    )
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert "dpfl_bench.privacy.accounting" in loaded
    assert not loaded & {"torch", "dp_accounting", "scipy", "opacus"}


def test_gauss_legendre_nodes() -> None:
    nodes, weights = np.polynomial.legendre.leggauss(8)
    ours = sorted(itertools.chain.from_iterable(((n, w), (-n, w)) for n, w in gaussian._GAUSS_LEGENDRE))
    np.testing.assert_allclose(ours, list(zip(nodes, weights, strict=True)), atol=1e-15)
