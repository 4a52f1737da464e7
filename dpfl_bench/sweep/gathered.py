"""A described sweep and its numbers: its jobs, what is finished of them, what is lacking."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpfl_bench.checks.errors import ConfigError, located
from dpfl_bench.config import fits
from dpfl_bench.config.compose import Composed, Composer
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.validate import settings
from dpfl_bench.config.words import word
from dpfl_bench.data.folder import data_root
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.select.sources import Facts, Run, Source
from dpfl_bench.sweep import points
from dpfl_bench.sweep.launchers.base import Point
from dpfl_bench.sweep.recipe import Job, Recipe, Values

CONFIG = "config"  # the primary config
USED = {"data": ("dataset", "partition")}  # groups of settings, of what does not use all


@dataclass(frozen=True)
class Place:
    """Where sweeps are run."""

    outputs: str
    config_dir: str | None
    composer: Composer


@dataclass
class Gathered:
    """What there is of one sweep."""

    name: str
    recipe: Recipe
    place: Place
    before: Gathered | None = None  # the sweep whose best points this one takes
    jobs: list[Job] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)  # the same as a user types them
    points: dict[Point, Settings] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    lacks: str = ""  # why some or all of it is not there
    waits: bool = False  # for an earlier sweep, whose best is not known before all of it is there

    @property
    def depth(self) -> int:
        """How many sweeps have to be done before."""
        return 1 + self.before.depth if self.before else 0

    @property
    def unfinished(self) -> int:
        """Runs that could be there and are not."""
        return len(self.points) - len(self.sources) if self.recipe.does == "run" else 0

    def plan(self) -> None:
        """The jobs. What was before is read."""
        recipe, before = self.recipe, self.before
        if recipe.absent:
            self.lacks = recipe.absent
            return
        stage: Sequence[Values] = ({},)
        if before and recipe.at_best:
            self.lacks, self.waits = before.lacks, bool(before.unfinished or before.waits)
            stage = () if self.waits else recipe.at_best.best(before.sources)
        more = self._more
        own = ["-cd", self.place.config_dir] if self.place.config_dir else []
        self.commands = recipe.commands(stage, [*more, *own])
        self.jobs = [(*job, *more) for job in recipe.jobs(stage)]
        if recipe.does == "run":
            self._keep_what_can_run(self._planned(self.jobs))
        for job in self.jobs if recipe.does != "run" else ():
            with located(f"sweeps.{self.name}: {' '.join(job)}"):
                self._settings(self.place.composer.job(job))

    def check_later(self) -> None:
        """The jobs of a later sweep, with the first values of the earlier one in place of the
        best: a mistake is told before anything runs.
        """
        if self.before and self.recipe.does == "run" and not self.recipe.absent:
            self._planned([(*job, *self._more) for job in self.recipe.jobs([self._taken()])])

    @property
    def _more(self) -> list[str]:
        """What all of its jobs say besides."""
        return [word("outputs", self.place.outputs), *([] if "plot" in self.recipe.set else ["plot=false"])]

    def _taken(self) -> dict[str, Any]:
        """What it takes of the first job of the earlier sweep."""
        stage, before = self.recipe.at_best, self.before
        if stage is None or before is None:
            return {}
        first = before.recipe.first(before._taken())
        taken = {key: first[key] for key in (*stage.groups, *stage.keys) if key in first}
        if str(taken.get("local_steps", "")).startswith("divisors"):
            taken["local_steps"] = 1  # of whatever there is in all
        return taken

    def _planned(self, jobs: Sequence[Job]) -> dict[Point, Settings]:
        planned = points.planned(self.place.composer, jobs, self.place.config_dir, CONFIG)
        if planned.errors:
            raise ConfigError(f"sweeps.{self.name}: {planned.errors[0]}")
        return planned.points

    def _settings(self, composed: Composed) -> Settings:
        return settings(composed, used=USED.get(self.recipe.does, fits.GROUPS))

    def _keep_what_can_run(self, planned: Mapping[Point, Settings]) -> None:
        """Runs whose data are not on this machine are left out."""
        known: dict[str, str] = {}
        for point, run in planned.items():
            key = json.dumps(run.dataset, sort_keys=True, default=str)
            if key not in known:
                known[key] = _absent(run.dataset)
            self.lacks = known[key] or self.lacks
            if not known[key]:
                self.points[point] = run

    def read(self) -> None:
        """What is finished of it."""
        if self.recipe.does != "run":
            self.sources = [fact for job in self.jobs if (fact := self._facts(job))]
            return
        finished = {point: RunFolder(point.folder, point.run_id).finished for point in self.points}
        self.sources = [Run(self.name, at.folder, result) for at, result in finished.items() if result]
        if self.unfinished:
            self.lacks = f"{self.unfinished} of {len(self.points)} runs are not finished"

    def _facts(self, job: Job) -> Facts | None:
        """A plan, or who holds what. None, and why, where the data are not here."""
        composed, does = self.place.composer.job(job), self.recipe.does
        if does == "plan" and not composed.config["theory"]["measured"]:
            return self._told(composed)  # without data
        if line := _absent(settings(composed, used=("dataset",)).dataset):
            self.lacks = line
            return None
        try:
            return self._told(composed)
        except ValueError as error:  # not all is here, or it cannot be dealt like that
            self.lacks = str(error).replace(f"{data_root(None)}/", "")  # no folder of this machine
            return None

    def _told(self, composed: Composed) -> Facts:
        chosen = self._settings(composed)
        if self.recipe.does == "plan":
            from dpfl_bench.experiment.plan import plan

            told = plan(chosen, course=False)  # a list, of which no field can be named
            return Facts(self.name, "plan", composed.by_name, told, words=composed.overrides)
        from dpfl_bench.assembly.data import load_data
        from dpfl_bench.data.show import spread

        data = load_data(chosen)
        return Facts(self.name, "data", composed.by_name, spread(data.records, data.parts, data.test_sizes))


def _absent(dataset: Mapping[str, Any]) -> str:
    """Why there are no runs, in words without this machine's folders: they go into reports."""
    from dpfl_bench.data.overview import absent  # with numpy

    name = dataset.get("name")
    words = f"dataset={name}: its files are not here; `dpfl-bench data fetch {name}` gets them, or says how"
    return words if absent(dataset) else ""
