"""Where numbers come from: a finished run, a plan, or a deal of records. Each has fields (what it
was asked) and quantities (what came of it).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.identity import GROUPS
from dpfl_bench.results.collect.columns import counted, flat, overrides, value_of
from dpfl_bench.results.collect.measures import Last, at_end
from dpfl_bench.results.folder import RunFolder, plain_text
from dpfl_bench.results.select.expressions import Expression, parse
from dpfl_bench.results.select.intervals import Key

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
CHOSEN = (*GROUPS, "privacy")  # a field of this name is the choice's name
PREFIXES = ("result", "plan", "data")
ITERATES = "iterates"  # quantities of iterates.csv


class Source(Protocol):
    @property
    def sweep(self) -> str: ...

    @property
    def exact(self) -> bool:
        """Whether its quantities have no randomness."""

    @property
    def diverged(self) -> bool: ...

    @property
    def identity(self) -> Hashable:
        """Two sources of one identity are the same numbers, as where two sweeps share a run."""

    @property
    def asked(self) -> Mapping[str, Any]:
        """Every setting that can change its numbers."""

    @property
    def words(self) -> Sequence[str]:
        """The words of its command."""

    def field(self, name: str) -> Any:
        """What it was asked, or a number that came of it; None where it has none."""

    def by_seed(self, quantity: Expression, last: int | str) -> dict[Key, float]:
        """The quantity at the end, for each split and seed: the mean over the last rounds."""


@dataclass(frozen=True)
class Facts:
    """A plan or a deal: numbers without randomness, and the settings that they are of."""

    sweep: str
    prefix: str  # plan | data
    settings: Mapping[str, Any]  # flat
    numbers: Mapping[str, Any]
    exact: bool = True
    diverged: bool = False
    words: Sequence[str] = ()

    @property
    def asked(self) -> Mapping[str, Any]:
        return self.settings

    @property
    def identity(self) -> Hashable:
        return self.prefix, str(sorted(self.settings.items()))

    def field(self, name: str) -> Any:
        if name == "sweep":
            return self.sweep
        head, _, rest = name.partition(".")
        if head == self.prefix and rest:
            return inner(self.numbers, rest)
        return of_settings(self.settings, name)

    def by_seed(self, quantity: Expression, last: int | str) -> dict[Key, float]:
        return {(None, None): of_fields(self, quantity)}


@dataclass(frozen=True)
class Run:
    """A finished run folder."""

    sweep: str
    path: Path
    result: Mapping[str, Any]
    exact: bool = field(default=False, init=False)

    @cached_property
    def text(self) -> dict[str, str]:
        """Its config: the YAML of each value by dotted name."""
        return flat(plain_text(self.path / ".hydra" / "config.yaml"))

    @cached_property
    def settings(self) -> dict[str, Any]:
        return {key: value_of(value) for key, value in self.text.items()}

    @cached_property
    def asked(self) -> Mapping[str, Any]:
        return counted(self.text)

    @property
    def identity(self) -> Hashable:
        return self.path

    @cached_property
    def words(self) -> Sequence[str]:
        return overrides(self.path)

    @cached_property
    def rounds(self) -> np.ndarray:
        """metrics.csv"""
        return RunFolder(self.path).metrics.read()

    @cached_property
    def iterates(self) -> np.ndarray:
        """iterates.csv, of runs with measure=[iterates]"""
        file = self.path / "iterates.csv"
        if not file.exists():
            raise ConfigError(f"{self.path}: expected iterates.csv; run it with measure=[iterates]")
        rows: np.ndarray = np.genfromtxt(file, delimiter=",", names=True, ndmin=1)
        return rows

    @property
    def split(self) -> tuple[Any, Any]:
        return self.settings.get("dataset.seed"), self.settings.get("partition.seed")

    @property
    def diverged(self) -> bool:
        return bool(self.result["status"] == "diverged")

    @cached_property
    def leaks(self) -> tuple[str, ...]:
        """What of the data goes into training outside every accountant."""
        told = RunFolder(self.path).read("privacy.json") or {}
        return tuple(told.get("leaks", []))

    def field(self, name: str) -> Any:
        if name == "sweep":
            return self.sweep
        head, _, rest = name.partition(".")
        if head == "result" and rest:
            return inner(self.result, rest)
        value = of_settings(self.settings, name)
        return self.result.get(name) if value is None else value

    def by_seed(self, quantity: Expression, last: int | str) -> dict[Key, float]:
        seeds, rounds, values = self.over_rounds(quantity)
        window, split = Last.parse(last), self.split
        if self.diverged:
            return {(split, seed): math.nan for seed in self.result["seeds"]}
        known: dict[float, dict[int, float]] = {}
        for seed, number, value in zip(seeds.tolist(), rounds.tolist(), values.tolist(), strict=True):
            known.setdefault(seed, {})[int(number)] = value
        ends: dict[Key, float] = {}
        for seed in self.result["seeds"]:
            if seed not in known:
                raise ConfigError(f"run {self.path}: metrics.csv has no row of seed {seed}; remove the run")
            counted = [known[seed][number] for number in at_end(known[seed], window, self.path.name)]
            if any(map(math.isnan, counted)):
                raise ConfigError(f"{quantity.text}: run {self.path} left it blank at its end")
            ends[split, seed] = math.fsum(counted) / len(counted)
        return ends

    def over_rounds(
        self, quantity: Expression, x: str = "round"
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(seed, x, value) of every evaluated round. x: a column of the file that has the rest."""
        of_iterates = any(name.startswith(f"{ITERATES}.") for name in (*quantity.names, x))
        rows = self.iterates if of_iterates else self.rounds
        names = {name: self._column(rows, name) for name in (*quantity.names, x)}
        values = np.broadcast_to(quantity.of(names), rows["seed"].shape)
        return rows["seed"], names[x], values

    def last_good(self, x: str) -> float:
        """Of a run that diverged: x of the last evaluated round before it did."""
        where, rows = self.result["diverged"], self.rounds
        before = (rows["seed"] == where["seed"]) & (rows["round"] < where["round"])
        return float(max(rows[x][before], default=-math.inf))

    def _column(self, rows: np.ndarray, name: str) -> np.ndarray:
        column = name.removeprefix(f"{ITERATES}.")
        if rows.dtype.names and column in rows.dtype.names:
            known: np.ndarray = rows[column]
            return known
        value = self.field(name)
        if value is None:
            raise ConfigError(
                f"{name}: expected a column of metrics.csv, a setting, or result.KEY of {self.path}; the"
                f" columns are {', '.join(rows.dtype.names or ())}"
            )
        return np.full(rows["seed"].shape, as_number(value, name))


def of_fields(source: Source, quantity: Expression) -> float:
    return float(quantity.of({name: as_number(source.field(name), name) for name in quantity.names}))


def numbers(sources: Iterable[Source], text: str) -> list[float]:
    """The quantity of each source's fields, of those that have it."""
    return [value for source in sources if not math.isnan(value := of_fields(source, parse(text)))]


def of_settings(settings: Mapping[str, Any], name: str) -> Any:
    return settings.get(f"{name}.name" if name in CHOSEN else name)


def inner(record: Mapping[str, Any], path: str) -> Any:
    """record["a"]["b"] of "a.b"; None where there is none."""
    value: Any = record
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def as_number(value: Any, name: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name}={value}: expected a number")
    return float(value)
