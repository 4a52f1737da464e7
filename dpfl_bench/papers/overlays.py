"""An artefact's sweeps at a scale and in a reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.records import record
from dpfl_bench.sweep.recipe import Recipe

Scale = Literal["smoke", "cpu", "full"]
Reading = Literal["paper", "exact"]
SCALES: tuple[Scale, ...] = get_args(Scale)
READINGS: tuple[Reading, ...] = get_args(Reading)
ACCOUNTING: dict[Reading, str] = {"paper": "the paper's own accounting", "exact": "valid accounting"}


@dataclass
class Layer(Recipe):
    """A sweep as the file has it, or what is laid over one."""

    paper: Layer | None = None
    exact: Layer | None = None
    smoke: Layer | None = None
    cpu: Layer | None = None
    full: Layer | None = None

    def check(self, where: str) -> None:
        for key, value in self.over.items():
            if value == []:
                raise ConfigError(f"{where}.over.{key}: expected at least one value")
        if self.points == []:
            raise ConfigError(f"{where}.points: expected at least one point, or null for none")
        if self.at_best and not self.at_best.keys:
            raise ConfigError(f"{where}.at_best.keys: expected the keys that are taken of {self.at_best.of}")
        for word in (*READINGS, *SCALES):
            if inner := getattr(self, word):
                inner.check(f"{where}.{word}")


def check(nodes: Mapping[str, Any]) -> None:
    for name, node in nodes.items():
        record(f"sweeps.{name}.", node, Layer).check(f"sweeps.{name}")


def recipes(nodes: Mapping[str, Any], scale: str, reading: str) -> dict[str, Recipe]:
    """The sweeps with the overlays of reading and scale laid over, each after what it follows."""
    laid = {
        name: record(f"sweeps.{name}.", _lay({"set": {}, "over": {}}, node, (reading, scale), False), Recipe)
        for name, node in nodes.items()
    }
    return dict(sorted(laid.items(), key=lambda pair: _depth(laid, pair[0])))


def _lay(laid: dict[str, Any], node: Mapping[str, Any], words: Sequence[str], over: bool) -> dict[str, Any]:
    """The node over what is laid. In an overlay a null removes the key."""
    laid |= {key: node[key] for key in ("does", "points", "at_best", "absent") if key in node}
    for part in ("set", "over"):
        for key, value in node.get(part, {}).items():
            laid["set"].pop(key, None)
            laid["over"].pop(key, None)
            if value is not None or (part == "set" and not over):
                laid[part][key] = [value] if part == "over" and not isinstance(value, list) else value
    for word in words:
        if node.get(word):
            _lay(laid, node[word], words, True)
    return laid


def _depth(laid: Mapping[str, Recipe], name: str, seen: tuple[str, ...] = ()) -> int:
    stage = laid[name].at_best
    if stage is None:
        return 0
    if stage.of not in laid or stage.of in (*seen, name):
        raise ConfigError(f"sweeps.{name}.at_best.of: {stage.of}: expected an earlier sweep")
    return 1 + _depth(laid, stage.of, (*seen, name))
