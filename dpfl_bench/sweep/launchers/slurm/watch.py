"""Hands points to Slurm, looks after them until none is left, and says what became of those that
ended without a word.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.machine.say import say
from dpfl_bench.machine.signals import Interrupted, Stop, graceful
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.lock import SILENCE, holder
from dpfl_bench.sweep.launchers.base import Detached, Point
from dpfl_bench.sweep.launchers.slurm import queue, submission
from dpfl_bench.sweep.launchers.slurm.interrupt import choice, left, number_of
from dpfl_bench.sweep.launchers.slurm.outcome import Verdict, verdicts, write_failed
from dpfl_bench.sweep.launchers.slurm.queue import Full, Seen, Unanswered
from dpfl_bench.sweep.launchers.slurm.submission import Record
from dpfl_bench.sweep.launchers.slurm.task import Task
from dpfl_bench.sweep.progress import Progress

WAITS_FOREVER = re.compile(r"held|NeverSatisfied", re.I)  # squeue's reasons


class Submitter(Protocol):
    """What the watch needs of the launcher (launcher.Slurm): the options, and how points are
    submitted.
    """

    @property
    def poll_seconds(self) -> int: ...
    @property
    def settle_seconds(self) -> int: ...
    @property
    def requeues(self) -> int: ...
    @property
    def on_interrupt(self) -> Literal["cancel", "detach"] | None: ...

    def tasks(self, points: Sequence[Point]) -> list[Task]: ...
    def arrays(self, tasks: Sequence[Task]) -> list[Sequence[Task]]: ...
    def submit(self, root: Path, tasks: Sequence[Task]) -> Record: ...


@dataclass
class Queued:
    """A task in the queue, and those of its points that this sweep asks for."""

    id: str
    record: Record
    points: tuple[Point, ...]
    since: float  # when it was submitted
    ended: float | None = None  # when that was first seen
    on_hold: bool = False  # Slurm keeps it back, and the user has been told so

    @property
    def silence(self) -> float:
        """Seconds since it was seen to have ended."""
        self.ended = self.ended or time.monotonic()
        return time.monotonic() - self.ended


class Watch:
    def __init__(self, slurm: Submitter, points: Sequence[Point], progress: Progress) -> None:
        self.slurm, self.progress = slurm, progress
        self.root = Path(points[0].outputs) / "slurm"
        self.todo = {point.run_id: point for point in points}  # not in the queue
        self.labels = {point.folder: point.label for point in points}
        self.jobs: dict[str, Queued] = {}
        self.starts: Counter[str] = Counter()
        self.silences = 0  # how often in a row Slurm did not answer
        self.full = False

    def run(self) -> None:
        with graceful() as stop:
            try:
                while self.todo or self.jobs:
                    self._turn(stop)
                    self._pause(stop)
                    if stop.number is not None:
                        self._stopped(stop)
            except (Interrupted, Detached):
                raise
            except KeyboardInterrupt:  # a second signal
                raise Detached(left(self.jobs, len(self.todo))) from None
            except BaseException:
                say(left(self.jobs, len(self.todo)))
                raise
        self.progress.update(now=True)
        self._tell_failures()
        self._tidy()

    def _tidy(self) -> None:
        self.todo = {}
        with suppress(Unanswered), submission.alone(self.root):
            self._adopt()  # nothing, but it closes the records of what has ended

    def _turn(self, stop: Stop) -> None:
        try:
            if self.todo:
                self._hand_over(stop)
            self._look()
            self.silences = 0
        except Unanswered as error:
            self.silences += 1
            if self.silences > len(queue.WAITS) and not self.jobs:
                raise ConfigError(
                    f"{error}: expected an answer from Slurm; try again when sinfo works"
                ) from None
            if self.silences == 1:
                say(f"{error}; asking again, jobs go on meanwhile")

    def _pause(self, stop: Stop) -> None:
        end = time.monotonic() + self.slurm.poll_seconds
        while (self.todo or self.jobs) and stop.number is None and time.monotonic() < end:
            self.progress.update()
            self._tell_failures()
            time.sleep(0.2)

    def _tell_failures(self) -> None:
        """A line for each run that has failed since the last look, while the others go on."""
        for run, state in self.progress.failures():
            if run in self.labels:
                log = next((j.record.log(j.id) for j in self.jobs.values() if _has(j, run)), None)
                see = f"; see {log}" if log else ""
                say(f"{state.word}: {run.name} {self.labels[run]}: {state.first_line}{see}")

    def _hand_over(self, stop: Stop) -> None:
        """What an earlier or another launcher has in the queue is waited for; the rest is
        submitted.
        """
        with submission.alone(self.root):
            self._adopt()
            try:
                for tasks in self.slurm.arrays(self.slurm.tasks(self._free())):
                    if stop.number is None:
                        self._submit(tasks)
            except Full as error:  # goes on as jobs end
                if not self.jobs:
                    raise ConfigError(
                        f"{error}: expected room in the queue for an array; set hydra.launcher.array_size"
                        " below it"
                    ) from None
                if not self.full:
                    say(f"{error}; the other points ({len(self.todo)}) wait for room in the queue")
                self.full = True
            except ConfigError as error:
                if not self.jobs:
                    raise
                say(f"{error}; the other points ({len(self.todo)}) are left out")
                self.todo = {}

    def _free(self) -> list[Point]:
        """What nobody works on. A run that another process has, on a cluster or not, is left to it,
        and taken over if it dies.
        """
        self.todo = {run: point for run, point in self.todo.items() if not RunFolder(point.folder).finished}
        return [point for point in self.todo.values() if not holder(point.folder)]

    def _adopt(self) -> None:
        records = {record: record.ids for record in submission.known(self.root)}
        seen = queue.look({job: record.name for record, ids in records.items() for job in ids})
        before = len(self.jobs)
        for record, ids in records.items():
            active = {job: runs for job, runs in zip(ids, record.tasks, strict=False) if not seen[job].ended}
            for job, runs in active.items():
                self._take(record, job, [self.todo[run] for run in runs if run in self.todo])
            if not ids:
                queue.cancel_named(
                    record.name
                )  # its submission was cut off, and its tasks may lack their pickles
            if not active:
                record.close()
        if len(self.jobs) > before:
            say(f"in Slurm already: {number_of(len(self.jobs) - before)} of this sweep, waited for")

    def _submit(self, tasks: Sequence[Task]) -> None:
        record = self.slurm.submit(self.root, tasks)
        for job, task in zip(record.ids, tasks, strict=True):
            self._take(record, job, task.points)

    def _take(self, record: Record, job: str, points: Sequence[Point]) -> None:
        if points:
            self.jobs[job] = Queued(job, record, tuple(points), record.since)
            self.starts.update(point.run_id for point in points)
            for point in points:
                del self.todo[point.run_id]

    def _look(self) -> None:
        seen = queue.look({job.id: job.record.name for job in self.jobs.values()})
        for job in list(self.jobs.values()):
            if seen[job.id].ended:
                self._settle(job, seen[job.id])
            elif WAITS_FOREVER.search(seen[job.id].reason) and not job.on_hold:
                job.on_hold = True
                say(f"{job.id} waits: {seen[job.id].reason}; scontrol release {job.id}, or scancel {job.id}")

    def _settle(self, job: Queued, seen: Seen) -> None:
        wanted = verdicts(job.points, job.since, seen)
        if set(wanted.values()) != {"leave"} and job.silence < self.slurm.settle_seconds:
            return  # what the node wrote may still be on its way here
        if "wait" in wanted.values() and job.silence < SILENCE + self.slurm.settle_seconds:
            return  # on another host a dead process is known by its silence; a living one is another sweep's
        del self.jobs[job.id]
        for point in job.points:
            self._conclude(job, point, wanted[point], seen)

    def _conclude(self, job: Queued, point: Point, wanted: Verdict, seen: Seen) -> None:
        log = job.record.log(job.id)
        starts = self.starts[point.run_id]
        if wanted == "fail":
            write_failed(point, f"Slurm: {seen}, and the run left no result; see {log}")
        elif wanted == "again" and starts > self.slurm.requeues:
            write_failed(
                point,
                f"Slurm: {seen}, given up after {starts} submissions (hydra.launcher.requeues); see {log}",
            )
        elif wanted == "again":
            say(f"{job.id} ended: {seen}; {point.run_id} is submitted again")
            self.todo[point.run_id] = point

    def _stopped(self, stop: Stop) -> None:
        assert stop.number is not None
        chosen = choice(stop.number, self.slurm.on_interrupt, len(self.jobs)) if self.jobs else "cancel"
        if chosen == "detach":
            raise Detached(left(self.jobs, len(self.todo)))
        if chosen == "cancel":
            self._cancel()
            self._tidy()
            raise Interrupted(stop.number)
        stop.number = None

    def _cancel(self) -> None:
        """Returns when the jobs have ended, which may take as long as one round of theirs, or
        Slurm's patience (KillWait).
        """
        if self.jobs:
            say(
                f"cancelling {number_of(len(self.jobs))}, and waiting until they have written their"
                " checkpoints"
            )
        try:
            queue.cancel(list(self.jobs))
            while self.jobs:
                self._look()
                time.sleep(min(1.0, self.slurm.poll_seconds))
        except Unanswered as error:
            raise Detached(f"{error}; {left(self.jobs, 0)}") from None
        except KeyboardInterrupt:
            say(f"cancelled, but not waited for; {left(self.jobs, 0)}")


def _has(job: Queued, run: Path) -> bool:
    return any(point.folder == run for point in job.points)
