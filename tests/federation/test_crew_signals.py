"""`dpfl-bench run` with worker processes: killed, interrupted or let down by a worker, it ends
cleanly and goes on to the same bits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from helpers.command import BINARY, read
from helpers.federations import settings_of
from helpers.forks import Forks
from helpers.processes import all_gone, children, group, named_memory, until
from helpers.runs import same_numbers

pytestmark = pytest.mark.slow

LONG = (
    "total_steps=1000",
    "local_steps=2",
    "eval_every=50",
    "checkpoint_every=60",
    "plot=false",
    "device=cpu",
    "engine.chunk=10",
)
CASES = {
    "dp_scaffnew": ("algo=dp_scaffnew", *LONG),  # 90 clients' memories are shared
    "dp_scaffold": ("algo=dp_scaffold", "privacy=record", "batch_size=2", "lr=.1", *LONG),
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

    process: subprocess.Popen[str]
    workers: list[int]
    folder: Path

    def end(self) -> int:
        """Its exit code; nobody of its group is left."""
        code = self.process.wait(timeout=20)
        assert all_gone(self.workers, 3)
        assert group(self.process.pid) == []
        assert not (self.folder / "result.json").exists(), "it ended before: the test would show nothing"
        return code


@contextmanager
def started(whole: Whole, outputs: Path, workers: int = 2) -> Iterator[Started]:
    folder = outputs / "runs" / whole.folder.name
    had = _rows(folder)
    command = [str(BINARY), "run", *whole.given, f"engine.workers={workers}", f"outputs={outputs}"]
    with (outputs / "stderr.txt").open("w") as errors:
        process = subprocess.Popen(
            command, stderr=errors, stdout=subprocess.DEVNULL, text=True, start_new_session=True
        )
    try:
        assert until(
            lambda: (_rows(folder) > had + 2 and _rounds(folder) > 0) or process.poll() is not None, 60
        )
        found = children(process.pid)
        assert len(found) == workers
        assert not named_memory(process.pid)
        assert not any(named_memory(worker) for worker in found)
        yield Started(process, found, folder)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _rows(folder: Path) -> int:
    path = folder / "metrics.csv"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _rounds(folder: Path) -> int:
    """That its checkpoint holds."""
    path = folder / "checkpoint" / "latest.pt"
    return int(torch.load(path, weights_only=True)["done"]) if path.exists() else 0


@pytest.mark.parametrize(("name", "victim"), [("dp_scaffnew", 0), ("dp_scaffold", 1)])
def test_a_killed_worker(
    server: Forks, name: str, victim: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = undisturbed(server, name, tmp_path_factory.mktemp("other"))
    with started(whole, tmp_path) as run:
        pid = run.workers[victim]
        os.kill(pid, signal.SIGKILL)
        assert run.end() == 1
    status = read(run.folder, "status.json")
    assert status["status"] == "failed"
    assert status["error"].startswith(f"WorkerDied: worker process {pid} ended by SIGKILL")
    assert "the same command goes on from the checkpoint" in status["error"]
    assert status["error"].splitlines()[0] in (tmp_path / "stderr.txt").read_text()
    kept = torch.load(run.folder / "checkpoint" / "latest.pt", weights_only=True)
    assert kept["done"] > 0
    same_numbers(whole.folder, whole.again(tmp_path, workers=2))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("later", [1, 2])
def test_a_signal_to_the_whole_group(
    whole: Whole, number: signal.Signals, later: int, tmp_path: Path
) -> None:
    with started(whole, tmp_path) as run:
        os.killpg(run.process.pid, number)
        assert run.end() == 128 + number
    status = read(run.folder, "status.json")
    assert (status["status"], status["error"]) == ("interrupted", f"stopped by {number.name}")
    kept = torch.load(run.folder / "checkpoint" / "latest.pt", weights_only=True)
    assert kept["done"] % 60 != 0, "the round at hand, or an unlucky one in 60"
    assert "Traceback" not in (tmp_path / "stderr.txt").read_text()
    same_numbers(whole.folder, whole.again(tmp_path, workers=later))


def test_two_signals_stop_at_once(whole: Whole, tmp_path: Path) -> None:
    with started(whole, tmp_path, workers=3) as run:
        os.killpg(run.process.pid, signal.SIGSTOP)  # both come before the round ends
        os.killpg(run.process.pid, signal.SIGINT)
        os.killpg(run.process.pid, signal.SIGTERM)
        os.killpg(run.process.pid, signal.SIGCONT)
        assert run.end() == 130
    same_numbers(whole.folder, whole.again(tmp_path, workers=2))


def test_the_first_process_killed(whole: Whole, tmp_path: Path) -> None:
    with started(whole, tmp_path, workers=3) as run:
        before = time.monotonic()
        run.process.kill()
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
                run.process.kill()
            else:
                os.killpg(run.process.pid, signal.SIGINT)
            run.end()
    same_numbers(whole.folder, whole.again(tmp_path, workers=1))
