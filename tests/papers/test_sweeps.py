"""The jobs of an artefact: what is laid over what, what is paired, what follows what."""

from __future__ import annotations

import shlex
from itertools import product
from typing import Any

import pytest
from dpfl_bench.papers.shape import READINGS, SCALES
from dpfl_bench.papers.sweeps import Sweep
from helpers.artefacts import artefact
from helpers.sources import run

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.compose import composer
from dpfl_bench.papers import sweeps
from dpfl_bench.papers.artefact import Artefact


def made(**nodes: Any) -> Artefact:
    """An artefact of these sweeps and nothing else."""
    return artefact(sweeps=nodes, figures={}, table=None, printed=[], claims=[])


def laid(node: Any, scale: str = "full", reading: str = "paper") -> Sweep:
    return sweeps.laid(made(main=node), scale, reading)["main"]


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
    assert (found.set, found.over, found.points, found.absent) == (fixed, over, points, absent)


def test_a_null_of_the_sweep_itself_is_a_value() -> None:
    assert laid({"set": {"rounds": None}}).jobs() == [("rounds=null",)]
    assert laid({"set": {"rounds": None}, "full": {"set": {"rounds": None}}}).jobs() == [()]


def test_laying_over_leaves_the_file_as_it_is() -> None:
    whole = made(main=NODE)
    before = repr(whole.sweeps)
    for scale, reading in product(SCALES, READINGS):
        sweeps.laid(whole, scale, reading)
    assert repr(whole.sweeps) == before


def test_jobs_against_a_plain_loop() -> None:
    sweep = Sweep(
        "main",
        set={"rounds": 5, "lr": 1},
        over={"eps": [1, 2.5], "algo": ["a", "b c"]},
        points=[{"lr": 0.1, "steps": 5}, {"steps": 7}],
    )
    expected = [
        ("rounds=5", f"lr={lr}", f"steps={steps}", f"eps={eps}", f"algo={algo}")
        for lr, steps in ((0.1, 5), (1, 7))
        for eps in (1, 2.5)
        for algo in ("a", "'b c'")
    ]
    assert sweep.jobs() == expected
    assert sweep.jobs([]) == []
    stage = [{"steps": 1, "rounds": 3}, {"rounds": 4}]
    assert len(sweep.jobs(stage)) == 16
    assert sweep.jobs(stage)[0] == ("rounds=3", "lr=0.1", "steps=5", "eps=1", "algo=a")


@pytest.mark.parametrize(
    "stage", [({},), ({"local_steps": 2, "algo": "dp_fedavg"}, {"local_steps": 5, "algo": "fedavg"})]
)
def test_the_command_that_a_user_types_has_the_same_jobs(stage: Any) -> None:
    """Through Hydra's own sweep syntax."""
    sweep = Sweep(
        "main",
        set={"dataset": "breast_cancer", "lr": 1, "local_steps": 10, "measure": ["client"]},
        over={"eps": [1, 2.5, float("inf")], "rounds": [2, 3]},
        points=[{"lr": 0.1, "privacy.clip": 5}, {"lr": 0.5}],
    )
    (line,) = sweep.commands(stage, ["plot=false"])
    words = shlex.split(line)
    assert words[:3] == ["dpfl-bench", "run", "-m"]
    typed = {tuple(sorted(job)) for job in composer(None, "config").sweep(words[3:]).jobs}
    jobs = {tuple(sorted((*job, "plot=false"))) for job in sweep.jobs(stage)}

    def settings(given: set[tuple[str, ...]]) -> list[str]:
        configs = (composer(None, "config").job(job).config for job in given)
        return sorted(str({key: value for key, value in each.items() if key != "points"}) for each in configs)

    assert settings(typed) == settings(jobs)


# --- stages ---

STAGE = {"of": "main", "keys": ["local_steps", "lr"], "for": ["algo", "eps"], "by": "y"}


def test_the_best_point_for_each_combination() -> None:
    """Keys are taken together (zip), of one point."""
    table = {
        ("a", 1, 2, 0.1): (5.0, 1.0),  # mean 3
        ("a", 1, 4, 0.1): (2.0, 2.0),
        ("a", 1, 2, 0.2): (1.9, 2.0),
        ("a", 2, 2, 0.1): (0.0, 0.0),
        ("b", 1, 8, 0.3): (1.0, 1.0),
        ("b", 1, 2, 0.1): (1.0, 1.5),
    }
    runs = [
        run({"algo.name": algo, "eps": eps, "local_steps": steps, "lr": lr}, *values)
        for (algo, eps, steps, lr), values in table.items()
    ]
    least = [
        {"algo": "a", "eps": 1, "local_steps": 2, "lr": 0.2},
        {"algo": "a", "eps": 2, "local_steps": 2, "lr": 0.1},
        {"algo": "b", "eps": 1, "local_steps": 8, "lr": 0.3},
    ]
    assert sweeps.best_points(Sweep("second", at_best=STAGE), runs) == least
    most = sweeps.best_points(Sweep("second", at_best={**STAGE, "better": "most"}), runs)
    assert most[0] == {"algo": "a", "eps": 1, "local_steps": 2, "lr": 0.1}
    where = sweeps.best_points(Sweep("second", at_best={**STAGE, "where": {"algo": "b"}}), runs)
    assert where == least[2:]
    with pytest.raises(ConfigError, match="runs differ in lr"):
        sweeps.best_points(Sweep("second", at_best={**STAGE, "keys": ["local_steps"]}), runs)


def test_order_and_depth() -> None:
    nodes = {
        "third": {"at_best": {"of": "second", "keys": ["lr"]}},
        "second": {"at_best": {"of": "main", "keys": ["lr"]}},
        "main": {"set": {"lr": 1}},
    }
    found = sweeps.laid(made(**nodes), "full", "paper")
    assert list(found) == ["main", "second", "third"]
    assert found["third"].first({"lr": 3, "eps": 1}) == {"lr": 3, "eps": 1}


@pytest.mark.parametrize("of", ["main", "second", "nothing"])
def test_cycles(of: str) -> None:
    nodes = {name: {"at_best": {"of": of, "keys": ["lr"]}} for name in ("main", "second")}
    with pytest.raises(
        ConfigError, match=rf"fig9\.yaml: sweeps\.\w+\.at_best\.of: {of}: expected an earlier"
    ):
        sweeps.laid(made(**nodes), "full", "paper")


def test_an_overlay_may_drop_the_stage() -> None:
    node = {"at_best": STAGE, "smoke": {"at_best": None, "set": {"lr": 1}}}
    both = made(main={"set": {"lr": 1}}, second=node)
    assert sweeps.laid(both, "smoke", "paper")["second"].at_best is None
    assert sweeps.laid(both, "cpu", "paper")["second"].at_best == STAGE
