"""On a cluster: every point is a task of a Slurm array, submitted through submitit and watched
until none is left.

submitit writes the sbatch script and carries the tasks to the nodes. Signals, requeueing, exit
codes and what became of a task are ours (task.py, watch.py): submitit's own handlers
know no checkpoint, and its job objects are lost with the launcher.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.machine import signals
from dpfl_bench.sweep.launchers.base import Point
from dpfl_bench.sweep.launchers.slurm import queue, submission
from dpfl_bench.sweep.launchers.slurm.queue import Full
from dpfl_bench.sweep.launchers.slurm.submission import Record
from dpfl_bench.sweep.launchers.slurm.task import Task
from dpfl_bench.sweep.launchers.slurm.watch import Watch
from dpfl_bench.sweep.progress import Progress

FULL = re.compile("MaxSubmit")  # Assoc..., QOS...: the site's limit of jobs in the queue
PASSING = re.compile(
    r"timed out|unable to contact|connection refused|temporarily|transport endpoint|zero bytes|unexpected"
    r" message",
    re.I,
)
LEAST = {
    **{
        key: 1
        for key in ("cpus_per_task", "points_per_task", "array_parallelism", "array_size", "poll_seconds")
    },
    **{key: 0 for key in ("signal_delay", "requeues", "settle_seconds")},
}


@dataclass(frozen=True)
class Slurm:
    """The keys of conf/hydra/launcher/slurm.yaml, explained there."""

    waits_for_others: ClassVar[bool] = (
        True  # where another process has a point: most often a job of ours from an earlier launch
    )

    partition: str | None
    account: str | None
    qos: str | None
    time: int | str
    cpus_per_task: int
    mem: str | None
    gpus: int | str | None
    setup: Sequence[str]
    sbatch: Mapping[str, Any]
    array_parallelism: int
    array_size: int | None
    points_per_task: int
    signal_delay: int
    requeues: int
    poll_seconds: int
    settle_seconds: int
    on_interrupt: Literal["cancel", "detach"] | None

    def __post_init__(self) -> None:
        for key, least in LEAST.items():
            value = getattr(self, key)
            if value is None and key == "array_size":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"hydra.launcher.{key}={value}: expected a whole number, at least {least}")
        if isinstance(self.setup, str) or not all(isinstance(line, str) for line in self.setup):
            raise ConfigError(
                f"hydra.launcher.setup={self.setup}: expected lines of shell in brackets,"
                " hydra.launcher.setup='[module load a]'"
            )
        if self.on_interrupt not in (None, "cancel", "detach"):
            raise ConfigError(
                f"hydra.launcher.on_interrupt={self.on_interrupt}: expected cancel, detach or null (asks on a"
                " terminal)"
            )

    @property
    def at_once(self) -> int:
        return self.array_parallelism

    def launch(self, points: Sequence[Point], progress: Progress) -> None:
        _submitit()
        if points:
            Watch(self, points, progress).run()

    def tasks(self, points: Sequence[Point]) -> list[Task]:
        size = self.points_per_task
        return [
            Task(tuple(points[start : start + size]), self.requeues) for start in range(0, len(points), size)
        ]

    def arrays(self, tasks: Sequence[Task]) -> list[Sequence[Task]]:
        """No longer than the cluster takes."""
        if not tasks:
            return []
        size = min(queue.largest_array(), self.array_size or len(tasks))
        return [tasks[start : start + size] for start in range(0, len(tasks), size)]

    def submit(self, root: Path, tasks: Sequence[Task]) -> Record:
        """One array (one job, if there is one task) with a record under `root`. Nothing is left in
        the queue where it raises.
        """
        waits = iter(queue.WAITS)
        while True:
            record = submission.opened(root, [[point.run_id for point in task.points] for task in tasks])
            try:
                with _uninterrupted(), _outside_any_job():
                    record.submitted(self._sbatch(record.folder, tasks))
                return record
            except Exception as error:
                queue.cancel_named(record.name)  # sbatch may time out after the controller has taken the job
                record.close()
                said = " ".join(str(error).split())
                if FULL.search(said):
                    raise Full(f"sbatch: {said}") from None
                wait = next(waits, None)
                if wait is None or not PASSING.search(said):
                    raise ConfigError(
                        f"sbatch: {said}; see hydra.launcher.* (dpfl-bench run --cfg hydra"
                        " hydra/launcher=slurm)"
                    ) from None
                time.sleep(wait)

    def _sbatch(self, folder: Path, tasks: Sequence[Task]) -> list[str]:
        executor = _submitit().SlurmExecutor(folder=folder)
        executor.update_parameters(**self.parameters(folder.name))
        return [job.job_id for job in executor.submit_array(tasks)]

    def parameters(self, name: str) -> dict[str, Any]:
        """What an array asks for, in submitit's words."""
        named = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "mem": self.mem,
            "gpus_per_node": self.gpus,
        }
        return {
            **{key: value for key, value in named.items() if value is not None},
            "job_name": name,
            "wckey": None,
            "time": self.time,
            "cpus_per_task": self.cpus_per_task,
            "srun_args": [
                f"--cpus-per-task={self.cpus_per_task}"
            ],  # srun no longer takes it from sbatch (Slurm 22.05)
            "setup": list(self.setup),
            "signal_delay_s": self.signal_delay,
            "array_parallelism": self.array_parallelism,
            "stderr_to_stdout": True,
            "additional_parameters": {"requeue": True, **self.sbatch},
        }


def _submitit() -> Any:
    try:
        import submitit
    except ImportError:
        raise ConfigError(
            "hydra/launcher=slurm: expected the package submitit; pip install 'dpfl-bench[slurm]'"
        ) from None
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise ConfigError(
            "hydra/launcher=slurm: expected sbatch and srun on this machine; run on the cluster, or take"
            " hydra/launcher=cores"
        )
    return submitit


@contextmanager
def _outside_any_job() -> Iterator[None]:
    """A launcher that is itself a Slurm job keeps its own allocation's variables from sbatch, which
    would obey them.
    """
    inside = "SLURM_JOB_ID" in os.environ
    hidden = {
        k: v
        for k, v in os.environ.items()
        if inside and k.startswith(("SLURM_", "SLURMD_", "SRUN_")) and k != "SLURM_CONF"
    }
    for key in hidden:
        del os.environ[key]
    try:
        yield
    finally:
        os.environ.update(hidden)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A terminal sends Ctrl-C to sbatch too, which inherits our deaf ear; and no signal comes
    between the submission and its record.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signals.ASKING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.ASKING)
