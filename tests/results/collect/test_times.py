"""times.csv: when, where and how long; nothing of it in results.csv."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pandas as pd
from helpers.collected import finish
from helpers.command import call

from dpfl_bench.results.collect.times import between
from dpfl_bench.results.environment import slurm_job
from dpfl_bench.results.folder import RunFolder

IN_A_JOB = {
    "SLURM_JOB_ID": "15",
    "SLURM_ARRAY_JOB_ID": "12",
    "SLURM_ARRAY_TASK_ID": "3",
    "SLURMD_NODENAME": "n2",
    "SLURM_CPUS_PER_TASK": "4",
    "SLURM_RESTART_COUNT": "1",
    "SLURM_JOB_START_TIME": "1700000000",
}


def test_each_run_and_its_job() -> None:
    slow, quick, plain = (
        RunFolder(finish(name, local_steps=steps, rounds=100 // steps, seconds=seconds))
        for name, steps, seconds in (("a", 1, 200.5), ("b", 5, 20.0), ("c", 10, 3.0))
    )
    slurm = slurm_job(IN_A_JOB)
    assert slurm is not None
    began, done = "2023-11-14T22:14:00+00:00", "2023-11-14T22:18:20+00:00"
    for folder in (slow, quick):
        folder.write("env.json", {"began": began, "host": "n2.site", "slurm": slurm})
        folder.write("status.json", {"status": "done", "updated": done})
    plain.write("env.json", "[]")
    said = call("collect", "runs", "--to", "to").out
    times = pd.read_csv("to/times.csv", dtype={"slurm_job": str}).set_index("run_id")
    assert [*times.index] == ["a", "b", "c"]  # the longest first
    assert times.loc["a", "training_seconds"] == 200.5
    assert times.loc["b", ["slurm_job", "slurm_node", "slurm_cpus"]].tolist() == ["12_3", "n2", 4]
    assert times.loc["b", "attempt_seconds"] == 260
    assert times.loc["b", "slurm_job_seconds"] == 300  # it began at 22:13:20
    assert times.loc["c", "host":].isna().all()
    assert (
        "times: 3 runs, 4 min of training; the longest 3 min (a); 1 jobs of Slurm's, the longest 5 min"
        " (12_3): times.csv" in said
    )
    results = pd.read_csv("to/results.csv")
    assert not {"seconds", "training_seconds", "slurm_job", "host"} & set(results)
    (first, *_) = call("collect", "runs", "--to", "to", "--json").json["times"]
    assert (first["run_id"], first["slurm_restarts"]) == ("a", "1")


def test_a_job_that_is_no_array_and_no_job() -> None:
    alone = slurm_job({"SLURM_JOB_ID": "15"})
    assert alone is not None
    began = alone.pop("began")
    assert alone == {"job": "15", "node": None, "cpus": None, "restarts": "0"}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    age = between(began, now)
    assert age is not None  # Slurm does not tell: since this process began
    assert age >= time.process_time() - 2
    assert slurm_job({}) is None
    assert slurm_job({"SLURM_ARRAY_JOB_ID": "12"}) is None


def test_times_that_are_none() -> None:
    assert between("2023-11-14T22:14:00+00:00", "2023-11-14T22:14:30+00:00") == 30
    assert between("2023-11-14T22:14:00+00:00", "soon") is None
    assert between(None, "2023-11-14T22:14:30+00:00") is None
    assert between("2023-11-14T22:14:00", "2023-11-14T22:14:30+00:00") is None


def test_an_environment_tells_when_it_began() -> None:
    folder = call("run", "rounds=1", "local_steps=1", "plot=false", "device=cpu").folder
    told = RunFolder(folder).read("env.json")
    assert told is not None
    assert told["slurm"] is None
    status = RunFolder(folder).read("status.json")
    assert status is not None
    assert 0 <= (between(told["began"], status["updated"]) or 0) < 600
