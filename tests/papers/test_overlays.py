"""The sweeps of an artefact: what is laid over what, and what follows what."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from typing import Any

import pytest

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.papers.overlays import READINGS, SCALES, check, recipes
from dpfl_bench.sweep.recipe import Recipe, Stage


def laid(node: Any, scale: str = "full", reading: str = "paper") -> Recipe:
    check({"main": node})
    return recipes({"main": node}, scale, reading)["main"]


NODE: dict[str, Any] = {
    "set": {"rounds": 500, "lr": 0.1, "eps": 5},
    "over": {"clip": [1, 2]},
    "points": [{"a": 1}],
    "paper": {"set": {"calibration": "formula"}, "over": {"eps": [1, 2]}},
    "exact": {"set": {"lr": None}, "points": [{"a": 2}, {"a": 3}]},
    "smoke": {
        "set": {"rounds": 20, "clip": 7, "calibration": "none"},
        "paper": {"set": {"lr": 9}, "over": {"eps": None}},
        "exact": {"absent": "too dear"},
    },
    "cpu": {"over": {"rounds": 100}, "points": None},
}


@pytest.mark.parametrize(
    ("scale", "reading", "fixed", "over", "points", "absent"),
    [
        (
            *("full", "paper", {"rounds": 500, "lr": 0.1, "calibration": "formula"}),
            *({"clip": [1, 2], "eps": [1, 2]}, [{"a": 1}], ""),
        ),
        ("full", "exact", {"rounds": 500, "eps": 5}, {"clip": [1, 2]}, [{"a": 2}, {"a": 3}], ""),
        # reading first, then scale; the reading within the scale last
        (
            *("smoke", "paper", {"rounds": 20, "lr": 9, "clip": 7, "calibration": "none"}),
            *({}, [{"a": 1}], ""),
        ),
        (
            *("smoke", "exact", {"rounds": 20, "eps": 5, "clip": 7, "calibration": "none"}),
            *({}, [{"a": 2}, {"a": 3}], "too dear"),
        ),
        (
            *("cpu", "paper", {"lr": 0.1, "calibration": "formula"}),
            *({"clip": [1, 2], "eps": [1, 2], "rounds": [100]}, [], ""),
        ),
        ("cpu", "exact", {"eps": 5}, {"clip": [1, 2], "rounds": [100]}, [], ""),
    ],
)
def test_overlays(scale: str, reading: str, fixed: Any, over: Any, points: Any, absent: str) -> None:
    found = laid(NODE, scale, reading)
    assert (found.set, found.over, found.points or [], found.absent) == (fixed, over, points, absent)


def test_a_null_of_the_sweep_itself_is_a_value() -> None:
    assert laid({"set": {"rounds": None}}).jobs() == [("rounds=null",)]
    assert laid({"set": {"rounds": None}, "full": {"set": {"rounds": None}}}).jobs() == [()]


def test_laying_over_leaves_the_file_as_it_is() -> None:
    nodes = {"main": NODE}
    before = deepcopy(nodes)
    for scale, reading in product(SCALES, READINGS):
        recipes(nodes, scale, reading)
    assert nodes == before


STAGE = {"of": "main", "keys": ["local_steps", "lr"], "for": ["algo", "eps"], "by": "y"}


def test_order() -> None:
    nodes = {
        "third": {"at_best": {"of": "second", "keys": ["lr"]}},
        "second": {"at_best": {"of": "main", "keys": ["lr"]}},
        "main": {"set": {"lr": 1}},
    }
    found = recipes(nodes, "full", "paper")
    assert list(found) == ["main", "second", "third"]
    assert found["third"].first({"lr": 3, "eps": 1}) == {"lr": 3, "eps": 1}


@pytest.mark.parametrize("of", ["main", "second", "nothing"])
def test_cycles(of: str) -> None:
    nodes = {name: {"at_best": {"of": of, "keys": ["lr"]}} for name in ("main", "second")}
    with pytest.raises(ConfigError, match=rf"sweeps\.\w+\.at_best\.of: {of}: expected an earlier"):
        recipes(nodes, "full", "paper")


def test_an_overlay_may_drop_the_stage() -> None:
    node = {"at_best": STAGE, "smoke": {"at_best": None, "set": {"lr": 1}}}
    both = {"main": {"set": {"lr": 1}}, "second": node}
    assert recipes(both, "smoke", "paper")["second"].at_best is None
    stage = Stage(of="main", keys=["local_steps", "lr"], groups=["algo", "eps"], by="y")
    assert recipes(both, "cpu", "paper")["second"].at_best == stage


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"over": {"lr": []}}, "sweeps.main.over.lr: expected at least one value"),
        ({"points": []}, "sweeps.main.points: expected at least one point, or null for none"),
        ({"cpu": {"paper": {"points": []}}}, "sweeps.main.cpu.paper.points: expected at least one point"),
        (
            {"at_best": {"of": "grid", "keys": []}},
            "sweeps.main.at_best.keys: expected the keys that are taken of grid",
        ),
    ],
)
def test_what_would_run_nothing_is_refused(node: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check({"main": node})
