"""The power of the best test of two neighbours: against the privacy profile, mechanisms that attain
it, and draws.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpfl_bench.privacy.divergences.distinguishing import power_at_most, power_of_gaussian
from dpfl_bench.privacy.divergences.gaussian import delta_of_gaussian, mu_for
from dpfl_bench.privacy.refusals import PrivacyError

ALARMS = (0.05, 0.01, 0.3)


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("alarms", ALARMS)
def test_a_gaussian_attains_its_whole_profile(mu: float, alarms: float) -> None:
    """The least bound of all (eps, delta) of the profile is the power. It is that of the eps at
    which the test decides: the logarithm of the likelihood ratio at its threshold.
    """
    decides = abs(mu * norm.isf(alarms) - mu**2 / 2)
    pairs = [(eps, delta_of_gaussian(mu, eps)) for eps in (decides, *np.linspace(1e-4, 5 * mu, 100))]
    first, *bounds = [power_at_most(eps, delta, alarms) for eps, delta in pairs if 0 < delta < 1]
    power = power_of_gaussian(mu, alarms)
    assert first == pytest.approx(power, rel=1e-9)
    assert all(bound >= power - 1e-12 for bound in bounds)
    assert max(bounds) > power + 1e-3
    assert power == pytest.approx(norm.cdf(norm.ppf(alarms) + mu), rel=1e-12)


@pytest.mark.parametrize("eps", [0.1, 1.0, 4.0])
def test_randomised_response_attains_the_bound(eps: float) -> None:
    """One bit, told with probability p = e^eps / (1 + e^eps): the test that believes it has false
    alarms 1 - p and power p.
    """
    told = math.exp(eps) / (1 + math.exp(eps))
    assert power_at_most(eps, 1e-15, 1 - told) == pytest.approx(told)


@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_the_bound_at_its_ends(delta: float) -> None:
    """eps = 0: a mechanism that fails with probability delta, and tells nothing else."""
    for alarms in ALARMS:
        assert power_at_most(1e-12, delta, alarms) == pytest.approx(alarms + delta)
        assert power_at_most(1e4, delta, alarms) == 1
        powers = [power_at_most(eps, delta, alarms) for eps in (0.1, 1.0, 5.0, 30.0)]
        assert powers == sorted(powers)
        assert alarms < powers[0] <= powers[-1] <= 1


def test_draws() -> None:
    """Ten releases of noise 2: their mean is the best test. Noise that is 10 % off is noticed."""
    draws, releases, noise, alarms = 200_000, 10, 2.0, 0.05
    mu = math.sqrt(releases) / noise
    dice = np.random.default_rng(3)
    without = dice.normal(0, noise, (draws, releases)).mean(axis=1)
    with_client = dice.normal(1, noise, (draws, releases)).mean(axis=1)
    threshold = norm.isf(alarms) * noise / math.sqrt(releases)
    assert (without > threshold).mean() == pytest.approx(alarms, abs=4 * math.sqrt(0.05 * 0.95 / draws))
    found = (with_client > threshold).mean()
    error = 4 * math.sqrt(found * (1 - found) / draws)
    assert power_of_gaussian(mu, alarms) == pytest.approx(found, abs=error)
    assert abs(power_of_gaussian(mu / 1.1, alarms) - found) > error


def test_of_a_budget() -> None:
    """eps = 2 at delta = 1e-5, as docs/privacy.md has it."""
    mu = mu_for(2, 1e-5)
    assert power_of_gaussian(mu, 0.05) == pytest.approx(0.1265, abs=5e-5)
    assert power_of_gaussian(mu, 0.01) == pytest.approx(0.0340, abs=5e-5)
    assert power_of_gaussian(math.inf, 0.05) == 1
    assert power_of_gaussian(0, 0.05) == pytest.approx(0.05)


def test_false_alarms_are_a_rate() -> None:
    for alarms in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(PrivacyError, match="false alarms"):
            power_of_gaussian(1, alarms)
        with pytest.raises(PrivacyError, match="false alarms"):
            power_at_most(1, 1e-5, alarms)
