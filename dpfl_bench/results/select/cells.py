"""Sources grouped by fields. A cell has a value for each seed and split."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.select.expressions import parse
from dpfl_bench.results.select.intervals import Interval, Key, exactly, of_mean
from dpfl_bench.results.select.sources import Run, Source

BEST = "best "  # `best local_steps`: that field's value at the best point
OVER_ROUNDS = ("round", "steps")  # fields that each evaluated round has
SEEDS = ("seed", "repeats", "dataset.seed", "partition.seed")  # runs that differ in these are repeats
# these settings change no number that is trained
IDLE = ("eval_every", "eval_last", "evaluate", "measure", "measured_client", "plot", "outputs", "points")


Better = Literal["least", "most"]


@dataclass(frozen=True)
class Question:
    """What is asked of sources."""

    y: str  # a quantity, or `best FIELD`
    fields: tuple[str, ...] = ()  # a cell for each combination of their values
    where: Mapping[str, Any] = field(default_factory=dict)  # field -> value, or list of values
    last: int | str = 1  # the mean over so many of the last evaluated rounds, or "10%" of them
    better: Better = "least"  # of y
    best_over: tuple[str, ...] = ()  # fields that are tuned: the best of them in each cell
    by: str | None = None  # the quantity that the best is best in; None: y
    spread: tuple[str, ...] = ()  # fields that count like seeds
    by_better: Better | None = None  # of `by`; None: as y

    @property
    def judged(self) -> tuple[str, Better]:
        """The quantity that the best is best in, and which of its values are better."""
        return self.by or self.y, self.by_better or self.better


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
    if over and question.y.startswith(BEST):
        raise ConfigError(f"{question.y}: expected a quantity; over rounds there is no best")
    fields = [name for name in question.fields if name not in over]
    at_one = [name for name in question.where if name in OVER_ROUNDS and name not in over]
    if at_one and (over or isinstance(question.where[at_one[0]], list)):
        raise ConfigError(f"{at_one[0]}: expected it among the fields, or one value of it in where")
    groups: dict[tuple[Any, ...], list[Source]] = {}
    for source in sources:
        if is_where(source, question.where):
            groups.setdefault(tuple(source.field(name) for name in fields), []).append(source)
    result: list[Cell] = []
    for at, members in groups.items():
        cell = replace(_cell(members, question), at=dict(zip(fields, at, strict=True)))
        if at_one:
            result += [replace(each, at=cell.at) for each in _by_round(cell, question, at_one[0])]
        else:
            result += _by_round(cell, question, over[0]) if over else [cell]
    return result


def is_where(source: Source, where: Mapping[str, Any]) -> bool:
    """Rounds are chosen later."""
    fields = [(name, value) for name, value in where.items() if name not in OVER_ROUNDS]
    return all(
        source.field(name) in (value if isinstance(value, list) else [value]) for name, value in fields
    )


def _cell(members: Sequence[Source], question: Question) -> Cell:
    """Of one group: the tuned choice for each value of the spread fields, pooled."""
    wanted = question.y.removeprefix(BEST)
    is_best = wanted != question.y
    tuned = (*question.best_over, wanted) if is_best else question.best_over
    values: dict[Key, float] = {}
    chosen: list[Source] = []
    choices: list[dict[str, Any]] = []
    for spread, inside in _grouped(members, question.spread).items():
        options = _grouped(inside, tuned)
        best = _best(options, question) if len(options) > 1 else next(iter(options))
        choices.append(dict(zip(tuned, best, strict=True)))
        if is_best:
            values[None, None, *spread] = _number(choices[-1][wanted])
        else:
            pooled = _pooled(options[best], question.y, question.last, question.better)
            values |= {(*key, *spread): value for key, value in pooled.items()}
        chosen += options[best]
    alike = {key: choices[0][key] for key in question.best_over if len({str(c[key]) for c in choices}) == 1}
    return Cell({}, values, tuple(chosen), alike)


def _grouped(members: Iterable[Source], names: Sequence[str]) -> dict[tuple[Any, ...], list[Source]]:
    """Sources that are the same numbers count once."""
    groups: dict[tuple[Any, ...], dict[Any, Source]] = {}
    for source in members:
        at = tuple(source.field(name) for name in names)
        groups.setdefault(at, {}).setdefault(source.identity, source)
    return {at: list(each.values()) for at, each in groups.items()}


def _best(options: Mapping[tuple[Any, ...], list[Source]], question: Question) -> Any:
    """The option with the best mean; of equals the first."""
    text, better = question.judged

    def mean(members: list[Source]) -> float:
        values = list(_pooled(members, text, question.last, better).values())
        value = sum(values) / len(values)
        return math.inf if math.isnan(value) else value if better == "least" else -value

    return min(options, key=lambda option: mean(options[option]))


def _pooled(members: Sequence[Source], text: str, last: int | str, better: Better) -> dict[Key, float]:
    """By split and seed. Sources that differ in more than these are an error: the question mixes
    them.
    """
    if differing := _differing(members):
        raise ConfigError(
            f"{text}: runs differ in {', '.join(differing)}; expected it among the fields (line, row, column,"
            " x, each, rows, columns), or one value of it in where, or best_over or spread"
        )
    quantity = parse(text)
    values: dict[Key, float] = {}
    for source in members:
        own = source.by_seed(quantity, last)
        if values.keys() & own.keys():
            raise ConfigError(f"{text}: two runs with the same settings share a seed; leave one of them out")
        values |= {key: worst(better) if source.diverged else value for key, value in own.items()}
    return values


def worst(better: Better) -> float:
    return math.inf if better == "least" else -math.inf


def _differing(members: Sequence[Source]) -> list[str]:
    """The settings in which sources differ, seeds and splits aside."""
    first = members[0].asked
    others = [source.asked for source in members[1:] if source.asked != first]
    keys = dict.fromkeys(key for each in (first, *others) for key in each)
    differing = [key for key in keys if any(str(each.get(key)) != str(first.get(key)) for each in others)]
    return [key for key in differing if key not in (*SEEDS, *IDLE)]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"best {value}: expected a field with numbers")
    return float(value)


def _by_round(cell: Cell, question: Question, x: str) -> Iterator[Cell]:
    """A cell for each evaluated round. Seeds that do not have a round are left out of it; those of
    a run that diverged are the worst from there on.
    """
    quantity = parse(question.y)
    by_x: dict[float, dict[Key, float]] = {}
    runs = [source for source in cell.sources if isinstance(source, Run)]
    for run in runs:
        spread = tuple(run.field(name) for name in question.spread)
        for seed, at, value in zip(*run.over_rounds(quantity, x), strict=True):
            by_x.setdefault(float(at), {})[run.split, seed, *spread] = float(value)
    for run in runs:
        if run.diverged:
            spread, end = tuple(run.field(name) for name in question.spread), run.last_good(x)
            lost = {(run.split, seed, *spread): worst(question.better) for seed in run.result["seeds"]}
            by_x |= {place: values | lost for place, values in by_x.items() if place > end}
    chosen = question.where.get(x, list(by_x))
    for place in sorted(set(by_x) & set(chosen if isinstance(chosen, list) else [chosen])):
        yield replace(cell, at={**cell.at, x: place}, values=by_x[place])
