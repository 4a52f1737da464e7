"""One run: settings in, a run folder out. It survives an interruption at any moment. The same run
is computed once, however often it is asked for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tqdm import tqdm

from dpfl_bench.budget import each_client
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.call import call
from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import engine, measure, measured, privacy_record, report, resume, train
from dpfl_bench.experiment.build_player import build_player
from dpfl_bench.experiment.job import Job, initial, prepare
from dpfl_bench.experiment.pulse import Pulse
from dpfl_bench.federation.crew import Crew
from dpfl_bench.federation.diagnostics import Diagnostics
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.machine.signals import Interrupted, Stop, graceful
from dpfl_bench.results import code_hashes
from dpfl_bench.results.attempt import attempt
from dpfl_bench.results.environment import write_environment
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.hyper_parameters import About
from dpfl_bench.results.lock import Claim
from dpfl_bench.results.origin import Origin, code_of, differing
from dpfl_bench.results.origin import write as write_origin
from dpfl_bench.results.provenance import Asker, Finding
from dpfl_bench.results.trackers import Followers, following

CHECKPOINT_SECONDS = 60.0


def run(settings: Settings, overrides: Sequence[str], config_yaml: str) -> RunFolder:
    """Train all seeds and write the folder. Refused settings leave no folder. Raises Busy if
    another process works there, Interrupted after a signal.
    """
    folder = RunFolder.at(settings.outputs, settings.run_id)
    _refuse_others(settings, folder)
    if not folder.finished:
        folder.check_writable()
        with graceful() as stop:
            with stop.at_once():
                job, origin = _prepared(settings)
            with attempt(folder) as claim:
                _write(job, origin, overrides, config_yaml, folder, claim, stop)
    return folder


def compute(
    settings: Settings, overrides: Sequence[str], config_yaml: str, folder: RunFolder, claim: Claim
) -> None:
    """Like `run`, for a caller that already holds the lock (`claim`). The run may be finished by
    now, if another process had the lock before.
    """
    _refuse_others(settings, folder)
    if not folder.finished:
        with graceful() as stop:
            with stop.at_once():
                job, origin = _prepared(settings)
            _write(job, origin, overrides, config_yaml, folder, claim, stop)


def _refuse_others(settings: Settings, folder: RunFolder) -> None:
    """Refuse a finished result of other code or data, unless the user accepted it."""
    finding = (
        Asker(lambda dataset: call(dataset, "dataset")).look(settings, folder) if folder.finished else None
    )
    if finding and finding.differs:
        raise ConfigError(finding.question())


def _prepared(settings: Settings) -> tuple[Job, Origin]:
    """The job and its origin: hashes of the code, read before it is loaded, and of the loaded
    data.
    """
    code_hashes.package()
    code = code_of(settings)
    job = prepare(settings)
    return job, Origin(code, job.data.contents)


def _write(
    job: Job,
    origin: Origin,
    overrides: Sequence[str],
    config_yaml: str,
    folder: RunFolder,
    claim: Claim,
    stop: Stop,
) -> None:
    if result := folder.finished:  # another process finished it while this one prepared
        if differs := differing(result.get("origin") or {}, origin, folder):
            raise ConfigError(Finding(folder, origin, differs).question())
        return
    checkpoint = resume.checkpoint(folder, job, origin)
    folder.write(".hydra/config.yaml", config_yaml)
    folder.write(".hydra/overrides.yaml", "".join(f"- {o}\n" for o in overrides))
    folder.write("partition.csv", job.data.partition_csv())
    if job.data.indices:
        job.data.indices.save(folder.path / "partition.npz")
    write_environment(folder, str(job.data.federation.features.device), origin)
    write_origin(folder, origin)
    folder.tell("running")
    with following(job.settings.trackers, folder, About.of(job.settings)) as followers:
        _Runner(job, origin, folder, stop, claim, followers).run(checkpoint)


@dataclass
class _Runner:
    """Drives the seeds of one run and writes what happens."""

    job: Job
    origin: Origin
    folder: RunFolder
    stop: Stop
    claim: Claim
    followers: Followers
    finals: dict[int, torch.Tensor] = field(default_factory=dict)
    earlier_seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)
    psi0: float = float("nan")
    first: torch.Tensor = field(default_factory=lambda: torch.empty(0))  # x_0 of the seed
    pulse: Pulse = field(init=False)

    def run(self, checkpoint: train.Checkpoint | None) -> None:
        self.folder.measuring(self.job.settings.measure)
        self.folder.metrics.start(checkpoint.metrics_bytes if checkpoint else 0)
        self.folder.timing.start(checkpoint.timing_bytes if checkpoint else 0)
        if self.iterates:
            self.folder.iterates.start(checkpoint.iterates_bytes if checkpoint else 0)
        if checkpoint:
            self.finals, self.earlier_seconds = dict(checkpoint.finals), checkpoint.seconds
        total = sum(s.rounds for s in self.job.schedules)
        done = sum(s.rounds for s in self.job.schedules if s.seed in self.finals) + (
            checkpoint.done if checkpoint else 0
        )
        diverged = None
        named = f"{self.job.settings.algo['name']} on {self.job.settings.dataset['name']}"
        self.pulse = Pulse(self.folder, f"{named} ({self.job.settings.run_id})", done, total)
        with tqdm(total=total, initial=done, unit="round", disable=None, leave=False, file=sys.stderr) as bar:
            try:
                for schedule in self.job.schedules:
                    if schedule.seed not in self.finals:
                        self._seed(schedule, _of_seed(schedule.seed, checkpoint), bar)
            except train.Diverged as error:
                diverged = report.divergence(self.job.settings, schedule.seed, error)
        self._finish(diverged)

    @property
    def iterates(self) -> bool:
        return "iterates" in self.job.settings.measure

    @property
    def seconds(self) -> float:
        return self.earlier_seconds + time.monotonic() - self.started

    def _seed(self, schedule: Schedule, checkpoint: train.Checkpoint | None, bar: Any) -> None:
        job = self.job
        player = build_player(job.settings, job.budget, job.problem, job.data, schedule.seed)
        with engine.memories(job.settings, player, self.folder.checkpoint.parent) as memory:
            self._play(player, memory, schedule, checkpoint, bar)

    def _play(
        self,
        player: RoundPlayer,
        memory: torch.Tensor | None,
        schedule: Schedule,
        checkpoint: train.Checkpoint | None,
        bar: Any,
    ) -> None:
        """The rounds of one seed. memory: zeros for all clients, (M, d), that the state is to
        take.
        """
        job = self.job
        start = player.start(initial(job, schedule.seed), memory)
        self.psi0, self.first = measure.psi(job, start, schedule, 0), start.server.x
        state, done = (checkpoint.state(player, memory), checkpoint.done) if checkpoint else (start, 0)
        del start  # the clients' memories may fill most of the machine's memory
        with engine.crew(job.settings, player, state) as crew:
            if not checkpoint:
                self._evaluate(state, schedule, 0, None, crew)
                self._save(state, schedule, 0)
            played = train.rounds(player, schedule, state, done, crew)
            for done, state, diagnostics in played:
                self.claim.check()
                bar.update()
                self.pulse.beat(schedule.seed, done, schedule.rounds)
                if job.settings.evaluated(done, schedule.rounds):
                    self._evaluate(state, schedule, done, diagnostics, crew)
                if self.stop.number is not None or self._due(done):
                    self._save(state, schedule, done)
                if self.stop.number is not None:
                    raise Interrupted(self.stop.number)
        self.finals[schedule.seed] = state.output.cpu()

    def _due(self, done: int) -> bool:
        return (
            done % self.job.settings.checkpoint_every == 0
            or time.monotonic() - self.saved > CHECKPOINT_SECONDS
        )

    def _evaluate(
        self, state: TrainingState, schedule: Schedule, done: int, diagnostics: Diagnostics | None, crew: Crew
    ) -> None:
        row = measure.metrics_row(self.job, state, schedule, done, diagnostics, self.psi0, crew.losses)
        if "dissimilarity" in self.job.settings.measure:
            row |= measure.dissimilarity(crew.gradients(state.output), self.job.settings.clients)
        self.folder.metrics.append(row)
        self.pulse.evaluated(row)
        if self.iterates:
            place = measured.iterate(self.job, self.first, state.output)
            self.folder.iterates.append({"seed": schedule.seed, "round": done, **place})
        self.folder.timing.append({"seed": schedule.seed, "round": done, "seconds": self.seconds})
        self.followers.follow()

    def _save(self, state: TrainingState, schedule: Schedule, done: int) -> None:
        train.Checkpoint.of(
            state,
            seed=schedule.seed,
            done=done,
            metrics_bytes=(size := self.folder.metrics.size),
            metrics_sum=self.folder.metrics.sum(size),
            timing_bytes=self.folder.timing.size,
            iterates_bytes=(places := self.folder.iterates.size if self.iterates else 0),
            iterates_sum=self.folder.iterates.sum(places),
            seconds=self.seconds,
            finals=self.finals,
            data=self.job.data.digest,
        ).save(self.folder.checkpoint, run_id=self.job.settings.run_id, origin=self.origin.hashes)
        self.saved = time.monotonic()

    def _finish(self, diverged: dict[str, Any] | None) -> None:
        """The result is written last: where it exists, the folder is complete."""
        folder = self.folder
        self.claim.check()
        torch.save(self.finals, folder.finals)
        guarantee = report.guarantee(self.job, diverged)
        if of_clients := each_client.text(report.played(self.job, diverged)):
            folder.write(each_client.FILE, of_clients)
        folder.write("privacy.json", privacy_record.privacy(self.job, diverged, guarantee))
        result = report.result(self.job, folder, self.seconds, diverged, self.origin, guarantee)
        if self.job.settings.plot:
            from dpfl_bench.results.plots import curve

            curve(folder.metrics.path, result, folder.path / "curve.png")
        folder.tell(result["status"])
        folder.write("result.json", result)
        for file in (folder.checkpoint, folder.previous):
            file.unlink(missing_ok=True)
        folder.tidy()  # a file of memories, where the system kept its name


def _of_seed(seed: int, checkpoint: train.Checkpoint | None) -> train.Checkpoint | None:
    return checkpoint if checkpoint and checkpoint.seed == seed else None
