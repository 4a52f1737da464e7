"""The sweeps of an artefact at a scale and in a reading, and the jobs of each."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.words import text, word
from dpfl_bench.papers.artefact import Artefact, Selection
from dpfl_bench.results.select.cells import cells
from dpfl_bench.results.select.sources import Source

Job = tuple[str, ...]  # overrides


@dataclass
class Sweep:
    name: str
    does: str = "run"
    set: dict[str, Any] = field(default_factory=dict)
    over: dict[str, list[Any]] = field(default_factory=dict)
    points: list[dict[str, Any]] = field(default_factory=list)
    at_best: dict[str, Any] | None = None  # the stage that this one follows, and what it takes of it
    absent: str = ""  # why it is not run here

    def jobs(self, stage: Sequence[Mapping[str, Any]] = ({},)) -> list[Job]:
        """Every combination of what is swept, of the points, and of the stage's best points."""
        lists = [[(key, value) for value in values] for key, values in self.over.items()]
        every = product(stage, self.points or [{}], product(*lists))
        return [
            tuple(word(*pair) for pair in {**self.set, **best, **point, **dict(swept)}.items())
            for best, point, swept in every
        ]

    def first(self, taken: Mapping[str, Any]) -> dict[str, Any]:
        """The keys and values of the first job."""
        swept = {key: values[0] for key, values in self.over.items()}
        return {**self.set, **taken, **next(iter(self.points), {}), **swept}

    def commands(self, stage: Sequence[Mapping[str, Any]], more: Sequence[str]) -> list[str]:
        """What a user types for the same jobs. A stage's best points are points, too."""
        pairs = [{**best, **point} for best in stage for point in self.points or [{}]]
        paired = {key: self.set[key] for pair in pairs for key in pair if key in self.set}
        fixed = [word(key, value) for key, value in self.set.items() if key not in paired]
        swept = [f"{key}={','.join(map(text, values))}" for key, values in self.over.items()]
        points = [f"points={text([{**paired, **pair} for pair in pairs])}"] if any(pairs) else []
        if self.does == "run":
            return [shlex.join(["dpfl-bench", "run", "-m", *fixed, *swept, *points, *more])]
        verb = {"plan": ["plan"], "data": ["data", "show"]}[self.does]
        return [shlex.join(["dpfl-bench", *verb, *job, *more]) for job in self.jobs(stage)]


def laid(artefact: Artefact, scale: str, reading: str) -> dict[str, Sweep]:
    """The sweeps with the overlays of reading and scale laid over, each after what it follows."""
    sweeps = {}
    for name, node in artefact.sweeps.items():
        sweeps[name] = Sweep(name)
        _lay(sweeps[name], node, (reading, scale))
    return {name: sweeps[name] for name in _in_order(artefact, sweeps)}


def _lay(sweep: Sweep, node: Mapping[str, Any], words: Sequence[str], overlay: bool = False) -> None:
    sweep.does = node.get("does", sweep.does)
    for key, value in node.get("set", {}).items():
        sweep.over.pop(key, None)
        sweep.set.pop(key, None)
        if value is not None or not overlay:
            sweep.set[key] = value
    for key, value in node.get("over", {}).items():
        sweep.set.pop(key, None)
        sweep.over.pop(key, None)
        if value is not None:
            sweep.over[key] = value if isinstance(value, list) else [value]
    if "points" in node:
        sweep.points = list(node["points"] or [])
    if "at_best" in node:
        sweep.at_best = dict(node["at_best"]) if node["at_best"] else None
    sweep.absent = node.get("absent", sweep.absent)
    for inner in words:
        if inner in node:
            _lay(sweep, node[inner], words, overlay=True)


def _in_order(artefact: Artefact, sweeps: Mapping[str, Sweep]) -> list[str]:
    return sorted(sweeps, key=lambda name: depth(sweeps, name, artefact))


def depth(sweeps: Mapping[str, Sweep], name: str, artefact: Artefact, seen: tuple[str, ...] = ()) -> int:
    """0 for a sweep that follows none."""
    stage = sweeps[name].at_best
    if stage is None:
        return 0
    before = str(stage.get("of"))
    if before not in sweeps or before in (*seen, name):
        raise ConfigError(f"{artefact.file}: sweeps.{name}.at_best.of: {before}: expected an earlier sweep")
    return 1 + depth(sweeps, before, artefact, (*seen, name))


def best_points(sweep: Sweep, sources: Sequence[Source]) -> list[dict[str, Any]]:
    """The best point of an earlier sweep for each value of the `for` fields."""
    stage = sweep.at_best
    assert stage is not None
    by = stage.get("by", "test_error")
    chosen = Selection(
        best_over=list(stage["keys"]),
        last=stage.get("last", 1),
        better=stage.get("better"),
        where=stage.get("where") or {},
    )
    return [{**cell.at, **cell.tuned} for cell in cells(sources, chosen.question(by, *stage.get("for", ())))]
