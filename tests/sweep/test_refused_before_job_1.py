"""What `plan` refuses without data, a sweep refuses before its first job starts, in the same
words.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command import call
from helpers.federations import settings_of

from dpfl_bench.budget import before_data
from dpfl_bench.privacy import accounting, calibration
from dpfl_bench.privacy.refusals import PrivacyError

# each shows with schedules, releases or noise alone
REFUSED = [
    "algo=dp_normfedavg privacy=central client_sampling=poisson sampled_clients=9",
    "algo=dp_fedavg privacy=central sampled_clients=9 privacy.neighbours=add_remove_one",
    "algo=dp_fedavg privacy=central privacy.observer=server",
    "privacy=record privacy.accountant=exact batch_size=2",
    "privacy=record privacy.accountant=paper batch_size=2",
    "algo=dp_fedavg privacy=local privacy.mechanism=privunit eps=1e4",
    "algo.coins=true local_steps=2 total_steps=2 seed=0",
    "stop_at_eps=.01",
]


@pytest.mark.parametrize("overrides", REFUSED)
def test_a_sweep_refuses_what_plan_refuses(overrides: str, tmp_path: Path) -> None:
    planned = call("plan", *overrides.split())
    assert planned.code == 2, planned
    (line,) = planned.err.splitlines()
    for flags in ((), ("--dry-run",)):
        said = call("run", "-m", *flags, *overrides.split(), "lr=1,2", "plot=false")
        assert said.code == 2
        assert said.out == ""
        told = said.err.splitlines()
        assert len(told) == 2
        reason = line.removeprefix("dpfl-bench: ")
        assert all(each.endswith(reason) for each in told), told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "overrides",
    [
        "algo=dp_normfedavg privacy=central client_sampling=poisson sampled_clients=9"
        " privacy.neighbours=add_remove_one",
        "privacy=record batch_size=2",
        "privacy=record batch_size=2 eps=1e-3",  # by an accountant that searches
        "eps=inf algo=fedavg",
        "dataset=libsvm dataset.path=x clients=2 privacy=record batch_size=2 partition=iid",  # not known
    ],
)
def test_what_a_run_would_do_is_not_refused(overrides: str) -> None:
    before_data.check(settings_of(*overrides.split()))


def test_whether_there_is_a_noise_is_told_without_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the largest noise is not enough, and, the negative control, where it is."""
    run = settings_of("privacy=record", "batch_size=2", "privacy.accountant=rdp", "eps=1e-3")
    monkeypatch.setattr(calibration, "_search", None)  # is not called
    before_data.check(run)
    monkeypatch.setattr(accounting, "LARGEST", 10.0)
    with pytest.raises(PrivacyError, match=r"eps=0.001, delta=1e-05: rdp finds no noise that is enough"):
        before_data.check(run)
