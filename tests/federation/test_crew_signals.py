"""`dpfl-bench run` with worker processes: killed, interrupted or let down by a worker, it ends
cleanly and goes on to the same bits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from helpers.command import BINARY, read
from helpers.federations import settings_of
from helpers.forks import Forks
from helpers.processes import alive, all_gone, children, group, named_memory, until
from helpers.runs import same_numbers

pytestmark = pytest.mark.slow

EVALUATED = 10  # rounds between two rows of metrics.csv
SAVED = 23  # rounds between two checkpoints
LONG = (
    "total_steps=340",
    "local_steps=2",
    f"eval_every={EVALUATED}",
    f"checkpoint_every={SAVED}",
    "plot=false",
    "device=cpu",
    "engine.chunk=30",
)
CASES = {
    "dp_scaffnew": ("algo=dp_scaffnew", *LONG),  # 90 clients' memories are shared
    "dp_scaffold": (
        "algo=dp_scaffold",
        "privacy=record",
        "batch_size=2",
        "clients=30",
        "lr=.1",
        *LONG,
        "engine.chunk=10",
    ),
}


@dataclass
class Whole:
    """An undisturbed run by one process."""

    server: Forks
    given: tuple[str, ...]
    folder: Path

    def again(self, outputs: Path, workers: int) -> Path:
        """The same command where something went wrong."""
        assert self.server.run("run", *self.given, f"engine.workers={workers}", f"outputs={outputs}") == 0
        return outputs / "runs" / self.folder.name


@pytest.fixture(scope="module")
def whole(server: Forks, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return undisturbed(server, "dp_scaffnew", tmp_path_factory.mktemp("whole"))


def undisturbed(server: Forks, name: str, outputs: Path) -> Whole:
    given = CASES[name]
    assert server.run("run", *given, "engine.workers=1", f"outputs={outputs}") == 0
    return Whole(server, given, outputs / "runs" / settings_of(*given).run_id)


@dataclass
class Started:
    """The command in a process group of its own, as a shell starts it, some rows further than the
    last one came.
    """

    pid: int
    code: Callable[[], int]
    workers: list[int]
    folder: Path

    def end(self) -> int:
        """Its exit code; nobody of its group is left."""
        assert all_gone([self.pid], 20)
        code = self.code()
        assert all_gone(self.workers, 3)
        assert group(self.pid) == []
        assert not (self.folder / "result.json").exists(), "it ended before: the test would show nothing"
        return code


@contextmanager
def started(whole: Whole, outputs: Path, workers: int = 2, installed: bool = False) -> Iterator[Started]:
    """By a fork, or as the installed command, which takes seconds to import what it needs."""
    folder, errors = outputs / "runs" / whole.folder.name, outputs / "stderr.txt"
    had = _rows(folder)
    command = ("run", *whole.given, f"engine.workers={workers}", f"outputs={outputs}")
    if installed:
        with errors.open("w") as stream:
            process = subprocess.Popen(
                [BINARY, *command], stderr=stream, stdout=subprocess.DEVNULL, start_new_session=True
            )
        pid, code = process.pid, process.wait
    else:
        child = whole.server.lead(*command, err=errors)
        pid, code = child.pid, child.end
    try:
        assert until(lambda: (_rows(folder) > had + 2 and _beyond_a_checkpoint(folder)) or not alive(pid), 60)
        found = children(pid)
        assert len(found) == workers
        assert not named_memory(pid)
        assert not any(named_memory(worker) for worker in found)
        yield Started(pid, code, found, folder)
    finally:
        if alive(pid):
            os.killpg(pid, signal.SIGKILL)
            code()


def _rows(folder: Path) -> int:
    path = folder / "metrics.csv"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _beyond_a_checkpoint(folder: Path) -> bool:
    """By some rounds: one that is saved now is not the checkpoint's."""
    path = folder / "checkpoint" / "latest.pt"
    return path.exists() and 0 < torch.load(path, weights_only=True)["done"] < EVALUATED * (_rows(folder) - 2)


@pytest.mark.parametrize(("name", "victim"), [("dp_scaffnew", 0), ("dp_scaffold", 1)])
def test_a_killed_worker(
    whole: Whole, name: str, victim: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if whole.given != CASES[name]:
        whole = undisturbed(whole.server, name, tmp_path_factory.mktemp("other"))
    with started(whole, tmp_path) as run:
        pid = run.workers[victim]
        os.kill(pid, signal.SIGKILL)
        assert run.end() == 1
    status = read(run.folder, "status.json")
    assert status["status"] == "failed"
    assert status["error"].startswith(f"WorkerDied: worker process {pid} ended by SIGKILL")
    assert "the same command goes on from the checkpoint" in status["error"]
    told = (tmp_path / "stderr.txt").read_text()
    assert f"dpfl-bench: {status['error'].removeprefix('WorkerDied: ')}" in told
    assert "Traceback" not in told
    kept = torch.load(run.folder / "checkpoint" / "latest.pt", weights_only=True)
    assert kept["done"] > 0
    same_numbers(whole.folder, whole.again(tmp_path, workers=2))


@pytest.mark.parametrize(
    ("number", "installed", "later"), [(signal.SIGINT, True, 1), (signal.SIGTERM, False, 2)]
)
def test_a_signal_to_the_whole_group(
    whole: Whole, number: signal.Signals, installed: bool, later: int, tmp_path: Path
) -> None:
    with started(whole, tmp_path, installed=installed) as run:
        os.killpg(run.pid, number)
        assert run.end() == 128 + number
    status = read(run.folder, "status.json")
    assert (status["status"], status["error"]) == ("interrupted", f"stopped by {number.name}")
    kept = torch.load(run.folder / "checkpoint" / "latest.pt", weights_only=True)
    assert kept["done"] % SAVED != 0, f"the round at hand, or an unlucky one in {SAVED}"
    assert "Traceback" not in (tmp_path / "stderr.txt").read_text()
    same_numbers(whole.folder, whole.again(tmp_path, workers=later))


def test_two_signals_stop_at_once(whole: Whole, tmp_path: Path) -> None:
    with started(whole, tmp_path, workers=3) as run:
        os.killpg(run.pid, signal.SIGSTOP)  # both come before the round ends
        os.killpg(run.pid, signal.SIGINT)
        os.killpg(run.pid, signal.SIGTERM)
        os.killpg(run.pid, signal.SIGCONT)
        assert run.end() == 130
    same_numbers(whole.folder, whole.again(tmp_path, workers=2))


def test_the_first_process_killed(whole: Whole, tmp_path: Path) -> None:
    with started(whole, tmp_path, workers=3) as run:
        before = time.monotonic()
        os.kill(run.pid, signal.SIGKILL)
        assert run.end() == -signal.SIGKILL
        assert time.monotonic() - before < 5
    assert read(run.folder, "status.json")["status"] == "running"  # as it was: nobody could write
    same_numbers(whole.folder, whole.again(tmp_path, workers=2))


def test_killed_again_and_again(whole: Whole, tmp_path: Path) -> None:
    """A worker, the first process, Ctrl-C: every start goes on where the last one stopped, with
    another number of workers.
    """
    for workers, kill in ((2, "worker"), (3, "first"), (2, "group")):
        with started(whole, tmp_path, workers) as run:
            if kill == "worker":
                os.kill(run.workers[0], signal.SIGKILL)
            elif kill == "first":
                os.kill(run.pid, signal.SIGKILL)
            else:
                os.killpg(run.pid, signal.SIGINT)
            run.end()
    same_numbers(whole.folder, whole.again(tmp_path, workers=1))
