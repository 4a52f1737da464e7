"""Audits of PrivUnit: right runs hold and their bounds are tight; every planted fault is seen.

A right run: eps is no less than what is proved. Seeds are fixed, so no test fails by chance.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers import audits
from helpers.audits import Fault, assert_seen, audit_of, part
from helpers.federations import TINY
from scipy import stats

from dpfl_bench.audit import privunit_messages
from dpfl_bench.audit.privunit_messages import Law

PRIVUNIT = ("privacy=local", "privacy.mechanism=privunit", "privacy.noise_multiplier=null")


def budgets(each: float, *more: str) -> tuple[str, ...]:
    return (*PRIVUNIT, *(f"privacy.{name}={each}" for name in ("eps0", "eps1", "eps2")), *more)


ONE = budgets(1.4, "algo=dp_fedavg", "rounds=1")  # one message of eps 4
RIGHT: dict[str, tuple[tuple[str, ...], float]] = {
    # overrides, and what share of eps is proved at least
    "FedEXP, four rounds": (budgets(1.4, "algo=dp_fedexp"), 0.95),
    "ScaffNew": (budgets(1.4, "algo=dp_scaffnew"), 0.95),
    "beyond 10": (budgets(4.5, "algo=dp_fedavg", "rounds=1"), 0.9),
    "a third party": (
        budgets(1.4, "algo=dp_fedavg", "sampled_clients=4", "privacy.observer=third_party"),
        0.9,
    ),
}


@pytest.fixture
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privunit_messages, "DRAWS", 6000)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_run_holds(name: str, fewer: None) -> None:
    overrides, share = RIGHT[name]
    report = audit_of(*overrides, canaries=100, base=TINY)
    assert report["verdict"] == "holds", report
    assert share * report["eps"] <= report["lower"] <= report["eps"]


@pytest.mark.slow
def test_counts_are_as_tight_as_asked() -> None:
    """About 3.85 of 4 by 1e4 draws of either side, without trust in a law."""
    report = audit_of(*ONE, base=TINY)
    assert report["verdict"] == "holds", report
    assert 0.94 < part(report, "PrivUnit")["statistic"] < 1
    assert 0.97 * report["eps"] < report["lower"] < report["eps"]


def test_the_law_by_hand() -> None:
    """Its cap: a share of the sphere above its height."""
    law = Law(4.0, 1.5, 1.2, 18)
    directions = np.random.default_rng(1).normal(size=(200_000, 18))
    heights = directions[:, 0] / np.linalg.norm(directions, axis=1)
    assert stats.binomtest(int((heights >= law.height).sum()), len(heights), law.cap).pvalue > 1e-3
    assert stats.kstest(law.above(heights), "uniform").pvalue > 1e-3
    assert law.above(np.array([law.height])) == pytest.approx(law.cap)
    ratio = law.rate / (1 - law.rate) * (1 - law.cap) / law.cap * law.stays * law.norms / (1 - law.stays)
    assert np.log(ratio) == pytest.approx(law.eps)


FAULTS: dict[str, tuple[Fault, str]] = {
    # the fault, and a part that sees it
    "the cap too often": (audits.cap_too_often, "PrivUnit: likelihood ratio"),
    "the cap too small": (audits.cap_too_small, "PrivUnit: likelihood ratio"),
    "the norm in the clear": (audits.norm_in_the_clear, "PrivUnit: likelihood ratio"),
    "shared between clients": (audits.privunit_of_one_client, "residuals: independence"),
    "repeated between rounds": (audits.privunit_of_one_round, "residuals: independence"),
    "of one seed": (audits.privunit_of_one_seed, "residuals: independence"),
    "directions to one side": (audits.flat_directions, "residuals: shape"),
    "a claim of a twentieth less": (audits.privunit_claims_less, "PrivUnit: likelihood ratio"),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen(name: str, monkeypatch: pytest.MonkeyPatch, fewer: None) -> None:
    fault, seen_by = FAULTS[name]
    fault(monkeypatch)
    assert_seen(audit_of(*budgets(1.4, "algo=dp_fedavg", "rounds=2"), canaries=100, base=TINY), seen_by)
