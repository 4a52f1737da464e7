"""A `stop_at_eps` that leaves no round in which the model moves is refused before a job starts."""

from __future__ import annotations

import pytest
from helpers.command import call
from helpers.federations import settings_of

from dpfl_bench.budget import stop
from dpfl_bench.checks.errors import ConfigError

# dpscaffold, table 1: sigma_g = 10, K = 40 spends eps 3 in 72 rounds, and its warm start takes 80
TABLE_1 = (
    *("dataset=synthetic_logistic", "batch_size=800", "sampled_clients=5", "delta=2.5e-6", "rounds=600"),
    *("privacy=record", "privacy.calibration=fixed", "privacy.noise_multiplier=10", "privacy.clip=median"),
    *("privacy.observer=third_party", "privacy.accountant=paper", "eps=3", "stop_at_eps=3"),
)
LINE = "stop_at_eps=3: the 80 rounds of the warm start and one more spend 3.051; raise it, or raise the noise"


def test_the_job_of_a_sweep_is_named_and_none_is_shown() -> None:
    sweep = ("algo=dp_scaffold,dp_scaffold_warm", "local_steps=20,40", "records=4000")
    said = call("run", "-m", "--dry-run", *TABLE_1, *sweep)
    assert said.code == 2
    assert "job 4 of 4" in said.err
    assert LINE in said.err
    assert said.out == ""


def test_what_leaves_rounds_is_not_refused() -> None:
    for job in (("algo=dp_scaffold_warm", "local_steps=20"), ("algo=dp_scaffold", "local_steps=40")):
        stop.check(settings_of(*TABLE_1, *job, "records=4000"))


def test_what_cannot_be_foreseen_is_left_to_the_run() -> None:
    stop.check(settings_of(*TABLE_1, "algo=dp_scaffold_warm", "local_steps=40"))  # how many records?


def test_the_first_round_of_any_algorithm() -> None:
    fixed = ("algo=dp_fedavg", "privacy.calibration=fixed", "privacy.noise_multiplier=1")
    with pytest.raises(ConfigError, match=r"stop_at_eps=0\.1: the first round alone spends"):
        stop.check(settings_of(*fixed, "stop_at_eps=.1"))
    stop.check(settings_of(*fixed, "stop_at_eps=9"))
