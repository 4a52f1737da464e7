"""Sweeps on a real Slurm of two nodes: jobs are cancelled, killed, requeued, the launcher is
killed, and nothing is lost or done twice.

DPFL_TEST_SLURM names its slurm.conf; .ci/run starts one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from helpers.command import BINARY, QUICK, call, read

from dpfl_bench.results.folder import RunFolder

CONF = os.environ.get("DPFL_TEST_SLURM", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not CONF, reason="no Slurm: DPFL_TEST_SLURM=.../slurm.conf names one (.ci/run starts one)"
    ),
]

# DP-FedAvg that tells each round, is slow while there is a file `brake`, and raises once where
# there is a file `trap`
TRIPPING = """
import os, time
from dataclasses import dataclass
from pathlib import Path
from dpfl_bench.algorithms.fedavg import FedAvg

@dataclass(frozen=True)
class Tripping(FedAvg):
    def server(self, server, sent, round):
        with open("rounds", "a") as file:
            file.write(f"{os.environ.get('SLURM_JOB_ID')}\\n")
        if Path("brake").exists():
            time.sleep(0.5)
        try:
            Path("trap").unlink()
        except FileNotFoundError:
            return super().server(server, sent, round)
        raise RuntimeError("into the trap")
"""
YAML = """
# @package _global_
# trips
algo:
  _target_: tripping.Tripping
  name: tripping
  private: true
