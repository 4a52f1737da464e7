"""One run: settings in, a run folder out. Survives interruption at any moment; asked twice, it computes once."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from tqdm import tqdm

from dpfl_bench import build, measure, report, train
from dpfl_bench.federation.cohort import Diagnostics, State
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.job import Job, initial, prepare
from dpfl_bench.results.environment import environment
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.settings import Settings

CHECKPOINT_SECONDS = 60.0


class Interrupted(Exception):
    """A signal asked the run to stop; its checkpoint is written."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@dataclass
class _Stop:
    number: int | None = None


@contextmanager
def _graceful() -> Iterator[_Stop]:
    """SIGINT and SIGTERM ask for a stop after the round at hand; a second one stops at once."""
    stop = _Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.number is not None:
            raise KeyboardInterrupt
        stop.number = number

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def run(settings: Settings, overrides: Sequence[str], config_yaml: str) -> RunFolder:
    """Train all seeds and write the folder. Raises Interrupted after a signal; what failed is in status.json."""
    folder = RunFolder.at(settings.outputs, settings.run_id)
    if folder.finished:
        return folder
    job = prepare(settings)
    folder.write(".hydra/config.yaml", config_yaml)
    folder.write(".hydra/overrides.yaml", "".join(f"- {o}\n" for o in overrides))
    folder.write("partition.csv", job.data.partition_csv())
    folder.write("env.json", environment(str(job.data.federation.features.device)))
    folder.write("status.json", report.status("running"))
    try:
        with _graceful() as stop:
            _Runner(job, folder, stop).run()
    except (Interrupted, KeyboardInterrupt) as error:  # a second signal does not wait for the round to end
        folder.write("status.json", report.status("interrupted", error=str(error)))
        raise
    except BaseException as error:
        folder.write("status.json", report.status("failed", error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc()))
        raise
    return folder


@dataclass
class _Runner:
    """Drives the seeds of one run and writes what happens."""

    job: Job
    folder: RunFolder
    stop: _Stop
    finals: dict[int, torch.Tensor] = field(default_factory=dict)
    earlier_seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)
    psi0: float = float("nan")

    def run(self) -> None:
        found = train.Checkpoint.load(self.folder.checkpoint)
        self.folder.metrics.start(found.metrics_bytes if found else 0)
        self.folder.timing.start(found.timing_bytes if found else 0)
        if found:
            self.finals, self.earlier_seconds = dict(found.finals), found.seconds
        total = sum(s.rounds for s in self.job.schedules)
        done = sum(s.rounds for s in self.job.schedules if s.seed in self.finals) + (found.done if found else 0)
        diverged = None
        with tqdm(total=total, initial=done, unit="round", disable=None, leave=False, file=sys.stderr) as bar:
            try:
                for schedule in self.job.schedules:
                    if schedule.seed not in self.finals:
                        self._seed(schedule, found if found and found.seed == schedule.seed else None, bar)
            except train.Diverged as error:
                diverged = {"seed": schedule.seed, "round": error.round}
        self._finish(diverged)

    @property
    def seconds(self) -> float:
        return self.earlier_seconds + time.monotonic() - self.started

    def _seed(self, schedule: Schedule, found: train.Checkpoint | None, bar: Any) -> None:
        job = self.job
        cohort = build.cohort(job.settings, job.budget, job.problem, job.data, schedule.seed)
        start = cohort.start(initial(job, schedule.seed))
        self.psi0 = measure.psi(job, start, schedule, 0)
        if not found:
            self._evaluate(start, schedule, 0, None)
            self._save(start, schedule, 0)
        state, done = (found.state(cohort), found.done) if found else (start, 0)
        played = train.rounds(cohort, schedule, state, done)
        for done, state, diagnostics in played:
            bar.update()
            if done % job.settings.eval_every == 0 or done == schedule.rounds:
                self._evaluate(state, schedule, done, diagnostics)
            if self.stop.number is not None or self._due(done):
                self._save(state, schedule, done)
            if self.stop.number is not None:
                raise Interrupted(self.stop.number)
        self.finals[schedule.seed] = state.output.cpu()

    def _due(self, done: int) -> bool:
        return done % self.job.settings.checkpoint_every == 0 or time.monotonic() - self.saved > CHECKPOINT_SECONDS

    def _evaluate(self, state: State, schedule: Schedule, done: int, diagnostics: Diagnostics | None) -> None:
        row = measure.metrics_row(self.job, state, schedule, done, diagnostics, self.psi0)
        self.folder.metrics.append(row)
        self.folder.timing.append({"seed": schedule.seed, "round": done, "seconds": self.seconds})

    def _save(self, state: State, schedule: Schedule, done: int) -> None:
        train.Checkpoint.of(
            state,
            seed=schedule.seed,
            done=done,
            metrics_bytes=self.folder.metrics.size,
            timing_bytes=self.folder.timing.size,
            seconds=self.seconds,
            finals=self.finals,
        ).save(self.folder.checkpoint)
        self.saved = time.monotonic()

    def _finish(self, diverged: dict[str, int] | None) -> None:
        """The result is written last: where it exists, the folder is complete."""
        folder = self.folder
        torch.save(self.finals, folder.finals)
        folder.write("privacy.json", report.privacy(self.job))
        result = report.result(self.job, folder, self.seconds, diverged)
        if self.job.settings.plot:
            from dpfl_bench.results.plots import curve

            curve(folder.metrics.path, result, folder.path / "curve.png")
        folder.write("status.json", report.status(result["status"]))
        folder.write("result.json", result)
        folder.checkpoint.unlink(missing_ok=True)
