"""Everything that there is for one artefact, at a scale and in a reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpfl_bench.checks.errors import located
from dpfl_bench.papers import fields, overlays
from dpfl_bench.papers.artefact import Artefact
from dpfl_bench.papers.overlays import Reading, Scale
from dpfl_bench.results.select.sources import Source
from dpfl_bench.sweep.gathered import Gathered, Place


@dataclass
class Evidence:
    artefact: Artefact
    scale: Scale
    reading: Reading
    place: Place
    sweeps: dict[str, Gathered] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with located(self.artefact.file):
            for name, recipe in overlays.recipes(self.artefact.sweeps, self.scale, self.reading).items():
                before = self.sweeps[recipe.at_best.of] if recipe.at_best else None
                self.sweeps[name] = Gathered(name, recipe, self.place, before)

    @property
    def folder(self) -> Path:
        return Path(self.place.outputs) / self.artefact.id

    @property
    def reduced(self) -> str:
        return self.artefact.reduced.get(self.scale, "")

    @property
    def depth(self) -> int:
        return max((each.depth for each in self.sweeps.values()), default=0)

    def at_depth(self, depth: int) -> list[Gathered]:
        return [each for each in self.sweeps.values() if each.depth == depth]

    def of(self, names: Sequence[str]) -> list[Gathered]:
        """The sweeps of these names; of none, all."""
        return [each for name, each in self.sweeps.items() if not names or name in names]

    def sources(self, names: Sequence[str] = ()) -> list[Source]:
        return [source for each in self.of(names) for source in each.sources]

    def plan(self, depth: int) -> None:
        """The jobs of the sweeps of that depth. Those before it are read."""
        with located(self.artefact.file):
            for each in self.at_depth(depth):
                each.plan()
            if depth == 0:
                recipes = {name: each.recipe for name, each in self.sweeps.items()}
                fields.check(self.artefact, recipes, self.place.composer)
                for each in self.sweeps.values():
                    each.check_later()

    def read(self, depth: int) -> None:
        """What is finished of the sweeps of that depth."""
        for each in self.at_depth(depth):
            each.read()
