"""What is written while a run is under way: the growing tables, checkpoints and, last, the result.
Of several ranks, rank 0 has the book; the others have one in which nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from dpfl_bench.budget import each_client
from dpfl_bench.experiment import privacy_record, report, train
from dpfl_bench.experiment.job import Job
from dpfl_bench.experiment.pulse import Pulse
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.lock import Claim
from dpfl_bench.results.origin import Origin
from dpfl_bench.results.trackers import Followers

Finals = dict[int, torch.Tensor]


class Empty:
    """Nothing is written."""

    place = Path()  # for the file of the clients' memories

    def begin(self, checkpoint: train.Checkpoint | None, done: int, in_all: int) -> None:
        """done: rounds of all seeds, of in_all, that were played before."""

    def beat(self, seed: int, round: int, rounds: int) -> None:
        """One more round was played."""

    def check(self) -> None:
        """Raise Lost if the folder is no longer ours."""

    def append(self, row: dict[str, Any], place: dict[str, Any] | None, seconds: float) -> None:
        """The row of an evaluated round. place: where the iterate is, if that is measured."""

    def save(self, state: TrainingState, seed: int, done: int, seconds: float, finals: Finals) -> None:
        """A checkpoint. done: rounds of this seed. finals: of the seeds that are done."""

    def finish(self, diverged: dict[str, Any] | None, seconds: float, finals: Finals) -> None: ...


@dataclass
class Book(Empty):
    job: Job
    origin: Origin
    folder: RunFolder
    claim: Claim
    followers: Followers
    pulse: Pulse = field(init=False)

    def __post_init__(self) -> None:
        self.place = self.folder.checkpoint.parent

    @property
    def _iterates(self) -> bool:
        return "iterates" in self.job.settings.measure

    def begin(self, checkpoint: train.Checkpoint | None, done: int, in_all: int) -> None:
        settings = self.job.settings
        name = f"{settings.algo['name']} on {settings.dataset['name']} ({settings.run_id})"
        self.pulse = Pulse(self.folder, name, done, in_all)
        self.folder.measuring(settings.measure)
        self.folder.metrics.start(checkpoint.metrics_bytes if checkpoint else 0)
        self.folder.timing.start(checkpoint.timing_bytes if checkpoint else 0)
        if self._iterates:
            self.folder.iterates.start(checkpoint.iterates_bytes if checkpoint else 0)

    def check(self) -> None:
        self.claim.check()

    def beat(self, seed: int, round: int, rounds: int) -> None:
        self.pulse.beat(seed, round, rounds)

    def append(self, row: dict[str, Any], place: dict[str, Any] | None, seconds: float) -> None:
        where = {"seed": row["seed"], "round": row["round"]}
        self.folder.metrics.append(row)
        self.pulse.evaluated(row)
        if place is not None:
            self.folder.iterates.append({**where, **place})
        self.folder.timing.append({**where, "seconds": seconds})
        self.followers.follow()

    def save(self, state: TrainingState, seed: int, done: int, seconds: float, finals: Finals) -> None:
        train.Checkpoint.of(
            state,
            seed=seed,
            done=done,
            metrics_bytes=(size := self.folder.metrics.size),
            metrics_sum=self.folder.metrics.sum(size),
            timing_bytes=self.folder.timing.size,
            iterates_bytes=(places := self.folder.iterates.size if self._iterates else 0),
            iterates_sum=self.folder.iterates.sum(places),
            seconds=seconds,
            finals=finals,
            data=self.job.data.digest,
        ).save(self.folder.checkpoint, run_id=self.job.settings.run_id, origin=self.origin.hashes)

    def finish(self, diverged: dict[str, Any] | None, seconds: float, finals: Finals) -> None:
        """The result is written last: where it exists, the folder is complete."""
        folder = self.folder
        self.claim.check()
        torch.save(finals, folder.finals)
        guarantee = report.guarantee(self.job, diverged)
        if of_clients := each_client.text(report.played(self.job, diverged)):
            folder.write(each_client.FILE, of_clients)
        folder.write("privacy.json", privacy_record.privacy(self.job, diverged, guarantee))
        result = report.result(self.job, folder, seconds, diverged, self.origin, guarantee)
        if self.job.settings.plot:
            from dpfl_bench.results.plots import curve

            curve(folder.metrics.path, result, folder.path / "curve.png")
        folder.tell(result["status"])
        folder.write("result.json", result)
        for file in (folder.checkpoint, folder.previous):
            file.unlink(missing_ok=True)
        folder.tidy()  # a file of memories, where the system kept its name
