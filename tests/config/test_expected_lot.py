"""`expected_lot`: Poisson lots of so many records on average, whatever a client's size."""

from __future__ import annotations

import math

import pytest
from helpers.command import call
from helpers.federations import settings_of

from dpfl_bench.checks.errors import ConfigError

PFL = ("algo=pfl", "partition=overlap", "clients=10")
DIGITS = (*PFL, "dataset=digits")  # 1437 training records: 143 a client


@pytest.mark.parametrize(
    ("dataset", "steps"),  # pfl's accounting: 6000 and 5000 records
    [("mnist", 94), ("fashion_mnist", 94), ("cifar10", 79)],
)
def test_the_paper_s_rates(dataset: str, steps: int) -> None:
    settings = settings_of(*PFL, f"dataset={dataset}")
    assert settings.sample_rate == 1 / steps
    assert (settings.rounds, settings.local_steps, settings.total_steps) == (20, steps, 20 * steps)
    assert settings_of(*PFL, f"dataset={dataset}", "local_epochs=5").local_steps == 5 * steps


def test_said_as_a_rate_it_is_the_same_run() -> None:
    rate = "sample_rate=0.010638297872340425"  # what algo/pfl.yaml said of every data set before
    mnist = (*PFL, "dataset=mnist", "local_epochs=1", "total_epochs=20")
    assert settings_of(*mnist).run_id == settings_of(*mnist, rate).run_id
    assert settings_of(*DIGITS).run_id != settings_of(*DIGITS, rate).run_id


@pytest.mark.parametrize(
    ("lot", "records"), [(64, 143), (64, 6000), (64, 6016), (1, 143), (143, 143), (1000, 143)]
)
def test_an_epoch_is_records_over_lot_rounded_up(lot: int, records: int) -> None:
    settings = settings_of(*PFL, "dataset=mnist", f"expected_lot={lot}", f"records={records}")
    assert settings.sample_rate == 1 / math.ceil(records / lot)
    assert settings.lots == ("poisson" if lot < records else "full")


def test_a_rate_or_a_size_goes_before_the_file_s_lot() -> None:
    assert settings_of(*DIGITS, "sample_rate=.1").sample_rate == 0.1
    fixed = settings_of(*DIGITS, "batch_size=20", "privacy.neighbours=replace_one")
    assert (fixed.batch_size, fixed.sample_rate, fixed.local_steps) == (20, None, 8)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ("expected_lot=0", "expected_lot=0: expected at least 1"),
        ("expected_lot=x", "expected_lot=x: expected a whole number"),
        ("expected_lot=8 batch_size=3", "expected_lot=8, batch_size=3: expected one of the two"),
        ("expected_lot=8 sample_rate=.5", "expected_lot=8, sample_rate=0.5: expected one of the two"),
        ("default_local_steps=3", "default_local_epochs=1, default_local_steps=3: expected one of the two"),
        (
            "dataset=synthetic_logistic partition=natural clients=100",
            "expected_lot=64: expected to know the records of the smallest client; say records=N, or"
            " sample_rate in its place",
        ),
    ],
)
def test_refused_in_one_line(overrides: str, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of(*DIGITS, *overrides.split())
    assert str(error.value) == line


def test_plan_knows_it_too() -> None:
    """`docs/papers.md`: .6849 at 1580 steps of 1/79."""
    planned = call("plan", "--json", "algo=pfl", "dataset=cifar10", "partition=iid", "clients=10", "eps=7.53")
    assert planned.json["total_steps"] == 1580
    assert planned.json["noise_multiplier"] == pytest.approx(0.6849, abs=5e-4)
