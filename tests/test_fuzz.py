"""Nothing that a user types or has on disk ends in a traceback or never. `scripts/fuzz` draws
more.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from helpers import fuzzing
from hypothesis import HealthCheck, given, settings

FILES = 120


@settings(
    max_examples=300,
    derandomize=True,  # the same ones each time
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(fuzzing.overrides())
def test_overrides_are_accepted_or_refused_in_one_line(overrides: tuple[str, ...]) -> None:
    fuzzing.outcome(lambda: fuzzing.check_overrides(overrides))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(4))
def test_spoiled_files_are_loaded_or_refused_in_one_line(part: int, tmp_path: Path) -> None:
    outcomes = []
    for number in range(part * FILES // 4, (part + 1) * FILES // 4):
        (root := tmp_path / str(number)).mkdir()
        outcomes.append(fuzzing.spoiled(root, number, seed=0)[1])
    assert outcomes.count("accepted") < len(outcomes) / 2


@pytest.mark.parametrize("build", fuzzing.BUILDS, ids=lambda build: build.__name__)
def test_what_is_not_spoiled_is_accepted(build: fuzzing.Build, tmp_path: Path) -> None:
    """The negative control."""
    assert fuzzing.outcome(build(tmp_path)) == "accepted"


def test_a_bug_and_a_hang_are_told() -> None:
    """The other one: what is no refusal is raised."""
    with pytest.raises(ZeroDivisionError):
        fuzzing.outcome(lambda: 1 // 0)
    with pytest.raises(fuzzing.Hang), fuzzing.limited(1):
        time.sleep(30)
