"""Opacus' PRV accountant, against our PLDs, the closed form, and numbers of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.command import call
from scipy.stats import norm

from dpfl_bench.privacy import accounting, refusals
from dpfl_bench.privacy.accountants import prv, table
from dpfl_bench.privacy.accounting import best, epsilon
from dpfl_bench.privacy.calibration import calibrate, max_rounds
from dpfl_bench.privacy.divergences import participation
from dpfl_bench.privacy.refusals import OutOfReach, PrivacyError
from dpfl_bench.privacy.released.composition import Companion, Composition
from dpfl_bench.privacy.released.records import RecordReleases

POISSON = [  # rate, times, noise multiplier, delta
    (0.01, 1000, 0.8, 1e-6),
    (0.1, 100, 4.0, 1e-5),
    (0.5, 1, 1.0, 1e-5),
    (0.9, 20, 2.0, 1e-8),
    (0.1, 10, 0.2, 1e-6),
    (0.1, 100, 4.0, 1e-10),
    (0.02, 500, 2.0, 1e-6),
]


def lower_pld(rate: float, times: int, noise: float, delta: float) -> float:
    """What is really spent, or less: dp-accounting's PLD, rounded down by at most 2 % of eps."""
    from dp_accounting.pld import privacy_loss_distribution

    step = 0.02 * epsilon(Composition("poisson", times, rate), noise, delta, "pld") / times
    single = privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=step,
        pessimistic_estimate=False,
        use_connect_dots=False,
    )
    return float(single.self_compose(times).get_epsilon_for_delta(delta))


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "times", "noise", "delta"), POISSON)
def test_against_pld(rate: float, times: int, noise: float, delta: float) -> None:
    """Not below what is spent, and at most 1 % above our own PLD."""
    released = Composition("poisson", times, rate)
    low, high = lower_pld(rate, times, noise, delta), 1.01 * epsilon(released, noise, delta, "pld")
    assert low <= epsilon(released, noise, delta, "prv") <= high
    for wrong in (0.9, 1.1):  # the negative control: a noise 10 % off
        assert not low <= epsilon(released, wrong * noise, delta, "prv") <= high


@pytest.mark.parametrize(
    ("times", "noise", "delta"), [(1, 1.0, 1e-5), (100, 20.0, 1e-6), (1, 50.0, 1e-5), (4, 0.5, 1e-5)]
)
def test_against_the_closed_form(times: int, noise: float, delta: float) -> None:
    released = Composition("gaussian", times)
    exact = epsilon(released, noise, delta, "exact")
    assert exact <= epsilon(released, noise, delta, "prv") <= 1.01 * exact
    assert epsilon(released, 0.9 * noise, delta, "prv") > 1.01 * exact
    assert epsilon(released, 1.1 * noise, delta, "prv") < exact


def test_known_values_of_opacus() -> None:
    """opacus/tests/accountants_test.py: z = 1.5, q = .04, 2249 steps. Its eps_error is .01, so its
    upper end is looser by at most that and what two orders of the neighbours do not change.
    """
    ours = epsilon(Composition("poisson", 2249, 0.04), 1.5, 1e-5, "prv")
    assert ours == pytest.approx(6.777395712150674, abs=0.02)
    from opacus.accountants import PRVAccountant  # takes a second

    theirs = PRVAccountant()
    theirs.history = [(0.8, 0.01, 1000)]
    eps_error = 0.01
    known = theirs.get_epsilon(1e-6, eps_error=eps_error)
    assert known - 2 * eps_error <= epsilon(Composition("poisson", 1000, 0.01), 0.8, 1e-6, "prv") <= known


@pytest.mark.parametrize(("rate", "times", "noise"), [(0.3, 40, 1.5), (0.05, 300, 0.9)])
def test_each_order_of_the_neighbours(rate: float, times: int, noise: float) -> None:
    """Opacus has one of them; the other is ours. Each against our own mixture of losses."""
    answers = {}
    for order in ("present", "absent"):
        answers[order] = prv._of_one_order(order == "present", rate, noise, times, 1e-5)
        ours = participation._participation(order, rate, noise, 1.0, ((times, 1),), 1e-5)
        assert answers[order] == pytest.approx(ours, rel=5e-3)
    assert answers["present"] > 1.01 * answers["absent"]  # so that neither can pass for the other


@pytest.mark.parametrize(("rate", "noise"), [(0.3, 1.5), (0.01, 0.6)])
def test_the_other_orders_distribution(rate: float, noise: float) -> None:
    """P(log(Q/P) <= t) under Q by counting draws of Q on an even grid of its quantiles."""
    x = noise * norm.ppf((np.arange(400_000) + 0.5) / 400_000)
    loss = -np.log1p(rate * np.expm1((2 * x - 1) / (2 * noise**2)))
    for t in (*np.quantile(loss, [0.001, 0.2, 0.7]), 0.99 * -math.log1p(-rate), -math.log1p(-rate), 1.0):
        assert prv._Absent(rate, noise).cdf(t) == pytest.approx((loss <= t).mean(), abs=1e-5)


def test_companions_and_scale_count() -> None:
    released = Composition("poisson", 50, 0.2, scale=2.0, companions=(Companion("norms", "times", 3.0),))
    joint = released.joint(1.0) * 2.0
    assert epsilon(released, 1.0, 1e-5, "prv") == epsilon(Composition("poisson", 50, 0.2), joint, 1e-5, "prv")


