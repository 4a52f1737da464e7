"""Composed settings and the federations that `run` would build of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from dpfl_bench import conf
from dpfl_bench.assembly.algorithm import build_algorithm
from dpfl_bench.assembly.data import Data
from dpfl_bench.assembly.model import build_problem
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.config import compose, validate
from dpfl_bench.config.settings import Settings
from dpfl_bench.data.records import Records
from dpfl_bench.experiment import run, train
from dpfl_bench.experiment.build_player import build_player
from dpfl_bench.experiment.exact_optimum import solve_reference
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.diagnostics import Diagnostics
from dpfl_bench.federation.holders import Holders
from dpfl_bench.federation.parts import Parts
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.federation.schedule import PlannedRound, Schedule
from dpfl_bench.federation.state import TrainingState

CONF = Path(conf.__path__[0])


# a generated federation that loads in milliseconds: 10 clients, 12 training records each, 3
# classes, 18 parameters
GENERATED = (
    "dataset=synthetic_logistic", "dataset.dimension=5", "dataset.classes=3",
    "dataset.records_per_client=15", "dataset.beta=1.0", "dataset.clients=10", "clients=10",
)  # fmt: skip
TINY = (
    *GENERATED,
    "rounds=4", "local_steps=3", "device=cpu", "plot=false",
    "privacy.calibration=fixed", "privacy.noise_multiplier=0.5",
)  # fmt: skip


@cache
def settings_of(*overrides: str, config_dir: str | None = None) -> Settings:
    """Composed and validated, as the command line does it."""
    return validate.settings(compose.composed(overrides, config_dir))


@dataclass(frozen=True)
class Played:
    """One seed of a job, ready to run: what `dpfl_bench.experiment.run` builds."""

    job: run.Job
    schedule: Schedule
    player: RoundPlayer
    start: TrainingState

    def play(self, state: TrainingState, round: PlannedRound) -> tuple[TrainingState, Diagnostics]:
        """One round, by this process."""
        return self.player.play(state, round, Alone(self.player))

    def states(self) -> list[TrainingState]:
        """The states after each round. Memories and the ledger are updated in place: every state
        holds copies.
        """
        ends = train.rounds(self.player, self.schedule, self.start, 0)
        return [dataclasses.replace(state, memory=_copy(state.memory)) for _, state, _ in ends]

    def x(self) -> torch.Tensor:
        return self.states()[-1].server.x


def _copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.clone()


def player_of(settings: Settings) -> Played:
    """Everything that `run.prepare` builds, for the settings' first seed."""
    job = run.prepare(settings)
    player = build_player(settings, job.budget, job.problem, job.data, settings.seed)
    return Played(job, job.schedules[0], player, player.start(run.initial(job, settings.seed)))


def player_on(settings: Settings, records: Records, parts: Parts, x0: np.ndarray | None = None) -> Played:
    """The same for records made by a test instead of the data set's, from x0 (default: the
    problem's start).
    """
    holders = Holders.of(parts, len(records.train_y))
    budget = Budget.of(settings, drawn_schedules(settings), holders)
    schedules = list(budget.schedules)
    problem = build_problem(settings, list(records.train_x.shape[1:]), records.classes)
    dtype = {"float32": torch.float32, "float64": torch.float64}[settings.dtype]
    lots = LotRule(settings.batch_size, settings.sample_rate)
    data = Data(
        Federation(records, parts, lots, torch.device(settings.device), dtype), records, parts, holders
    )
    job = run.Job(
        settings,
        schedules,
        budget,
        problem,
        data,
        solve_reference(settings, problem, data.federation),
        build_algorithm(settings),
    )
    player = build_player(settings, budget, problem, data, settings.seed)
    x = run.initial(job, settings.seed) if x0 is None else torch.from_numpy(x0).to(dtype)
    return Played(job, schedules[0], player, player.start(x))
