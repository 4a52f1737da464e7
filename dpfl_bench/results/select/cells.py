"""Sources grouped by fields. A cell has a value for each seed and split."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.select.expressions import Expression, parse
from dpfl_bench.results.select.intervals import Interval, Key, exactly, of_mean
from dpfl_bench.results.select.sources import Facts, Run, Source

BEST = "best "  # `best local_steps`: that field's value at the best point
OVER_ROUNDS = ("round", "steps")  # fields that each evaluated round has
IDLE = ("repeats", "eval_every", "eval_last", "plot", "outputs", "points", "checkpoint_every")


@dataclass(frozen=True)
class Question:
    """What is asked of sources."""

    y: str  # a quantity, or `best FIELD`
    fields: tuple[str, ...] = ()  # a cell for each combination of their values
    where: Mapping[str, Any] = field(default_factory=dict)  # field -> value, or list of values
    last: int | str = 1  # the mean over so many of the last evaluated rounds, or "10%" of them
    better: Literal["least", "most"] = "least"
    best_over: tuple[str, ...] = ()  # fields that are tuned: the best of them in each cell
    by: str | None = None  # the quantity that the best is best in; None: y
    spread: tuple[str, ...] = ()  # fields that count like seeds

    @property
    def judged(self) -> str:
        return self.by or self.y


@dataclass(frozen=True)
class Cell:
    """One combination of the fields' values."""

    at: Mapping[str, Any]
    values: Mapping[Key, float]  # a diverged run's is infinite, on the worse side
    sources: tuple[Source, ...]
    tuned: Mapping[str, Any] = field(default_factory=dict)  # best_over's choice

    @property
    def exact(self) -> bool:
        return all(source.exact for source in self.sources)

    @property
    def mean(self) -> float:
        return sum(self.values.values()) / len(self.values) if self.values else math.nan

    @property
    def std(self) -> float:
        """Over seeds and splits; 0 of a single one."""
        known = list(self.values.values())
        return float(np.std(known, ddof=1)) if len(known) > 1 and np.isfinite(known).all() else 0.0

    @property
    def interval(self) -> Interval:
        return exactly(self.mean) if self.exact else of_mean(self.values)


def cells(sources: Iterable[Source], question: Question) -> list[Cell]:
    """A cell for each combination of the fields' values, in the order of their first source."""
    over = [name for name in question.fields if name in OVER_ROUNDS]
    fields = [name for name in question.fields if name not in over]
    groups: dict[tuple[Any, ...], list[Source]] = {}
    for source in sources:
        if is_where(source, question.where):
            groups.setdefault(tuple(source.field(name) for name in fields), []).append(source)
    result: list[Cell] = []
    for at, members in groups.items():
        cell = replace(_cell(members, question, fields), at=dict(zip(fields, at, strict=True)))
        result += _by_round(cell, question, over[0]) if over else [cell]
    return result


def is_where(source: Source, where: Mapping[str, Any]) -> bool:
    """Rounds are chosen later."""
    fields = [(name, value) for name, value in where.items() if name not in OVER_ROUNDS]
    return all(
        source.field(name) in (value if isinstance(value, list) else [value]) for name, value in fields
    )


def _cell(members: Sequence[Source], question: Question, fields: Sequence[str]) -> Cell:
    """Of one group: the tuned choice for each value of the spread fields, pooled."""
    wanted = question.y.removeprefix(BEST)
    is_best = wanted != question.y
    tuned = (*question.best_over, wanted) if is_best else question.best_over
    known = {*fields, *question.spread, *tuned, *question.where}
    values: dict[Key, float] = {}
    chosen: list[Source] = []
    choice: dict[str, Any] = {}
    for spread, inside in _grouped(members, question.spread).items():
        options = _grouped(inside, tuned)
        best = _best(options, question, known) if len(options) > 1 else next(iter(options))
        choice = dict(zip(tuned, best, strict=True))
        if is_best:
            values[None, None, *spread] = _number(choice[wanted])
        else:
            pooled = _pooled(options[best], parse(question.y), question, known)
            values |= {(*key, *spread): value for key, value in pooled.items()}
        chosen += options[best]
    return Cell({}, values, tuple(chosen), {key: choice[key] for key in question.best_over})


def _grouped(members: Iterable[Source], names: Sequence[str]) -> dict[tuple[Any, ...], list[Source]]:
    groups: dict[tuple[Any, ...], list[Source]] = {}
    for source in members:
        groups.setdefault(tuple(source.field(name) for name in names), []).append(source)
    return groups


def _best(options: Mapping[tuple[Any, ...], list[Source]], question: Question, known: set[str]) -> Any:
    """The option with the best mean; of equals the first."""
    quantity, sign = parse(question.judged), 1 if question.better == "least" else -1

    def mean(members: list[Source]) -> float:
        values = list(_pooled(members, quantity, question, known).values())
        return sign * sum(values) / len(values)

    return min(options, key=lambda option: _last_if_nan(mean(options[option])))


def _last_if_nan(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _pooled(
    members: Sequence[Source], quantity: Expression, question: Question, known: set[str]
) -> dict[Key, float]:
    """By split and seed. Two sources with one of these are an error: the question mixes them."""
    worst = math.inf if question.better == "least" else -math.inf
    values: dict[Key, float] = {}
    for source in members:
        own = source.by_seed(quantity, question.last)
        if values.keys() & own.keys():
            raise ConfigError(
                f"{quantity.text}: runs differ in {_difference(members, known)}; expected it among the"
                " fields (line, row, column, x, each, rows, columns), in where, best_over or spread"
            )
        failed = isinstance(source, Run) and source.diverged
        values |= {key: worst if failed else value for key, value in own.items()}
    return values


def _difference(members: Sequence[Source], known: set[str]) -> str:
    """The settings in which sources differ that the question does not name."""
    settings = [source.settings for source in members if isinstance(source, Run | Facts)]
    keys = dict.fromkeys(key for each in settings for key in each)
    differing = [key for key in keys if len({str(each.get(key)) for each in settings}) > 1]
    hidden = {*known, *IDLE, *(f"{name}.name" for name in known)}
    return ", ".join(key for key in differing if key not in hidden) or "nothing but their seeds"


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"best {value}: expected a field with numbers")
    return float(value)


def _by_round(cell: Cell, question: Question, x: str) -> Iterator[Cell]:
    """A cell for each evaluated round. Seeds that do not have a round are left out of it."""
    quantity = parse(question.y)
    by_x: dict[float, dict[Key, float]] = {}
    for source in cell.sources:
        if isinstance(source, Run):
            for seed, at, value in zip(*source.over_rounds(quantity, x), strict=True):
                place = float(at)
                by_x.setdefault(place, {})[source.split, seed] = float(value)
    chosen = question.where.get(x, list(by_x))
    for place in sorted(set(by_x) & set(chosen if isinstance(chosen, list) else [chosen])):
        yield replace(cell, at={**cell.at, x: place}, values=by_x[place])
