"""What the tests of the engine share: composed settings, the player that `run` would build of them,
and every algorithm there is.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.forks import Forks, forks

from dpfl_bench import conf
from dpfl_bench.assembly.algorithm import build_algorithm
from dpfl_bench.assembly.data import Data
from dpfl_bench.assembly.holders import Holders
from dpfl_bench.assembly.model import build_problem
from dpfl_bench.budget.budget import Budget, drawn_schedules
from dpfl_bench.config import compose, validate
from dpfl_bench.config.settings import Settings
from dpfl_bench.data.records import Records
from dpfl_bench.experiment import run, train
from dpfl_bench.experiment.player import build_player
from dpfl_bench.experiment.reference import solve_reference
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.diagnostics import Diagnostics
from dpfl_bench.federation.partition import Parts
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.federation.schedule import PlannedRound, Schedule
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.machine import device

CONF = Path(conf.__path__[0])

torch.set_num_threads(1)  # the tests' tensors are too small to share out

# a generated federation that loads in milliseconds: 10 clients, 12 training records each, 3
# classes, 18 parameters
TINY = (
    "dataset=synthetic_logistic", "dataset.dimension=5", "dataset.classes=3", "dataset.records_per_client=15", "dataset.beta=1.0",
    "dataset.clients=10", "clients=10", "rounds=4", "local_steps=3", "device=cpu", "plot=false", "privacy.calibration=fixed",
    "privacy.noise_multiplier=0.5",
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


@dataclass(frozen=True)
class Algo:
    """One conf/algo/*.yaml, ours or of a folder named in DPFL_TEST_CONF, at client level or with
    the overrides of record level.
    """

    name: str
    folder: str | None
    overrides: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.name}-record" if self.overrides else self.name

    def settings(self, **changes: Any) -> Settings:
        """On TINY, with these settings instead of its own. Composing takes a while, so what needs
        no composing is replaced.
        """
        settings = settings_of(f"algo={self.name}", *TINY, *self.overrides, config_dir=self.folder)
        if (
            settings.sample_rate is not None and "sample_rate" not in changes
        ):  # Poisson lots are part of it: ones that suit TINY
            changes = {**{k: v for k, v in changes.items() if k != "batch_size"}, "sample_rate": 0.3}
        if settings.algo.get("warm_rounds", 0) is None:  # so that TINY's few rounds are not all of them
            changes = {**changes, "algo": {**settings.algo, "warm_rounds": 1}}
        if "privacy" in changes:
            changes["privacy"] = dataclasses.replace(settings.privacy, **changes["privacy"])
        made = dataclasses.replace(settings, **changes)
        if made.private and made.privacy.unit == "record" and made.lots != "full":
            matching: Any = "replace_one" if made.lots == "fixed" else "add_remove_one"
            made = dataclasses.replace(made, privacy=dataclasses.replace(made.privacy, neighbours=matching))
        return made

    @property
    def warm(self) -> bool:
        """Whether the model stands still in its first rounds."""
        return self.settings().algo.get("warm_rounds", 0) != 0


def _algorithms() -> list[Algo]:
    named = os.environ.get("DPFL_TEST_CONF", "")
    folders: list[str | None] = [None, *(folder for folder in named.split(os.pathsep) if folder)]
    found = [Algo(name, folder) for folder in folders for name in _names(Path(folder) if folder else CONF)]
    return [algo for client in found for algo in (client, *_at_record_level(client))]


def _at_record_level(client: Algo) -> list[Algo]:
    settings = client.settings()
    if not settings.private or settings.privacy.unit == "record" or settings.privacy.bound != "clip":
        return []
    naive = ("algo.naive=true",) if "naive" in settings.algo else ()
    return [Algo(client.name, client.folder, ("privacy=record", *naive))]


def _names(folder: Path) -> list[str]:
    found = sorted((folder / "algo").rglob("*.yaml"))
    return [
        path.relative_to(folder / "algo").with_suffix("").as_posix() for path in found if path.stem[0] != "_"
    ]


ALGORITHMS = _algorithms()


@pytest.fixture(params=ALGORITHMS, ids=lambda algo: algo.id)
def algo(request: pytest.FixtureRequest) -> Algo:
    """Every algorithm, one after the other."""
    found: Algo = request.param
    return found


@pytest.fixture
def private_algo(algo: Algo) -> Algo:
    if not algo.settings().private:
        pytest.skip("an algorithm without privacy")
    return algo


@pytest.fixture(params=["torch", "numpy"])
def multiplies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whose products of small matrices are taken, whatever this machine's processor."""
    name: str = request.param
    monkeypatch.setattr(device, "numpy_multiplies", lambda: name == "numpy")
    return name


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A process to fork commands from."""
    with forks(tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("calibrations")) as running:
        yield running


@pytest.fixture(scope="session")
def calibrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, calibrations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and calibrations of the tests stay out of the repository and of the user's cache."""
    monkeypatch.setenv("DPFL_CACHE_DIR", str(calibrations))
    monkeypatch.chdir(tmp_path)
