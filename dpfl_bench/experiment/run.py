"""One run: settings in, a run folder out. It survives an interruption at any moment. The same run
is computed once, however often it is asked for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from tqdm import tqdm

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.call import call
from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import alike, engine, measure, measured, report, resume, train
from dpfl_bench.experiment.book import Book, Empty
from dpfl_bench.experiment.build_player import build_player
from dpfl_bench.experiment.job import Job, initial, prepare
from dpfl_bench.federation.crew import Crew
from dpfl_bench.federation.diagnostics import Diagnostics
from dpfl_bench.federation.ranks import handed_out, with_share
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.machine import ranks
from dpfl_bench.machine.say import no_bar
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
from dpfl_bench.results.trackers import following

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


def along(settings: Settings) -> None:
    """What the other ranks do for rank 0's `run`: they play the same rounds, and write nothing."""
    with graceful() as stop:
        with stop.at_once():
            job, _ = _prepared(settings)
            checkpoint = train.Checkpoint.unpacked(ranks.group().told(None))
        _Runner(job, stop, Empty()).run(checkpoint)


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
    alike.check_ranks(settings)
    job = prepare(settings)
    origin = Origin(code, job.data.contents)
    alike.check_data(origin, job.data.digest)
    return job, origin


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
    ranks.group().told(checkpoint.packed() if checkpoint else b"")
    folder.write(".hydra/config.yaml", config_yaml)
    folder.write(".hydra/overrides.yaml", "".join(f"- {o}\n" for o in overrides))
    folder.write("partition.csv", job.data.partition_csv())
    if job.data.indices:
        job.data.indices.save(folder.path / "partition.npz")
    write_environment(folder, str(job.data.federation.features.device), origin)
    write_origin(folder, origin)
    folder.tell("running")
    with following(job.settings.trackers, folder, About.of(job.settings)) as followers:
        _Runner(job, stop, Book(job, origin, folder, claim, followers)).run(checkpoint)


@dataclass
class _Runner:
    """Drives the seeds of one run. Every rank does."""

    job: Job
    stop: Stop
    book: Empty
    finals: dict[int, torch.Tensor] = field(default_factory=dict)
    earlier_seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)
    psi0: float = float("nan")
    first: torch.Tensor = field(default_factory=lambda: torch.empty(0))  # x_0 of the seed

    def run(self, checkpoint: train.Checkpoint | None) -> None:
        ranks.group().hurry(self.job.settings.engine.rank_timeout)
        if checkpoint:
            self.finals, self.earlier_seconds = dict(checkpoint.finals), checkpoint.seconds
        total = sum(s.rounds for s in self.job.schedules)
        done = sum(s.rounds for s in self.job.schedules if s.seed in self.finals) + (
            checkpoint.done if checkpoint else 0
        )
        self.book.begin(checkpoint, done, total)
        diverged = None
        with tqdm(
            total=total, initial=done, unit="round", disable=no_bar(), leave=False, file=sys.stderr
        ) as bar:
            try:
                for schedule in self.job.schedules:
                    if schedule.seed not in self.finals:
                        self._seed(schedule, _of_seed(schedule.seed, checkpoint), bar)
            except train.Diverged as error:
                diverged = report.divergence(self.job.settings, schedule.seed, error)
        self.book.finish(diverged, self.seconds, self.finals)

    @property
    def seconds(self) -> float:
        return self.earlier_seconds + time.monotonic() - self.started

    def _seed(self, schedule: Schedule, checkpoint: train.Checkpoint | None, bar: Any) -> None:
        job = self.job
        player = build_player(job.settings, job.budget, job.problem, job.data, schedule.seed)
        player = with_share(player, schedule, ranks.group())
        with engine.memories(job.settings, player, self.book.place) as memory:
            self._play(player, memory, schedule, checkpoint, bar)

    def _play(
        self,
        player: RoundPlayer,
        memory: torch.Tensor | None,
        schedule: Schedule,
        checkpoint: train.Checkpoint | None,
        bar: Any,
    ) -> None:
        """The rounds of one seed. memory: zeros for the clients of this rank that the state is to
        take.
        """
        job = self.job
        start = player.start(initial(job, schedule.seed), memory)
        nothing = start.server.x.new_zeros(1, 1).expand(job.settings.clients, 1)
        self.psi0 = measure.psi(job, start, schedule, 0, lambda: nothing)
        self.first = start.server.x
        state, done = start, 0
        if checkpoint:
            state, done = _state(checkpoint, player, start, memory), checkpoint.done
        del start  # the clients' memories may fill most of the machine's memory
        with engine.crew(job.settings, player, state) as crew:
            if not checkpoint:
                self._evaluate(state, schedule, 0, None, crew)
                self._save(state, schedule, 0, crew)
            played = train.rounds(player, schedule, state, done, crew)
            for done, state, diagnostics in played:
                self.book.check()
                bar.update()
                self.book.beat(schedule.seed, done, schedule.rounds)
                if job.settings.evaluated(done, schedule.rounds):
                    self._evaluate(state, schedule, done, diagnostics, crew)
                asked, due = ranks.group().agreed(self.stop.number or 0, self._due(done))
                if asked or due:
                    self._save(state, schedule, done, crew)
                if asked:
                    raise Interrupted(asked)
        self.finals[schedule.seed] = state.output.cpu()

    def _due(self, done: int) -> bool:
        return (
            done % self.job.settings.checkpoint_every == 0
            or time.monotonic() - self.saved > CHECKPOINT_SECONDS
        )

    def _evaluate(
        self, state: TrainingState, schedule: Schedule, done: int, diagnostics: Diagnostics | None, crew: Crew
    ) -> None:
        job = self.job
        row = measure.metrics_row(
            job, state, schedule, done, diagnostics, self.psi0, crew.losses, lambda: crew.memories(state)
        )
        if "dissimilarity" in job.settings.measure:
            row |= measure.dissimilarity(crew.gradients(state.output), job.settings.clients)
        iterates = "iterates" in job.settings.measure
        place = measured.iterate(job, self.first, state.output) if iterates else None
        self.book.append(row, place, self.seconds)

    def _save(self, state: TrainingState, schedule: Schedule, done: int, crew: Crew) -> None:
        whole = replace(state, memory=crew.memories(state))
        self.book.save(whole, schedule.seed, done, self.seconds, self.finals)
        self.saved = time.monotonic()


def _state(
    checkpoint: train.Checkpoint, player: RoundPlayer, start: TrainingState, memory: torch.Tensor | None
) -> TrainingState:
    """Where the checkpoint stands. start: has room for the memories of this rank's clients. memory:
    where they are to be, if that was chosen.
    """
    group = ranks.group()
    if group.size == 1:
        return checkpoint.state(player, memory)
    state = replace(checkpoint, memory=None).state(player)
    if start.memory is not None:
        handed_out(checkpoint.memories, start.memory, player.share, group)
    return replace(state, memory=start.memory)


def _of_seed(seed: int, checkpoint: train.Checkpoint | None) -> train.Checkpoint | None:
    return checkpoint if checkpoint and checkpoint.seed == seed else None
