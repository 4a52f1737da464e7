"""A sweep over worker processes: whatever is killed, the others go on, no process is left, the same
command ends with the same bits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest
from helpers.command import BINARY, command, read
from helpers.federations import settings_of
from helpers.forks import Child, Forks, forks
from helpers.processes import alive, all_gone, descendants, group, leads_a_group, until
from helpers.runs import same_numbers

from dpfl_bench.results.folder import RunFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]

# DP-ScaffNew that plays 40 rounds a second where there is a file `brake` beside it. A signal meets
# a run in its middle however fast or slow this machine is, and few rounds are computed.
BRAKED = """
import time
from dataclasses import dataclass
from pathlib import Path
from dpfl_bench.algorithms.scaffnew import ScaffNew

BRAKE = Path(__file__).with_name("brake")

@dataclass(frozen=True)
class Braked(ScaffNew):
    def server(self, server, sent, round):
        if BRAKE.exists():
            time.sleep(0.025)
        return super().server(server, sent, round)
"""
GIVEN = (
    "algo._target_=braked.Braked",
    "total_steps=160",
    "local_steps=2",
    "eval_every=4",
    "checkpoint_every=7",
    "plot=false",
    "device=cpu",
)
SEEDS = (0, 1, 2)
SWEEP = ("run", "-m", f"seed={','.join(map(str, SEEDS))}", *GIVEN)
BASIC = "hydra/launcher=basic"
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory, calibrations: Path, shared: Path) -> Iterator[Forks]:
    """For a command at the same time."""
    with forks(tmp_path_factory.mktemp("second"), calibrations, shared) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the algorithm that brakes, where each process finds it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "braked.py").write_text(BRAKED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.syspath_prepend(str(folder))
        yield folder


@pytest.fixture
def brake(own: Path) -> Iterator[Path]:
    """While this file is there, all runs are slow."""
    path = own / "brake"
    path.touch()
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def whole(own: Path, server: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of an undisturbed sweep, one point after the other."""
    assert not (own / "brake").exists()
    outputs = tmp_path_factory.mktemp("whole")
    assert run(server, outputs) == 0
    return outputs


def run(server: Forks, outputs: Path, *launcher: str) -> int | str | None:
    return server.say(*SWEEP, *launcher, f"outputs={outputs}").code


@cache
def ids() -> list[str]:
    return [settings_of(f"seed={seed}", *GIVEN).run_id for seed in SEEDS]


def folders(outputs: Path) -> list[Path]:
    return [outputs / "runs" / run_id for run_id in ids()]


def words(outputs: Path) -> list[str]:
    return [RunFolder(folder).state().word for folder in folders(outputs)]


def same_sweep(outputs: Path, whole: Path) -> None:
    for one, other in zip(folders(outputs), folders(whole), strict=True):
        same_numbers(one, other)
        assert sorted(p.name for p in one.iterdir()) == sorted(p.name for p in other.iterdir()), (
            "nothing is left lying about"
        )


def train(outputs: Path, count: int = 2) -> list[Path]:
    """Wait until so many points are in the middle of their training; these."""
    found: list[Path] = []

    def enough() -> bool:
        running = [
            folder
            for folder in folders(outputs)
            if (folder / "metrics.csv").exists() and not (folder / "result.json").exists()
        ]
        found[:] = [folder for folder in running if (folder / "metrics.csv").read_bytes().count(b"\n") > 4]
        return len(found) >= count

    assert until(enough, 90), f"{count} points train"
    return found


class Sweep(Protocol):
    @property
    def pid(self) -> int: ...
    def end(self) -> int: ...
    def kill(self, number: signal.Signals = signal.SIGKILL) -> None: ...


