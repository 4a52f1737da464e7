"""The jobs of a described sweep, the commands that have the same jobs, and what a stage takes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from helpers.sources import run

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.compose import composer
from dpfl_bench.sweep.recipe import Recipe, Stage


def test_jobs_against_a_plain_loop() -> None:
    sweep = Recipe(
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
    sweep = Recipe(
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
    stage = Stage(of="main", keys=["local_steps", "lr"], groups=["algo", "eps"], by="y")
    assert stage.best(runs) == least
    assert replace(stage, better="most").best(runs)[0] == {
        "algo": "a", "eps": 1, "local_steps": 2, "lr": 0.1
    }  # fmt: skip
    assert replace(stage, where={"algo": "b"}).best(runs) == least[2:]
    with pytest.raises(ConfigError, match="runs differ in lr"):
        replace(stage, keys=["local_steps"]).best(runs)
