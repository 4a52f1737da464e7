"""Audits at client level: a right run holds and its bound is tight; every planted fault is seen.

A right run: eps is no less than what is proved. Seeds are fixed, so no test fails by chance.
"""

from __future__ import annotations

import pytest
from helpers import audits
from helpers.audits import Fault, assert_seen, audit_of, part

OWN = "privacy.memory=own_update"
ALGORITHMS = (
    *("dp_fedavg", "dp_fedexp", "dp_fedexp_scaffold", "dp_fedsgd", "dp_normfedavg"),
    *("dp_scaffnew", "dp_scaffold", "dp_scaffold_warm"),
)
TIGHT = {"dp_fedexp": 0.9, "dp_fedexp_scaffold": 0.9}  # no client can move both sums as far as counted


def setting(algo: str, trust: str) -> tuple[str, ...]:
    if trust == "record":
        naive = ("algo.naive=true",) if "fedexp" in algo else ()
        return (f"algo={algo}", "privacy=record", "privacy.bound=clip", "batch_size=3", "rounds=2", *naive)
    shifts = (OWN,) if trust == "central" and "scaff" in algo else ()
    return (f"algo={algo}", f"privacy={trust}", *shifts)


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["local", "secagg", "central", "record"])
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_right_run_holds(algo: str, trust: str) -> None:
    """One configuration of each algorithm, unit and trust: eps is no less than what is proved."""
    report = audit_of(*setting(algo, trust), canaries=200)
    assert report["verdict"] == "holds", report
    least = 0.95 if trust == "record" else TIGHT.get(algo, 0.98)
    assert least * report["eps"] <= report["lower"] <= report["eps"]


MORE: dict[str, tuple[tuple[str, ...], float]] = {
    # overrides, and what share of eps is proved at least
    "cohorts that remember": (("sampled_clients=4",), 0.97),
    "Poisson cohorts": (
        (
            *("algo=dp_fedavg", "privacy=central", "sampled_clients=4", "client_sampling=poisson"),
            "privacy.neighbours=add_remove_one",
        ),
        0.97,
    ),
    "Poisson cohorts, normalised": (
        (
            *("algo=dp_normfedavg", "privacy=central", "privacy.bound=normalise"),
            *("sampled_clients=4", "client_sampling=poisson", "privacy.neighbours=add_remove_one"),
        ),
        0.97,
    ),
    "a third party who sees sums": (
        ("algo=dp_fedavg", "privacy=local", "privacy.observer=third_party"),
        0.97,
    ),
    "an amplified third party": (
        ("algo=dp_fedavg", "sampled_clients=4", "privacy.observer=third_party"),
        0.97,
    ),
    "messages of noise, accounted alone": (("privacy.memory=own_message",), 0.15),
    "quantile": (("algo=dp_fedavg", "privacy.quantile=0.5"), 0.95),
    "squared norms, zero-out": (("algo=dp_fedexp", "privacy.neighbours=add_remove_one"), 0.97),
    "on a grid": (("algo=dp_fedavg", "privacy.noise=discrete"), 0.97),
    "normalised, absent": (
        ("algo=dp_normfedavg", "privacy.bound=normalise", "privacy.neighbours=add_remove_one"),
        0.97,
    ),
    "colluding": (("privacy.colluding=3",), 0.97),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_more_right_runs_hold(name: str) -> None:
    overrides, share = MORE[name]
    report = audit_of(*overrides, canaries=200)
    assert report["verdict"] == "holds", report
    assert share * report["eps"] <= report["lower"] <= report["eps"]


LOCAL, CENTRAL = ("privacy=local",), ("privacy=central", "algo=dp_fedavg")
FAULTS: dict[str, tuple[Fault, tuple[str, ...], str]] = {
    # the fault, the run, and a part that sees it
    "noise 5 % too small, shares": (audits.noise_too_small, (), "residuals"),
    "noise 5 % too small, messages": (audits.noise_too_small, LOCAL, "residuals"),
    "noise 5 % too small, central": (audits.noise_too_small, CENTRAL, "residuals"),
    "noise shared between clients": (audits.noise_of_one_client, LOCAL, "residuals: independence"),
    "noise shared by pairs": (audits.noise_of_pairs, LOCAL, "residuals: independence"),
    "identical shares": (audits.noise_of_one_client, (), "residuals"),
    "noise repeated between rounds": (audits.noise_of_one_round, (), "residuals: independence"),
    "central noise repeated": (audits.noise_of_one_round, CENTRAL, "residuals: independence"),
    "noise of one seed": (audits.noise_of_one_seed, (), "residuals: independence"),
    "uniform noise": (audits.uniform_noise, (), "residuals: shape"),
    "uniform central noise": (audits.uniform_noise, CENTRAL, "residuals: shape"),
    "clip after summing": (audits.clip_after_summing, (), "replay"),
    "weighting by records": (audits.weighted_by_records, (), "replay"),
    "noisy memory accounted by sums": (
        audits.noisy_memory_by_sums,
        ("privacy.memory=own_message",),
        "replay: memory",
    ),
    "C where 2C is meant": (audits.sensitivity_of_one, (), "replay"),
    "shuffled cohorts": (audits.shuffled_cohorts, ("sampled_clients=5",), "lots and cohorts"),
    "bits without noise": (
        audits.scalars_without_noise,
        ("algo=dp_fedavg", "privacy.quantile=0.5"),
        "residuals",
    ),
    "an accountant that claims a tenth less": (audits.accountant_too_low, (), "composition"),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, overrides, seen_by = FAULTS[name]
    fault(monkeypatch)
    assert_seen(audit_of(*overrides, canaries=100), seen_by)


@pytest.mark.slow
def test_workers_are_held_to_what_was_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ("algo=dp_scaffnew", "engine.workers=2", "engine.chunk=3")
    assert part(audit_of(*run, canaries=100), "workers")["verdict"] == "holds"
    audits.noise_of_the_first_process(monkeypatch)
    report = audit_of(*run, canaries=100)
    assert report["verdict"] == part(report, "workers")["verdict"] == "violated"


MEDIANS = [
    ("privacy.clip=median", "algo=dp_fedavg"),
    ("privacy.clip=median", "algo=dp_scaffnew", "privacy=local"),
    ("privacy.clip=median", "privacy=record", "batch_size=3", "algo=dp_fedavg", "rounds=2"),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("overrides", MEDIANS, ids=" ".join)
def test_what_no_accountant_covers_is_said(overrides: tuple[str, ...]) -> None:
    """The noise is what it should be, C being given. What C itself tells is another thing."""
    report = audit_of(*overrides, canaries=100)
    assert report["verdict"] == "inconclusive"
    assert all(each["verdict"] == "holds" for each in report["parts"][:-1]), report
    assert "median" in part(report, "not accounted")["says"]
    assert 0.95 * report["eps"] <= report["lower"] <= report["eps"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("overrides", MEDIANS, ids=" ".join)
def test_a_fault_beside_a_median_is_seen(overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    audits.sensitivity_of_one(monkeypatch)
    report = audit_of(*overrides, canaries=100)
    assert report["verdict"] == part(report, "replay")["verdict"] == "violated"
