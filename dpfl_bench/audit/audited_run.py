"""The run that is audited: its settings, its record, and everything it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from dpfl_bench.audit.claim import Claim
from dpfl_bench.budget.guarantee import Guarantee
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import compose
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.validate import settings as validated
from dpfl_bench.experiment import privacy_record
from dpfl_bench.experiment.build_player import build_player
from dpfl_bench.experiment.job import Job, initial, prepare
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.results import where_it_was
from dpfl_bench.results.folder import BROKEN, RunFolder

CONFIG = Path(".hydra") / "config.yaml"


@dataclass(frozen=True)
class Asked:
    """What was asked for, before any data load."""

    settings: Settings
    folder: RunFolder
    record: Mapping[str, Any] | None  # its privacy.json; None: not run yet


@dataclass(frozen=True)
class Audited:
    job: Job
    claim: Claim
    confidence: float
    canaries: int

    @property
    def seed(self) -> int:
        return self.job.settings.seed

    @property
    def schedule(self) -> Schedule:
        return self.job.schedules[0]

    @cached_property
    def player(self) -> RoundPlayer:
        return build_player(self.job.settings, self.job.budget, self.job.problem, self.job.data, self.seed)

    @property
    def x(self) -> torch.Tensor:
        return initial(self.job, self.seed)


def asked(words: Sequence[str], config_dir: str | None, config_name: str) -> Asked:
    """words: one run folder, or overrides. Raises ConfigError for what cannot be audited."""
    if len(words) == 1 and "=" not in words[0]:
        return _of_folder(Path(words[0]))
    composed = compose.composed(words, config_dir, config_name)
    settings = validated(composed)
    folder = RunFolder.at(settings.outputs, settings.run_id)
    return Asked(settings, folder, _record(folder) if folder.finished else None)


def _of_folder(path: Path) -> Asked:
    folder = RunFolder(path.resolve())
    if not (folder.path / CONFIG).is_file():
        raise ConfigError(
            f"{path}: expected a run folder, with .hydra/config.yaml, or overrides; say dpfl-bench audit"
            " outputs/runs/ID"
        )
    if not folder.finished:
        raise ConfigError(
            f"{path}: expected a finished run, found one that is {folder.state().word}; finish it first"
        )
    composed = compose.composed((), str(folder.path / ".hydra"), "config")
    record = _record(folder)
    where_it_was.go(folder)
    return Asked(validated(composed), folder, record)


def _record(folder: RunFolder) -> Mapping[str, Any]:
    try:
        record = folder.read("privacy.json")
    except BROKEN:
        record = None
    if record is None:
        raise ConfigError(f"{folder.path}: expected a readable privacy.json; run it again")
    return record


def prepared(asked: Asked, confidence: float, canaries: int) -> Audited:
    """Everything that the run is made of. One that was not run yet claims what its budget says."""
    if asked.record is not None:
        claim = Claim.read(asked.record)  # refused before data load
    elif not asked.settings.private:
        claim = Claim.read({"private": False})
    job = prepare(asked.settings)
    if asked.record is None:
        guarantee = Guarantee.of(job.budget)
        claim = Claim.read(privacy_record.privacy(job, None, guarantee))
    return Audited(job, claim, confidence, canaries)