class Installed:
    """The command as it is installed, which starts its workers in another way. Signals reach all
    its group, as a terminal's do.
    """

    def __init__(self, *arguments: str):
        self.process = subprocess.Popen(
            [BINARY, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.pid = self.process.pid

    def end(self) -> int:
        code = self.process.wait(timeout=120)
        assert until(lambda: not group(self.pid), 20), (
            "who imports for the workers goes with the command, or the last of them"
        )
        return code

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if number == signal.SIGKILL:
            self.process.kill()
        else:
            os.killpg(self.pid, number)


Start = Callable[..., Sweep]


@pytest.fixture(params=["forked", "installed"])
def start(request: pytest.FixtureRequest, server: Forks) -> Start:
    """start(outputs): the sweep, in a process that has imported everything, or as users start
    it.
    """
    forked = request.param == "forked"
    return lambda outputs: (
        started(server, outputs) if forked else Installed(*SWEEP, *JOBLIB, f"outputs={outputs}")
    )


def started(server: Forks, outputs: Path, *launcher: str) -> Child:
    return server.lead(*SWEEP, *(launcher or JOBLIB), f"outputs={outputs}", err=Path(os.devnull))


def workers_of(pid: int) -> list[int]:
    return [found for found in descendants(pid) if leads_a_group(found)]


def test_the_same_numbers_as_one_after_the_other(
    server: Forks, whole: Path, brake: Path, tmp_path: Path
) -> None:
    child = started(server, tmp_path)
    train(tmp_path)
    workers = workers_of(child.pid)
    assert len(workers) == 2
    brake.unlink()
    assert child.end() == 0
    assert words(tmp_path) == ["done"] * 3
    same_sweep(tmp_path, whole)
    assert all_gone(workers, 0)


def test_a_killed_worker_ends_its_point_alone(
    start: Start, server: Forks, whole: Path, brake: Path, tmp_path: Path
) -> None:
    child = start(tmp_path)
    victim = train(tmp_path)[0]
    os.kill(read(victim, "status.json")["pid"], signal.SIGKILL)
    brake.unlink()
    assert child.end() == 1
    assert sorted(words(tmp_path)) == ["done", "done", "failed"]
    assert read(victim, "status.json")["error"] == "worker ended by SIGKILL (out of memory?)"
    done = {
        folder: (folder / "result.json").stat().st_mtime_ns
        for folder in folders(tmp_path)
        if folder != victim
    }
    assert run(server, tmp_path, *JOBLIB) == 0
    same_sweep(tmp_path, whole)
    assert done == {folder: (folder / "result.json").stat().st_mtime_ns for folder in done}, (
        "what was done is left alone"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_saves_every_point(
    start: Start, server: Forks, whole: Path, number: signal.Signals, brake: Path, tmp_path: Path
) -> None:
    child = start(tmp_path)
    trained = train(tmp_path)
    workers = workers_of(child.pid)
    child.kill(number)
    assert child.end() == 128 + number
    assert all_gone(workers, 0)
    assert sorted(words(tmp_path)) == ["interrupted", "interrupted", "missing"]
    for folder in trained:
        assert read(folder, "status.json")["error"] == f"stopped by {number.name}"
        assert (folder / "checkpoint" / "latest.pt").exists()
    brake.unlink()
    assert run(server, tmp_path) == 0, "by another launcher"
    same_sweep(tmp_path, whole)


@pytest.mark.usefixtures("brake")
def test_a_second_signal_does_not_wait(start: Start, tmp_path: Path) -> None:
    """Not for the rounds to end: the workers, which stand still meanwhile, find two signals."""
    child = start(tmp_path)
    trained = train(tmp_path)
    workers = workers_of(child.pid)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    child.kill(signal.SIGTERM)
    time.sleep(0.5)
    child.kill(signal.SIGINT)
    time.sleep(0.5)
    assert all(map(alive, workers))
    for worker in workers:
        os.kill(worker, signal.SIGCONT)
    assert child.end() == 130
    assert all_gone(workers, 0)
    assert {read(folder, "status.json")["error"] for folder in trained} == {
        "stopped by a second signal, at once"
    }


def test_a_killed_parent_leaves_no_orphan(
    start: Start, server: Forks, whole: Path, brake: Path, tmp_path: Path
) -> None:
    child = start(tmp_path)
    train(tmp_path)
    workers = workers_of(child.pid)
    assert len(workers) == 2
    child.kill()
    assert child.end() == -signal.SIGKILL
    assert all_gone(workers, 20), "they end by themselves"
    assert sorted(words(tmp_path)) == ["interrupted", "interrupted", "missing"], "they saved their rounds"
    brake.unlink()
    assert run(server, tmp_path, *JOBLIB) == 0
    same_sweep(tmp_path, whole)


@pytest.mark.usefixtures("brake")
def test_idle_workers_end_with_their_parent(server: Forks, tmp_path: Path) -> None:
    """Fewer points than workers: one waits for a point when the parent is killed."""
    child = started(server, tmp_path, *JOBLIB, "seed=0", "total_steps=160,2")
    train(tmp_path, 1)
    assert until(lambda: list(tmp_path.glob("runs/*/result.json")), 90), "the short one is done"
    workers = workers_of(child.pid)
    assert len(workers) == 2
    child.kill()
    child.end()
    assert all_gone(workers, 20), "they end by themselves"


def test_a_job_that_raises_stops_no_other(server: Forks, tmp_path: Path) -> None:
    """A setting that shows when the file is read, a divergence, and two that are right."""
    (tmp_path / "tiny.txt").write_text("".join(f"{1 if i % 2 else -1} 1:{i} 3:{i % 5}\n" for i in range(10)))
    file = ("dataset=libsvm", f"dataset.path={tmp_path / 'tiny.txt'}", "clients=2")
    swept = ("seed=0", "batch_size=2,5", "lr=1,1e30", "total_steps=10")
    code = server.run("run", "-m", *file, *swept, *JOBLIB, "plot=false", f"outputs={tmp_path}")
    assert code == 1
    found = [json.loads(path.read_text())["status"] for path in tmp_path.glob("runs/*/status.json")]
    assert sorted(found) == ["diverged", "done", "failed", "failed"]


def test_two_sweeps_at_once_compute_each_point_once(
    server: Forks, second: Forks, whole: Path, brake: Path, tmp_path: Path
) -> None:
    one = started(server, tmp_path)
    other = started(second, tmp_path, BASIC)
    train(tmp_path)
    brake.unlink()
    assert (other.end(), one.end()) == (0, 0)
    same_sweep(tmp_path, whole)
    rows = [(folder / "timing.csv").read_text().count("\n") for folder in folders(tmp_path)]
    assert rows == [1 + 1 + 20] * 3


def test_what_another_sweep_leaves_is_taken_over(
    server: Forks, second: Forks, whole: Path, brake: Path, tmp_path: Path
) -> None:
    """The other one has a point in its hands when it is killed: this one waits for it, then resumes
    it.
    """
    other = started(second, tmp_path, BASIC)
    (theirs,) = train(tmp_path, 1)
    worker = read(theirs, "status.json")["pid"]
    for process in (other.pid, worker):
        os.kill(process, signal.SIGSTOP)  # alive, and nothing moves
    brake.unlink()
    child = started(server, tmp_path)
    assert until(lambda: words(tmp_path).count("done") == 2, 90), "the other points are done"
    time.sleep(0.5)
    assert RunFolder(theirs).state().word == "running"
    os.kill(worker, signal.SIGKILL)
    other.kill()
    other.end()
    assert child.end() == 0
    same_sweep(tmp_path, whole)


def test_the_installed_command(whole: Path, tmp_path: Path) -> None:
    """With what it prints: the folders on stdout, the rest above one line of progress on stderr."""
    said = command(*SWEEP, *JOBLIB, "outputs=here", cwd=tmp_path)
    assert said.code == 0, said.err
    assert said.out.splitlines() == [str(Path("here/runs", folder.name)) for folder in folders(tmp_path)]
    lines = said.err.splitlines()
    assert lines[0].startswith("dpfl-bench: 3 jobs, 0 of them finished already; here/sweeps/")
    assert lines[-1] == "dpfl-bench: 3 of 3 jobs done"
    assert sum("test error" in line for line in lines) == 3
    same_sweep(tmp_path / "here", whole)


def test_a_sweep_that_is_refused_leaves_nobody(tmp_path: Path) -> None:
    """Not even who has begun to import for its workers."""
    child = Installed(*SWEEP, *JOBLIB, "eps=-1", f"outputs={tmp_path}")
    assert child.end() == 2
    assert not list(tmp_path.iterdir())
