"""Audits at record level: right runs hold and their bounds are tight; every planted fault is seen.

A right run: eps is no less than what is proved. Seeds are fixed, so no test fails by chance.
"""

from __future__ import annotations

import pytest
from helpers import audits
from helpers.audits import Fault, assert_seen, audit_of
from helpers.real_data import real_data

RECORD = ("privacy=record", "algo=dp_fedavg", "rounds=2")
FIXED = (*RECORD, "batch_size=3")
POISSON = (*RECORD, "sample_rate=0.25", "privacy.neighbours=add_remove_one")
RIGHT: dict[str, tuple[str, ...]] = {
    "all records": RECORD,
    "fixed lots": FIXED,
    "Poisson lots": POISSON,
    "sampled clients, third party": (*FIXED, "sampled_clients=4", "privacy.observer=third_party"),
    "Poisson clients": (*POISSON, "sampled_clients=4", "client_sampling=poisson"),
    "overlap": (*FIXED, "partition=overlap"),
    "a network": (*FIXED, "model=mlp", "model.hidden=[8]"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_run_holds(name: str) -> None:
    report = audit_of(*RIGHT[name], canaries=200)
    assert report["verdict"] == "holds", report
    assert 0.95 * report["eps"] <= report["lower"] <= report["eps"]


@pytest.mark.slow
def test_a_poisson_cnn_holds() -> None:
    """Its records' gradients are clipped by book-keeping, with images that are whole numbers."""
    root = real_data("MNIST/raw/train-images-idx3-ubyte.gz")
    base = ("dataset=mnist", f"dataset.root={root}", "dataset.keep=800", "model=cnn", "device=cpu")
    small = ("clients=4", "partition=iid", "rounds=1", "local_steps=1", "sample_rate=0.05")
    noise = ("privacy.calibration=fixed", "privacy.noise_multiplier=0.5")
    lots = ("privacy=record", "privacy.neighbours=add_remove_one", "algo=dp_fedavg")
    report = audit_of(*small, *lots, *noise, canaries=100, base=base)
    assert report["verdict"] == "holds", report
    assert 0.95 * report["eps"] <= report["lower"] <= report["eps"]


FAULTS: dict[str, tuple[Fault, tuple[str, ...], str]] = {
    # the fault, the run, and a part that sees it
    "noise 5 % too small": (audits.record_noise_too_small, FIXED, "residuals"),
    "uniform noise": (audits.uniform_record_noise, FIXED, "residuals: shape"),
    "noise shared between clients": (audits.record_noise_of_one_client, FIXED, "residuals: independence"),
    "noise repeated between rounds": (audits.record_noise_of_one_round, FIXED, "residuals: independence"),
    "noise repeated between steps": (audits.record_noise_of_one_step, FIXED, "residuals: independence"),
    "noise of one seed": (audits.record_noise_of_one_seed, FIXED, "residuals: independence"),
    "fixed lots sold as Poisson": (audits.fixed_lots, POISSON, "lots and cohorts"),
    "shuffled lots": (audits.shuffled_lots, FIXED, "lots and cohorts"),
    "one lot a round": (audits.one_lot_a_round, FIXED, "lots and cohorts"),
    "larger Poisson lots": (audits.poisson_lots_too_large, POISSON, "lots and cohorts"),
    "clip after summing": (audits.clip_records_after_summing, FIXED, "replay"),
    "weighting by records": (
        audits.lots_weighted_by_records,
        (*RECORD, "partition=uneven"),
        "replay",
    ),
    "division by the realised size": (audits.divided_by_the_realised_size, POISSON, "replay"),
    "C where 2C is meant": (audits.sensitivity_of_one, FIXED, "replay"),
    "what is not finite passes": (audits.not_finite_records_pass, FIXED, "replay"),
    "past the door": (audits.records_past_the_door, FIXED, "replay"),
    "behind the door": (audits.local_steps_past_the_door, FIXED, "replay: the rest"),
    "an accountant that claims a tenth less": (audits.accountant_too_low, RECORD, "composition"),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, overrides, seen_by = FAULTS[name]
    fault(monkeypatch)
    assert_seen(audit_of(*overrides, canaries=100), seen_by)
