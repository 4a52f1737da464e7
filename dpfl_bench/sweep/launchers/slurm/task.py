"""What runs on the node: the points of one array task, one after the other in one warm process."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.machine.say import say
from dpfl_bench.machine.signals import PREEMPTION, graceful
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.sweep.launchers.base import Point, work
from dpfl_bench.sweep.launchers.slurm.outcome import write_failed
from dpfl_bench.sweep.launchers.slurm.queue import Unanswered, ask

PREEMPTED = 128 + (
    PREEMPTION or 0
)  # Slurm's word `signal_delay` before the end; scancel and `scontrol requeue` say SIGTERM


@dataclass(frozen=True)
class Task:
    points: tuple[Point, ...]
    requeues: int

    def __call__(self) -> None:
        """Exits with 0 only if every point is done: Slurm shows a task with a failed point as
        FAILED.
        """
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", 0))
        code = self._run() if restarts <= self.requeues else self._give_up(restarts)
        if code == PREEMPTED:
            _requeue()
        if code:
            raise SystemExit(code)

    def _run(self) -> int:
        worst = 0
        with graceful() as stop:  # in place of submitit's handlers, which know no checkpoint
            for point in self.points:
                code = work(point) if stop.number is None else 0
                if stop.number is not None and not RunFolder(point.folder).finished:
                    return 128 + stop.number
                worst = max(worst, code)
        return worst

    def _give_up(self, restarts: int) -> int:
        for point in self.points:
            if RunFolder(point.folder).state().word not in ("done", "diverged", "failed"):
                write_failed(
                    point,
                    f"given up: Slurm started it {restarts + 1} times; more hydra.launcher.time, or"
                    " hydra.launcher.requeues",
                )
        return 1


def _requeue() -> None:
    """Slurm ends this process and starts the task again, where there is room; a point then goes on
    from its checkpoint.
    """
    try:
        ask("scontrol", "requeue", os.environ["SLURM_JOB_ID"])
    except (ConfigError, Unanswered) as error:
        say(f"{error}; the launcher submits it again")
