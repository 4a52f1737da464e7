"""What is asked of many runs: which of them, by what they are compared, over what it is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.identity import GROUPS
from dpfl_bench.results.collect.best import IN_OTHER_COLUMNS, sign
from dpfl_bench.results.collect.columns import value_of
from dpfl_bench.results.collect.folders import Run
from dpfl_bench.results.collect.measures import Blank, by_seed
from dpfl_bench.results.collect.points import SPLIT, Row, counted
from dpfl_bench.results.folder import MEASURES
from dpfl_bench.results.select import sources
from dpfl_bench.results.select.cells import IDLE, Cell, Question, cells
from dpfl_bench.results.select.expressions import Expression
from dpfl_bench.results.select.intervals import Key

BUDGET = ("eps", "budget")
NAMES = {"eps": "budget"}  # fields that rows know under another name
SEEDS = {"seed", *SPLIT, *IDLE}


@dataclass(frozen=True)
class View:
    """by: a column of metrics.csv. last: over which rounds at the end it is averaged. where: key
    -> the values that are taken. x, facets, line: keys; empty where nothing was asked.
    """

    by: str = MEASURES[0]
    last: str = "1"
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    x: str = ""
    facets: tuple[str, ...] = ()
    line: str = ""
    width: str = ""  # of a venue; empty: what the picture needs

    @property
    def drawn(self) -> bool:
        return bool(self.x or self.facets or self.line)

    @property
    def apart(self) -> tuple[str, ...]:
        """Settings whose values are never compared with each other, in no row of the table."""
        own = {"algo", "dataset", *BUDGET}
        return tuple(key for key in (*self.facets, *([self.line] if self.line else [])) if key not in own)

    def filled(self) -> View:
        """With the fields of the U-curves where nothing else was asked."""
        line = self.line or ("eps" if "eps" not in (*self.facets, self.x) else "algo")
        facets = self.facets or tuple(key for key in ("algo",) if key not in (self.x, line))
        return replace(self, x=self.x or "local_steps", line=line, facets=facets)

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.facets, self.line, self.x)


def parse_where(words: Sequence[str]) -> dict[str, list[Any]]:
    """key=value, or key=value,value."""
    where: dict[str, list[Any]] = {}
    for word in words:
        key, equals, values = word.partition("=")
        if not (key and equals and values):
            raise ConfigError(f"--where {word}: expected key=value, like privacy.clip=0.3")
        where.setdefault(key, []).extend(map(_value, values.split(",")))
    return where


def _value(text: str) -> Any:
    return math.inf if text in ("inf", ".inf") else value_of(text)


def chosen(runs: Sequence[Run], where: Mapping[str, Sequence[Any]]) -> list[Run]:
    """The runs whose settings have one of the values. ConfigError where none is left."""
    left = list(runs)
    for key, values in where.items():
        told = {run.name: Ended("", run.path, run.result or {}).field(key) for run in left}
        known = dict.fromkeys(value for value in told.values() if value is not None)
        left = [run for run in left if told[run.name] in values]
        if not left:
            shown = ", ".join(map(str, list(known)[:12])) or "no run has such a key"
            asked = ",".join(map(str, values))
            raise ConfigError(f"--where {key}={asked}: expected a value that finished runs have: {shown}")
    return left


def valued(rows: Sequence[Row], runs: Sequence[Run], view: View) -> list[Row]:
    """The rows with mean and deviation of the column over the run's seeds. Refuses a column that no
    run has filled.
    """
    if view.by in MEASURES and view.last == "1" and any(f"{view.by}_mean" in row for row in rows):
        blank = [row for row in rows if row.get(f"{view.by}_mean") is None and row["status"] == "done"]
        if len(blank) < len(rows):
            return list(rows)
    paths = {run.name: run.path for run in runs}
    blanks: list[Blank] = []
    filled = []
    for row in rows:
        try:
            values = list(by_seed(paths[row["run_id"]], view.by, view.last).values())
        except Blank as error:
            blanks.append(error)
            values = []
        filled.append({**row, **_moments(values, view.by)})
    if len(blanks) == len(rows):
        raise blanks[0]
    return filled


def _moments(values: Sequence[float], by: str) -> Row:
    if not values or any(math.isnan(value) for value in values):
        return {f"{by}_mean": None, f"{by}_std": None}
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return {f"{by}_mean": mean, f"{by}_std": math.sqrt(squares / max(1, len(values) - 1))}


@dataclass(frozen=True)
class Ended(sources.Run):
    """A finished run, with what `collect` makes of its guarantee and its problem."""

    more: Mapping[str, Any] = field(default_factory=dict)
    last: str = "1"

    def field(self, name: str) -> Any:
        own = NAMES.get(name, name)
        if own in self.more:
            return self.more[own]
        if name.partition(".")[0] in ("privacy", "delta") and self._open:
            return None
        return super().field(name)

    @property
    def _open(self) -> bool:
        """Nothing is bounded and no noise is added, so nothing reads the privacy settings."""
        return self.result.get("eps_target") == math.inf and self.result.get("bound") is None

    def by_seed(self, quantity: Expression, last: int | str) -> dict[Key, float]:
        values = by_seed(self.path, quantity.text, self.last)
        return {(self.split, seed): value for seed, value in values.items()}


@dataclass(frozen=True)
class Picture:
    """One figure: what all of its points share, and the points."""

    shared: Row  # dataset, setting, guarantee, algo, budget
    cells: list[Cell]
    tuned: list[str]  # settings of which each point has the best


def pictures(
    rows: Sequence[Row], runs: Sequence[Run], view: View, differing: Sequence[str]
) -> Iterator[Picture]:
    """A figure for each problem, guarantee, algorithm and budget, as far as these are no fields of
    the view. Runs without privacy stand in every figure of their problem.

    rows: compared without the fields of the view.
    """
    paths = {run.name: run for run in runs}
    split = _split(view)
    tuned = [key for key in differing if _is_tuned(key, view)]
    for shared in _distinct(rows, split):
        members = [row for row in rows if all(row[key] in (shared[key], _free(row, key)) for key in split)]
        known = []
        for point in _points(members):
            for row in counted(point):
                run = paths[row["run_id"]]
                known.append(Ended("", run.path, run.result or {}, more=_more(row), last=view.last))
        _check(known, view)
        swept = [key for key in tuned if _differs(known, key)]
        better: Literal["least", "most"] = "most" if sign(view.by) < 0 else "least"
        question = Question(view.by, view.fields, {}, 1, better, tuple(swept))
        yield Picture(shared, _in_order(cells(known, question), view.facets), swept)


def _in_order(drawn: Sequence[Cell], facets: Sequence[str]) -> list[Cell]:
    """Panels of numbers by their size, panels of words as they come."""
    ranks = {}
    for key in facets:
        values = list(dict.fromkeys(cell.at[key] for cell in drawn))
        is_numbers = all(isinstance(value, int | float) for value in values)
        ranks[key] = {value: rank for rank, value in enumerate(sorted(values) if is_numbers else values)}
    return sorted(drawn, key=lambda cell: [ranks[key][cell.at[key]] for key in facets])


def _split(view: View) -> list[str]:
    keys = ["dataset", "setting"]
    keys += [] if any(name.partition(".")[0] == "privacy" for name in view.fields) else ["guarantee"]
    keys += [] if "algo" in view.fields else ["algo"]
    keys += [] if set(BUDGET) & set(view.fields) else ["budget"]
    return [key for key in keys if key not in view.fields]


def _free(row: Row, key: str) -> Any:
    """What a run without privacy has in place of it: it stands beside every guarantee and
    budget.
    """
    return row[key] if row["budget"] == math.inf and key in ("guarantee", "budget") else object()


def _distinct(rows: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    private = [row for row in rows if row["budget"] < math.inf]
    known: dict[tuple[Any, ...], Row] = {}
    for row in private or rows:
        known.setdefault(tuple(row[key] for key in keys), {key: row[key] for key in keys})
    return [known[at] for at in sorted(known, key=str)]


def _points(rows: Sequence[Row]) -> list[list[Row]]:
    points: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        points.setdefault((row.get("point_id") or row["run_id"], row.get("subset")), []).append(row)
    return list(points.values())


def _more(row: Row) -> Row:
    return {key: row[key] for key in ("budget", "algo", "guarantee", "setting")} | {"dataset": row["dataset"]}


def _is_tuned(key: str, view: View) -> bool:
    """Of what differs between runs, what each point has the best of."""
    group, _, inner = key.partition(".")
    named = group if inner == "name" else key
    if named in view.fields or key in view.fields or key in SEEDS or key in (*BUDGET, "delta", "algo.name"):
        return False
    if group in GROUPS and group not in ("algo", "privacy"):
        return False  # another problem
    lengths = {"local_steps", "rounds", "total_steps", "local_epochs", "total_epochs"}
    return key in lengths or key in ("lr", "privacy.clip") or key not in IN_OTHER_COLUMNS


def _differs(known: Sequence[Ended], key: str) -> bool:
    """Within an algorithm: a key that only one of them has is no choice."""
    values: dict[Any, set[Any]] = {}
    for run in known:
        values.setdefault(run.field("algo"), set()).add(run.field(key))
    return any(len(of_one - {None}) > 1 for of_one in values.values())


def _check(known: Sequence[Ended], view: View) -> None:
    """Every field of the view is a setting of some run."""
    for name in view.fields:
        if name in ("round", "steps"):
            continue
        if all(run.field(name) is None for run in known):
            settings = dict.fromkeys(
                key for run in known for key in run.settings if not key.endswith("_target_")
            )
            alike = [key for key in settings if name.rpartition(".")[2] in key][:5]
            hint = f" (perhaps {', '.join(alike)})" if alike else ", like privacy.clip"
            raise ConfigError(f"{name}: expected a setting of these runs{hint}")
