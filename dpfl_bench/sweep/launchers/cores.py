"""On this machine's cores: persistent worker processes, each with one point at a time.

joblib itself, and Hydra's launcher of that name, give up the whole sweep when one worker is killed.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import ClassVar

from tqdm import tqdm

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.machine import device
from dpfl_bench.machine.say import say
from dpfl_bench.machine.signals import KILL, Interrupted, forget, graceful
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.lock import Busy, locked
from dpfl_bench.sweep import fork_server
from dpfl_bench.sweep.launchers.base import BUSY, Point, compose, work
from dpfl_bench.sweep.progress import Progress

POLL = 0.2  # seconds between two looks at the workers
GRACE = 30.0  # seconds that an orphan has to end its round


@dataclass(frozen=True)
class Cores:
    """The key of conf/hydra/launcher/cores.yaml, explained there."""

    n_jobs: int
    waits_for_others: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.n_jobs, int) or (self.n_jobs < 1 and self.n_jobs != -1):
            raise ConfigError(
                f"hydra.launcher.n_jobs={self.n_jobs}: expected at least 1, or -1 for all cores"
            )

    @property
    def at_once(self) -> int:
        return device.cores() if self.n_jobs == -1 else self.n_jobs

    def launch(self, points: Sequence[Point], progress: Progress) -> None:
        launch(points, progress, self.at_once)


def launch(points: Sequence[Point], progress: Progress, at_once: int) -> None:
    """`Launcher.launch` with `at_once` workers."""
    queue = deque(points)
    with graceful() as stop, _Pool(at_once) as crew:
        while queue or crew.busy:
            if stop.number is None:
                crew.hand_out(queue)
            else:
                queue.clear()
                crew.ask(stop.number)
            progress.update()  # while all are at work
            progress.busy.update(crew.listen())
        if stop.number is not None:
            raise Interrupted(stop.number)


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    link: Connection
    point: Point | None = None

    def tell(self, point: Point | None) -> None:
        """Hand the worker its next point; None ends it."""
        self.point = point
        with contextlib.suppress(OSError):  # the worker has just died; `listen` notices
            self.link.send(point and (point, compose(point)))

    def listen(self) -> Iterator[Point]:
        """Print the worker's lines. It gives its point back with an exit code. Yields a point that
        another process has.
        """
        try:
            while self.link.poll():
                said = self.link.recv()
                if isinstance(said, str):
                    tqdm.write(said, file=sys.stderr)
                else:
                    if said == BUSY and self.point:
                        yield self.point
                    self.point = None
        except (OSError, EOFError, pickle.UnpicklingError):  # killed, perhaps in the middle of a word
            pass


@dataclass
class _Pool:
    """The workers. Leaving the context leaves no process behind."""

    size: int
    workers: list[_Worker] = field(default_factory=list)
    asked: bool = False

    def __enter__(self) -> _Pool:
        self.threads = (
            max(1, device.cores() // self.size) if self.size > 1 else None
        )  # None: as for a single run
        self.context = fork_server.context()
        return self

    @property
    def busy(self) -> list[_Worker]:
        return [worker for worker in self.workers if worker.point]

    def hand_out(self, queue: deque[Point]) -> None:
        idle = [worker for worker in self.workers if not worker.point]
        while queue and (idle or len(self.workers) < self.size):
            (idle.pop() if idle else self._started()).tell(queue.popleft())

    def ask(self, number: int) -> None:
        """Pass the signal on, once: a second one would not let the workers' rounds end."""
        for worker in [] if self.asked else self.busy:
            _signal(worker, number)
        self.asked = True

    def listen(self) -> Iterator[Point]:
        """Wait a little for the workers' lines, and drop the workers that died. Yields the points
        that other processes have.
        """
        wait([worker.link for worker in self.workers], timeout=POLL)
        for worker in list(self.workers):
            code = worker.process.exitcode  # asked before its last lines are read
            yield from worker.listen()
            if code is not None:
                self.workers.remove(worker)
                worker.link.close()
                if worker.point and not self.asked:
                    _failed(worker.point, code)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.busy:  # after a second signal to us, which goes on to the workers
            _signal(worker, signal.SIGINT)
        for worker in self.workers:
            worker.tell(None)
        until = time.monotonic() + GRACE
        for worker in self.workers:
            worker.process.join(max(0.0, until - time.monotonic()))
            worker.process.kill()
            worker.process.join()

    def _started(self) -> _Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, self.threads), daemon=False)
        process.start()
        theirs.close()
        self.workers.append(_Worker(process, ours))
        return self.workers[-1]


def _signal(worker: _Worker, number: int) -> None:
    if worker.process.exitcode is None and worker.process.pid:
        os.kill(worker.process.pid, number)


def _failed(point: Point, code: int) -> None:
    """Write the failure into the run folder, for the dead worker could not. A process that has
    taken the folder over meanwhile writes for itself.
    """
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    error = f"worker ended by {how}" + (" (out of memory?)" if KILL and -code == KILL else "")
    folder = RunFolder(point.folder)
    with contextlib.suppress(Busy, OSError), locked(folder.path):
        if not folder.finished:
            folder.tell("failed", error=error)
    say(f"{point.label}: {error}")


def _serve(link: Connection, threads: int | None) -> None:
    """What a worker process does, from its start to its end."""
    lives = _watching(os.getppid())
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C reaches the parent alone, which passes it on
    forget()
    threading.Thread(target=_follow, args=(lives,), daemon=True).start()
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        os.environ.pop("SLURM_CPUS_PER_TASK", None)  # of all workers together
    sys.stdout = sys.stderr = _Lines(link)
    with contextlib.suppress(
        EOFError, OSError
    ):  # siblings may hold the other end open, so that a dead command is not always heard
        while lives() and (task := link.recv()):
            link.send(work(point=task[0], composed=task[1], wait=False))


def _watching(parent: int) -> Callable[[], bool]:
    """A function that says whether the command still lives. The command is our parent, or the
    parent of the process that forked us; that process lives as long as its children.
    """
    command = multiprocessing.parent_process()
    return lambda: os.getppid() == parent and (command is None or command.is_alive())


def _follow(lives: Callable[[], bool]) -> None:
    """A worker whose command was killed saves its round and ends."""
    while lives():
        time.sleep(0.1)
    for patience in (GRACE, 5.0):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)
    os._exit(1)


class _Lines(io.TextIOBase):
    """A worker's output: whole lines, which the command prints above its progress."""

    def __init__(self, link: Connection) -> None:
        self._link, self._pid, self._rest = link, os.getpid(), ""

    def write(self, text: str) -> int:
        if os.getpid() != self._pid:  # a child of the worker must not write into the worker's pipe
            return sys.__stderr__.write(text) if sys.__stderr__ else len(text)
        *lines, self._rest = (self._rest + text).split("\n")
        with contextlib.suppress(OSError):  # nobody listens any more
            for line in lines:
                self._link.send(line)
        return len(text)