"""
OPTIONS = ("mem=500M", "time=10", "poll_seconds=1", "settle_seconds=1")
SLURM = ("hydra/launcher=slurm", *(f"hydra.launcher.{option}" for option in OPTIONS))
GIVEN = ("run", "-m", "-cd", "conf", "algo=tripping", "total_steps=100", "checkpoint_every=1", *QUICK)
DOWN = ("scontrol", "update", "State=DOWN", "Reason=test")
ACTIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of a test stays in the queue, and no node stays down."""
    (tmp_path / "conf/algo").mkdir(parents=True)
    (tmp_path / "conf/algo/tripping.yaml").write_text(YAML)
    (tmp_path / "tripping.py").write_text(TRIPPING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", CONF)
    yield
    for job in queue():
        if job.state in ACTIVE:
            slurm("scancel", job.id)
    for node in ("n1", "n2"):  # one that is up refuses
        subprocess.run(
            ["scontrol", "update", f"NodeName={node}", "State=RESUME"], capture_output=True, check=False
        )


@dataclass(frozen=True)
class Job:
    id: str
    state: str
    node: str


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def queue() -> list[Job]:
    """Every job of this test's sweeps that Slurm remembers."""
    names = ",".join(path.name for path in Path("outputs/slurm").glob("dpfl-*"))
    said = slurm(
        "squeue", "--noheader", "--array", "--states=all", f"--name={names or 'none'}", "--format=%i|%T|%N"
    )
    return [Job(*line.split("|")) for line in said.splitlines()]


def jobs(*states: str) -> list[str]:
    return [job.id for job in queue() if job.state in states]


def run_of(job: str) -> RunFolder:
    """The run of a task with one point."""
    for path in Path("outputs/slurm").glob("*/ids.json"):
        tasks = dict(
            zip(
                json.loads(path.read_text()),
                json.loads(path.with_name("tasks.json").read_text()),
                strict=True,
            )
        )
        if job in tasks:
            return RunFolder(Path("outputs/runs", *tasks[job]))
    raise AssertionError(job)


def runs(word: str) -> list[RunFolder]:
    found = [RunFolder(path) for path in sorted(Path("outputs/runs").glob("*"))]
    return [folder for folder in found if folder.state().word == word]


def at_work() -> list[str]:
    """The jobs whose run plays its rounds."""
    return [
        job for job in jobs("RUNNING") if run_of(job).state().word == "running" and rounds_of(run_of(job)) > 1
    ]


def rounds_of(folder: RunFolder) -> int:
    return folder.metrics.path.read_text().count("\n") if folder.metrics.path.exists() else 0


def rounds() -> int:
    """Played so far, by all."""
    return Path("rounds").read_text().count("\n") if Path("rounds").exists() else 0


def until(condition: Callable[[], object], what: str, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not in {seconds} s; {queue()}"
        time.sleep(0.3)


@dataclass(frozen=True)
class Launcher:
    """`dpfl-bench run -m hydra/launcher=slurm` in a process of its own, without a terminal."""

    process: subprocess.Popen[bytes]
    stderr: Path

    @property
    def said(self) -> str:
        return self.stderr.read_text()

    def end(self, seconds: float = 240) -> int:
        return self.process.wait(timeout=seconds)


def start(*arguments: str) -> Launcher:
    stderr = Path(f"said{len(list(Path().glob('said*')))}")
    with stderr.open("w") as file:
        command = [BINARY, *GIVEN, *SLURM, *arguments]
        return Launcher(
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file),
            stderr,
        )


def numbers(collected: Path) -> pd.DataFrame:
    """results.csv without what tells when and where."""
    found = pd.read_csv(collected / "results.csv", dtype=str).sort_values("run_id", ignore_index=True)
    return found.drop(columns=[name for name in ("seconds", "folder", "host") if name in found])


def test_a_sweep_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve jobs on two nodes; three are cancelled, one worker is killed, one raises, the launcher
    is killed; the same command again.
    """
    sweep = ("local_steps=10,1,2,5", "eps=2,8,inf")
    for name in ("brake", "trap"):
        Path(name).touch()
    launcher = start(*sweep)
    until(
        lambda: len(runs("done")) >= 2 and runs("failed") and len(at_work()) >= 3,
        "two are done, one raised, three are at work",
    )
    (raised,) = runs("failed")
    assert "RuntimeError: into the trap" in raised.state().first_line
    told = f"failed: {raised.path.name} "
    until(lambda: told in launcher.said, "the launcher tells of it while the others go on", 30)
    assert {job.node for job in queue() if job.state in ("RUNNING", "COMPLETED")} == {"n1", "n2"}

    cancelled, killed, *_ = at_work()
    pending = jobs("PENDING")[:2]
    dead = [run_of(job) for job in (cancelled, killed, *pending)]
    slurm("scancel", cancelled, *pending)
    os.kill(read(dead[1].path, "status.json")["pid"], signal.SIGKILL)
    until(lambda: dead[1].state().word == "failed", "the launcher tells that a run was killed")
    assert (
        dead[1]
        .state()
        .first_line.startswith(
            "Slurm: FAILED (NonZeroExitCode), and the run left no result; see outputs/slurm/dpfl-"
        )
    )
    until(lambda: dead[0].state().word == "interrupted", "the cancelled run has its checkpoint")
    assert [folder.state().word for folder in dead[2:]] == ["missing", "missing"]
    until(lambda: cancelled in jobs("CANCELLED"), "Slurm is done with the cancelled job")
    states = {job.id: job.state for job in queue()}
    assert sorted(states.values()).count("FAILED") == 2
    assert (states[cancelled], states[killed]) == ("CANCELLED", "FAILED")
    assert {states.get(job, "forgotten") for job in pending} <= {
        "CANCELLED",
        "forgotten",
    }  # Slurm keeps no task that never started

    until(lambda: len(at_work()) >= 2, "two are at work")
    launcher.process.kill()
    launcher.end()
    kept = {
        folder.path: (folder.path / "env.json").stat().st_mtime_ns
        for folder in [*runs("done"), *map(run_of, at_work())]
    }
    assert len(kept) >= 4
    again = start(*sweep)
    until(lambda: "in Slurm already: " in again.said, "the same command finds the jobs that went on")
    Path("brake").unlink()
    assert again.end() == 0, again.said
    assert len(runs("done")) == 12
    assert {path: (path / "env.json").stat().st_mtime_ns for path in kept} == kept
    once = 3 * (10 + 100 + 50 + 20)
    assert (
        once <= rounds() <= once + 3
    )  # the round that raised, and the one in which a worker was killed, are played again

    basic = tmp_path / "basic"
    basic.mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(basic)
        assert call("run", "-m", "-cd", str(tmp_path / "conf"), *GIVEN[4:], *sweep).code == 0
    for outputs in (tmp_path / "outputs", basic / "outputs"):
        assert call("collect", str(outputs / "runs"), "--to", str(outputs / "to")).code == 0
    pd.testing.assert_frame_equal(numbers(tmp_path / "outputs/to"), numbers(basic / "outputs/to"))
    times = pd.read_csv(tmp_path / "outputs/to/times.csv")
    assert len(times) == 12
    assert times["slurm_job"].str.fullmatch(r"\d+_\d+|\d+").all()
    assert {*times["slurm_node"]} == {"n1", "n2"}
    assert (times["slurm_job_seconds"] >= times["attempt_seconds"]).all()
    for folder in runs("done"):
        assert (
            folder.metrics.path.read_bytes()
            == (basic / "outputs/runs" / folder.path.name / "metrics.csv").read_bytes()
        )


def test_requeued_runs_go_on_from_their_checkpoint() -> None:
    """By an administrator's or a preemption's requeue, by themselves before a time limit, and
    because their node is lost.
    """
    Path("brake").touch()
    launcher = start("local_steps=1")
    for disturb in (
        ["scontrol", "requeue", "{id}"],
        ["scancel", "--signal=USR2", "{id}"],
        [*DOWN, "NodeName={node}"],
    ):
        before = rounds()
        until(lambda: at_work() and rounds() > before + 2, "it plays rounds")  # noqa: B023
        (job,) = [job for job in queue() if job.state == "RUNNING"]
        slurm(*(word.format(id=job.id, node=job.node) for word in disturb))
        until(
            lambda: jobs("PENDING") and runs("interrupted"), "it has its checkpoint and is in the queue again"
        )
        slurm(
            "scontrol", "update", f"JobId={job.id}", f"ExcNodeList={job.node}", "StartTime=now"
        )  # Slurm waits two minutes for the old node
    Path("brake").unlink()
    assert launcher.end() == 0, launcher.said
    assert rounds() == 100
    (folder,) = runs("done")
    assert (
        folder.metrics.path.read_bytes()
        == (call(*GIVEN, "local_steps=1", "outputs=basic").folder / "metrics.csv").read_bytes()
    )


def test_ctrl_c() -> None:
    sweep = ("local_steps=1,2",)
    Path("brake").touch()
    launcher = start(*sweep, "--detach")
    until(lambda: len(at_work()) == 2, "both are at work")
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.end() == 0
    assert re.search(
        r"left in Slurm: 2 jobs of this sweep; the same command waits .*scancel '\d+_\[0-1\]' ends them",
        launcher.said,
    )
    assert len(jobs("RUNNING")) == 2

    again = start(*sweep, "--cancel")
    until(lambda: "in Slurm already: 2 jobs of this sweep" in again.said, "the same command finds them")
    again.process.send_signal(signal.SIGINT)
    assert again.end() == 130
    assert "cancelling 2 jobs" in again.said
    assert jobs(*ACTIVE) == []
    assert len(runs("interrupted")) == 2


def test_several_points_in_one_process() -> None:
    """One raises and one is killed: the others run all the same, in as many submissions as it
    takes.
    """
    for name in ("brake", "trap"):
        Path(name).touch()
    launcher = start("local_steps=10", "eps=2,4,8,inf", "hydra.launcher.points_per_task=4")
    until(
        lambda: runs("failed") and [run for run in runs("running") if rounds_of(run) > 1],
        "the first has raised, the second runs",
    )
    (victim,) = runs("running")
    os.kill(read(victim.path, "status.json")["pid"], signal.SIGKILL)
    Path("brake").unlink()
    assert launcher.end() == 1
    assert len(runs("done")) == 2
    assert len(runs("failed")) == 2
    assert launcher.said.count("is submitted again") == 2
    assert sorted(job.state for job in queue()) == ["COMPLETED", "FAILED"]


def test_one_run_on_two_nodes() -> None:
    """The script of docs/sweeps.md: a signal saves a checkpoint, and the same command goes on."""
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
    script = page.partition("```bash\n#!/bin/bash\n#SBATCH")[2].partition("```")[0]
    Path("one-run.sh").write_text(f"#!/bin/bash\n#SBATCH{script}".replace("dpfl-bench", str(BINARY)))
    one = ("run", "-cd", "conf", "algo=tripping", "local_steps=1", *GIVEN[5:])
    submit = ("sbatch", "--wait", "--cpus-per-task=1", "--job-name=dpfl-one", "--output=said", "one-run.sh")
    Path("brake").touch()
    first = subprocess.Popen([*submit, *one[1:]], stdout=subprocess.DEVNULL)
    until(lambda: rounds() > 4, "it plays rounds")
    job = slurm("squeue", "--noheader", "--name=dpfl-one", "--format=%i").strip()
    assert slurm("squeue", "--noheader", f"--job={job}", "--format=%N").strip() == "n[1-2]"
    slurm("scancel", "--signal=TERM", job)
    assert first.wait(60) != 0
    said = [line for line in Path("said").read_text().splitlines() if line.startswith("dpfl-bench: ")]
    assert len(said) == 1
    assert "stopped by SIGTERM; the same command goes on from its checkpoint" in said[0]
    Path("brake").unlink()
    assert subprocess.run([*submit, *one[1:]], stdout=subprocess.DEVNULL, check=False).returncode == 0
    (folder,) = runs("done")
    assert read(folder.path, "env.json")["ranks"] == 2
    assert rounds() == 200  # each rank has played each round once
    alone = call(*one, "outputs=alone").folder
    assert folder.metrics.path.read_bytes() == (alone / "metrics.csv").read_bytes()
