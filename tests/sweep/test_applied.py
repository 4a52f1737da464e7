"""A parameter of one algorithm in a sweep over several."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command import call

from dpfl_bench.config.compose import Composer
from dpfl_bench.sweep.applied import applied

TOLD = "algo.warm_rounds is set for dp_scaffold_warm; dp_fedavg has no such parameter"


def jobs_of(*words: str) -> tuple[list[str], list[str]]:
    composer = Composer(None, "config")
    jobs, told = applied(composer, composer.sweep(list(words)).jobs)
    return [" ".join(job) for job in jobs], told


@pytest.mark.parametrize("values", ["1", "1,2"])
def test_it_is_set_where_the_algorithm_has_it(values: str) -> None:
    jobs, told = jobs_of("algo=dp_fedavg,dp_scaffold_warm", f"algo.warm_rounds={values}", "eps=1,2")
    warm = [
        f"algo=dp_scaffold_warm algo.warm_rounds={n} eps={eps}" for n in values.split(",") for eps in (1, 2)
    ]
    assert sorted(jobs) == sorted(["algo=dp_fedavg eps=1", "algo=dp_fedavg eps=2", *warm])
    assert told == [TOLD]


def test_what_every_algorithm_or_none_has_stays() -> None:
    jobs, told = jobs_of("algo=dp_scaffold_warm,scaffold_warm", "algo.warm_rounds=1,2")
    assert len(jobs) == 4
    assert not told
    jobs, told = jobs_of("algo=dp_fedavg,dp_scaffold_warm", "algo.mu=1,2")
    assert all("algo.mu=" in job for job in jobs)
    assert not told


def test_a_sweep_tells_and_refuses() -> None:
    swept = ("algo=dp_fedavg,dp_scaffold_warm", "algo.warm_rounds=1,2", "privacy=record", "rounds=4")
    said = call("run", "-m", "--dry-run", *swept)
    assert said.code == 0, said.err
    assert said.err.startswith(f"dpfl-bench: {TOLD}\n")
    assert "3 jobs, 0 finished" in said.out
    planned = call("plan", *swept, "--json")
    assert len(planned.json) == 3
    unknown = call("run", "-m", "--dry-run", "algo=dp_fedavg,dp_scaffold_warm", "algo.warm_round=1,2")
    assert unknown.code == 2
    assert "algo.warm_round=1: unknown key" in unknown.err
    alone = call("run", "-m", "--dry-run", "algo=dp_fedavg", "algo.warm_rounds=1,2")
    assert alone.code == 2


def test_points_and_nested_parameters(tmp_path: Path) -> None:
    jobs, told = jobs_of(
        "algo=dp_scaffold_warm,dp_fedexp_scaffold",
        "points=[{algo.work.warm_rounds: 1, eps: 1}, {eps: 2}]",
    )
    assert sorted(jobs) == [
        "algo=dp_fedexp_scaffold algo.work.warm_rounds=1 eps=1",
        "algo=dp_fedexp_scaffold eps=2",
        "algo=dp_scaffold_warm eps=1",
        "algo=dp_scaffold_warm eps=2",
    ]
    assert told == [
        "algo.work.warm_rounds is set for dp_fedexp_scaffold; dp_scaffold_warm has no such parameter"
    ]