def test_auto_never_asks_it() -> None:
    for released in (Composition("gaussian", 3), Composition("poisson", 10, 0.1)):
        assert "prv" not in accounting.accountants_for(released)
        assert accounting.by_name_only(released) == ("prv",)
        assert best(released, 2.0, 1e-5)[0] != "prv"


@pytest.mark.parametrize(
    "released",
    [
        Composition("fixed", 10, 0.2, 10, 2),  # lots without replacement, replace_one
        Composition("pure", 10),
        Composition("gaussian", 30, share=0.5, rounds=((3, 10),)),
        Composition("poisson", 30, 0.1, share=0.5, rounds=((3, 10),)),
    ],
)
def test_not_valid_elsewhere(released: Composition) -> None:
    assert accounting.by_name_only(released) == ()
    with pytest.raises(PrivacyError, match=r"accountant=prv: not valid for .* unsampled or Poisson-sampled"):
        epsilon(released, 2.0, 1e-5, "prv")


@pytest.mark.parametrize(
    ("times", "noise", "delta"),
    [(10, 2.0, 1e-13), (10, 0.01, 1e-5), (10**12, 1e4, 1e-5)],
    ids=["rounding", "noise too small", "releases too many"],
)
def test_what_its_grid_cannot_hold_is_refused_in_one_line(times: int, noise: float, delta: float) -> None:
    with pytest.raises(
        OutOfReach, match=r"accountant=prv: cannot tell .*use privacy.accountant=auto"
    ) as refused:
        epsilon(Composition("poisson", times, 0.1), noise, delta, "prv")
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_small_eps_and_long_compositions_are_loose_and_not_low() -> None:
    for rate, times, noise in ((0.1, 100, 400.0), (0.01, 50, 10.0), (0.001, 10**5, 2.0)):
        released = Composition("poisson", times, rate)
        tight = epsilon(released, noise, 1e-6, "pld")
        assert 0.999 * tight < epsilon(released, noise, 1e-6, "prv") < 1.1 * tight


def test_calibration_errs_on_the_private_side() -> None:
    released = RecordReleases(((5, 20),), 1.0, 100, "poisson", 0, 0, 0.1, "add_remove_one", 3)
    noise = calibrate(released, "server", 1.0, 1e-5, "prv")
    spent = Composition("poisson", 100, 0.1)
    assert 0.998 < epsilon(spent, noise, 1e-5, "prv") <= 1.0
    assert lower_pld(0.1, 100, noise, 1e-5) <= 1.0
    tight = calibrate(released, "server", 1.0, 1e-5, "pld")
    assert tight < noise < 1.01 * tight


def test_the_most_rounds() -> None:
    def rounds(accountant: str) -> int:
        return max_rounds(
            1.0, 1e-5, 4.0, lambda t: (Composition("poisson", t, 0.1),), accountant, limit=10**4
        )

    assert 0.99 * rounds("pld") <= rounds("prv") <= rounds("pld")


GIVEN = (
    *("algo=dp_fedavg", "privacy=record", "privacy.neighbours=add_remove_one", "sample_rate=0.1"),
    *("rounds=5", "local_steps=4", "eps=1"),
)


@pytest.mark.slow
def test_plan_shows_it_where_it_is_valid_and_no_eps_moves() -> None:
    planned = call("plan", "--views", "--json", *GIVEN).json
    for by in planned["observers"].values():
        assert list(by) == ["pld", "rdp", "prv"]
        assert by["pld"] < by["prv"] < 1.01 * by["pld"]
    assert planned["views"]["server"] == planned["observers"]["server"]["pld"]
    assert list(call("plan", "--json", *GIVEN).json["accountants"]) == ["pld", "rdp"]
    fixed = [o for o in GIVEN if "sample_rate" not in o and "neighbours" not in o]
    lots = call("plan", "--views", "--json", *fixed, "batch_size=2").json
    assert all("prv" not in by for by in lots["observers"].values())


@pytest.mark.slow
def test_a_run_may_ask_for_it() -> None:
    planned = call("plan", "--json", *GIVEN, "privacy.accountant=prv").json
    assert planned["accountant"] == "prv"
    assert 0.998 < planned["eps"] == planned["accountants"]["prv"] <= 1.0


def test_without_opacus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any data loads, and nowhere else a word."""
    monkeypatch.setattr(table, "find_spec", lambda name: None)
    expected = (
        "privacy.accountant=prv: expected the package opacus, there is none; pip install 'dpfl-bench[opacus]'"
    )
    assert str(refusals.package_missing("prv", "opacus")) == expected
    monkeypatch.setattr(
        "dpfl_bench.experiment.job.load_data", lambda settings: pytest.fail("data were loaded")
    )
    for given in (GIVEN, ("algo=dp_fedavg", "rounds=2", "local_steps=2")):
        refused = call("run", *given, "privacy.accountant=prv")
        assert refused.err.strip().splitlines()[-1] == f"dpfl-bench: {expected}"
    shown = call("plan", "--views", *GIVEN)
    assert "prv" not in shown.out + shown.err
    assert "opacus" not in shown.out + shown.err
