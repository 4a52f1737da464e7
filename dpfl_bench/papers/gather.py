"""From an artefact's sweeps to their numbers: jobs, what is finished of them, what is lacking."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.compose import Composed, Composer
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.validate import settings
from dpfl_bench.config.words import word
from dpfl_bench.papers import fields, sweeps
from dpfl_bench.papers.artefact import Artefact
from dpfl_bench.papers.sweeps import Job, Sweep
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.select.sources import Facts, Run, Source
from dpfl_bench.sweep import points
from dpfl_bench.sweep.launchers.base import Point

CONFIG = "config"  # the primary config


@dataclass(frozen=True)
class Where:
    """Where an artefact is reproduced, and how."""

    scale: str
    reading: str
    outputs: str  # the artefacts' folders and `runs` lie here
    config_dir: str | None
    composer: Composer


@dataclass
class Gathered:
    """What there is of one sweep."""

    sweep: Sweep
    jobs: list[Job] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)  # the same as a user types them
    points: dict[Point, Settings] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    lacks: str = ""  # why some or all of it is not there
    waits: bool = False  # for an earlier sweep, whose best is not known before all of it is there

    @property
    def unfinished(self) -> int:
        """Runs that could be there and are not."""
        return len(self.points) - len(self.sources) if self.sweep.does == "run" else 0


@dataclass
class Evidence:
    """Everything that there is for one artefact."""

    artefact: Artefact
    where: Where
    sweeps: dict[str, Gathered]

    @property
    def depth(self) -> int:
        laid = {name: each.sweep for name, each in self.sweeps.items()}
        return max((sweeps.depth(laid, name, self.artefact) for name in laid), default=0)

    def at_depth(self, depth: int) -> list[Gathered]:
        laid = {name: each.sweep for name, each in self.sweeps.items()}
        return [e for name, e in self.sweeps.items() if sweeps.depth(laid, name, self.artefact) == depth]

    def of(self, names: Sequence[str]) -> list[Gathered]:
        """The sweeps of these names; of none, all."""
        return [each for name, each in self.sweeps.items() if not names or name in names]

    def sources(self, names: Sequence[str]) -> list[Source]:
        return [source for each in self.of(names) for source in each.sources]

    def plan_jobs(self, depth: int) -> None:
        """The jobs of the sweeps of that depth. Those before it are gathered."""
        for each in self.at_depth(depth):
            self._plan(each)
        if depth == 0:
            laid = {name: each.sweep for name, each in self.sweeps.items()}
            fields.check(self.artefact, laid, self.where.composer)
            for each in self.sweeps.values():
                if each.sweep.at_best is not None and not each.sweep.absent:
                    self._check_later(each)

    def _check_later(self, each: Gathered) -> None:
        """The jobs of a later sweep, with the first values of the earlier one in place of the
        best: a mistake is told before anything runs.
        """
        jobs = each.sweep.jobs([self._first(each, whole=False)]) if each.sweep.does == "run" else []
        planned = points.planned(self.where.composer, jobs, self.where.config_dir, CONFIG)
        if planned.errors:
            raise ConfigError(f"{self.artefact.file}: sweeps.{each.sweep.name}: {planned.errors[0]}")

    def _first(self, each: Gathered, whole: bool = True) -> dict[str, Any]:
        """The first job of a sweep; or (not whole) what it takes of the earlier one."""
        stage = each.sweep.at_best
        taken: dict[str, Any] = {}
        if stage is not None:
            before = self._first(self.sweeps[stage["of"]])
            taken = {key: before[key] for key in (*stage.get("for", ()), *stage["keys"]) if key in before}
            if str(taken.get("local_steps", "")).startswith("divisors"):
                taken["local_steps"] = 1  # of whatever there is in all
        return each.sweep.first(taken) if whole else taken

    def _plan(self, each: Gathered) -> None:
        sweep = each.sweep
        if sweep.absent:
            each.lacks = sweep.absent
            return
        stage: Sequence[Mapping[str, Any]] = ({},)
        if sweep.at_best is not None:
            before = self.sweeps[sweep.at_best["of"]]
            each.lacks, each.waits = before.lacks, bool(before.unfinished or before.waits)
            stage = () if each.waits else sweeps.best_points(sweep, before.sources)
        more = [word("outputs", self.where.outputs)]
        more += [] if "plot" in sweep.set else ["plot=false"]
        own = ["-cd", self.where.config_dir] if self.where.config_dir else []
        each.commands = sweep.commands(stage, [*more, *own]) if stage else []
        each.jobs = [(*job, *more) for job in sweep.jobs(stage)]
        if sweep.does != "run":
            for job in each.jobs:
                self._checked(each, job)
        else:
            planned = points.planned(self.where.composer, each.jobs, self.where.config_dir, CONFIG)
            if planned.errors:
                raise ConfigError(f"{self.artefact.file}: sweeps.{sweep.name}: {planned.errors[0]}")
            self._keep_what_can_run(each, planned.points)

    def _checked(self, each: Gathered, job: Job) -> None:
        """A plan or a deal, before anything runs."""
        used = ("dataset", "partition") if each.sweep.does == "data" else None
        try:
            composed = self.where.composer.job(job)
            settings(composed, used=used) if used else settings(composed)
        except ConfigError as error:
            where = f"{self.artefact.file}: sweeps.{each.sweep.name}"
            raise ConfigError(f"{where}: {' '.join(job)}: {error}") from None

    def _keep_what_can_run(self, each: Gathered, planned: Mapping[Point, Settings]) -> None:
        """Runs whose data are not on this machine are left out."""
        from dpfl_bench.data.overview import absent  # with numpy

        known: dict[str, str] = {}
        for point, run in planned.items():
            node = run.dataset
            key = json.dumps(node, sort_keys=True, default=str)
            if key not in known:
                known[key] = absent(node)
            if line := known[key]:
                each.lacks = line
            else:
                each.points[point] = run

    def read(self, depth: int) -> None:
        """What is finished of the sweeps of that depth."""
        for each in self.at_depth(depth):
            if each.sweep.does == "run":
                each.sources = _finished(each)
                if each.unfinished:
                    each.lacks = f"{each.unfinished} of {len(each.points)} runs are not finished"
            else:
                each.sources = [fact for job in each.jobs if (fact := self._fact(each, job))]

    def _fact(self, each: Gathered, job: Job) -> Facts | None:
        """None, and why, where the data are not here."""
        composed = self.where.composer.job(job)
        if each.sweep.does != "data" and not composed.config["theory"]["measured"]:
            return _facts(each.sweep, composed)  # without data
        from dpfl_bench.data.overview import absent

        if line := absent(settings(composed, used=("dataset",)).dataset):
            each.lacks = line
            return None
        try:
            return _facts(each.sweep, composed)
        except ValueError as error:  # not all is here, or it cannot be dealt like that
            each.lacks = str(error)
            return None


def _finished(each: Gathered) -> list[Source]:
    sources: list[Source] = []
    for point in each.points:
        folder = RunFolder(point.folder, point.run_id)
        result = folder.finished
        if result is not None:
            sources.append(Run(each.sweep.name, folder.path, result))
    return sources


def _facts(sweep: Sweep, composed: Composed) -> Facts:
    """A plan, or who holds what."""
    flat = dict(_flat(composed.config))
    if sweep.does == "plan":
        from dpfl_bench.experiment.plan import plan

        return Facts(sweep.name, "plan", flat, plan(settings(composed)), words=composed.overrides)
    return Facts(sweep.name, "data", flat, _dealt(settings(composed, used=("dataset", "partition"))))


def _dealt(chosen: Settings) -> dict[str, Any]:
    """Records of the clients; deviations divide by n - 1."""
    import numpy as np

    from dpfl_bench.assembly.data import load_data

    loaded = load_data(chosen)
    sizes = np.array([len(part) for part in loaded.parts], dtype=float)
    return {
        "clients": len(sizes),
        "train_mean": float(sizes.mean()),
        "train_std": float(sizes.std(ddof=1)) if len(sizes) > 1 else 0.0,
        **_tests(loaded.test_sizes, len(loaded.records.test_y) / len(sizes)),
        "classes": loaded.records.classes,
        "subset": loaded.records.subset or "whole",
    }


def _tests(own: list[int] | None, share: float) -> dict[str, float | None]:
    """Test records of the clients' own; else each one's share of the common set, without a
    deviation.
    """
    if own is None:
        return {"test_mean": share, "test_std": None}
    mean = sum(own) / len(own)
    squares = sum((size - mean) ** 2 for size in own)
    return {"test_mean": mean, "test_std": (squares / (len(own) - 1)) ** 0.5 if len(own) > 1 else 0.0}


def _flat(node: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in node.items():
        pairs += (
            _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
        )
    return pairs


def gathered(artefact: Artefact, where: Where) -> Evidence:
    """Nothing yet, but the sweeps that there are to be."""
    laid = sweeps.laid(artefact, where.scale, where.reading)
    return Evidence(artefact, where, {name: Gathered(sweep) for name, sweep in laid.items()})
