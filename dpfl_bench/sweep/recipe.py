"""A sweep as a YAML file describes it: its jobs, and the commands that have the same jobs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from dpfl_bench.config.words import text, word
from dpfl_bench.results.select.cells import cells
from dpfl_bench.results.select.selection import Selection
from dpfl_bench.results.select.sources import Source

Job = tuple[str, ...]  # overrides
Values = Mapping[str, Any]
VERBS = {"run": ["run", "-m"], "plan": ["plan"], "data": ["data", "show"]}


@dataclass(frozen=True)
class Stage:
    """What is taken of an earlier sweep: its best `keys` for each value of the `for` fields."""

    of: str
    keys: list[str]
    groups: list[str] = field(default_factory=list, metadata={"key": "for"})
    by: str = "test_error"
    last: Any = 1
    better: Literal["least", "most"] | None = None
    where: dict[str, Any] = field(default_factory=dict)

    def best(self, sources: Sequence[Source]) -> list[dict[str, Any]]:
        asked = Selection(self.by, where=self.where, best_over=self.keys, last=self.last, better=self.better)
        return [{**cell.at, **cell.tuned} for cell in cells(sources, asked.question(*self.groups))]


@dataclass
class Recipe:
    does: Literal["run", "plan", "data"] = "run"
    set: dict[str, Any] = field(default_factory=dict)
    over: dict[str, Any] = field(default_factory=dict)  # lists
    points: list[dict[str, Any]] | None = None
    at_best: Stage | None = None
    absent: str = ""  # why it is not run here

    def jobs(self, stage: Sequence[Values] = ({},)) -> list[Job]:
        """Every combination of what is swept, of the points, and of the stage's best points."""
        lists = [[(key, value) for value in values] for key, values in self.over.items()]
        every = product(stage, self.points or [{}], product(*lists))
        return [
            tuple(word(*pair) for pair in {**self.set, **best, **point, **dict(swept)}.items())
            for best, point, swept in every
        ]

    def first(self, taken: Values) -> dict[str, Any]:
        """The keys and values of the first job, with these of its stage."""
        swept = {key: values[0] for key, values in self.over.items()}
        return {**self.set, **taken, **next(iter(self.points or ()), {}), **swept}

    def commands(self, stage: Sequence[Values], more: Sequence[str]) -> list[str]:
        """What a user types for the same jobs. A stage's best points are points, too."""
        begin = ["dpfl-bench", *VERBS[self.does]]
        if self.does != "run":
            return [shlex.join([*begin, *job, *more]) for job in self.jobs(stage)]
        pairs = [{**best, **point} for best in stage for point in self.points or [{}]]
        paired = {key: self.set[key] for pair in pairs for key in pair if key in self.set}
        fixed = [word(key, value) for key, value in self.set.items() if key not in paired]
        swept = [f"{key}={','.join(map(text, values))}" for key, values in self.over.items()]
        points = [f"points={text([{**paired, **pair} for pair in pairs])}"] if any(pairs) else []
        return [shlex.join([*begin, *fixed, *swept, *points, *more])] if stage else []
