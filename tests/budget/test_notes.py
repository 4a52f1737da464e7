"""A delta above one over the number of those whom it protects is told, by every verb."""

from __future__ import annotations

import pytest
from helpers.command import call
from helpers.federations import settings_of

from dpfl_bench.budget.notes import notes


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("delta=.05", "delta=0.05 is above 1 / 90, one over the number of clients: "),
        ("delta=.0111", ""),
        ("delta=.05 eps=inf", ""),
        (
            "delta=.01 privacy=record",
            "delta=0.01 is above 1 / 456, one over the number of training records: ",
        ),
        ("delta=.002 privacy=record", ""),
    ],
)
def test_notes(overrides: str, said: str) -> None:
    assert [line.partition("a mechanism")[0] for line in notes(settings_of(*overrides.split()))] == (
        [said] if said else []
    )


def test_a_sweep_says_it_once() -> None:
    said = call("run", "-m", "--dry-run", "delta=.05", "lr=1,2")
    assert (said.code, said.err.count("delta=0.05 is above 1 / 90")) == (0, 1)
    assert call("plan", "delta=.05").err.startswith("dpfl-bench: delta=0.05 is above 1 / 90")
    assert call("plan").err == ""
