"""A table or figure of a paper, as its YAML file in conf/paper/PAPER/ says it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.records import record
from dpfl_bench.config.typed import checked
from dpfl_bench.papers import shape
from dpfl_bench.papers.shape import READINGS, SCALES
from dpfl_bench.results.collect.measures import Last
from dpfl_bench.results.select.cells import BEST, Better, Question
from dpfl_bench.results.select.expressions import parse
from dpfl_bench.results.verdicts import kinds
from dpfl_bench.results.verdicts.claim import Claimed


@dataclass(frozen=True)
class Selection:
    """Which numbers. Every key has the meaning of its namesake in `Question`."""

    sweeps: list[str] = field(default_factory=list, metadata={"key": "from"})  # none: all
    where: dict[str, Any] = field(default_factory=dict)
    best_over: list[str] = field(default_factory=list)
    spread: list[str] = field(default_factory=list)
    last: Any = 1
    better: Literal["least", "most"] | None = None
    by: str | None = None

    def question(self, y: str, *names: str) -> Question:
        """`better` is of y; where y is `best FIELD`, of `by`."""
        is_best = y.startswith(BEST)
        by_better = (self.better if is_best else None) or (_direction(self.by) if self.by else None)
        better = self.better or ("least" if is_best else _direction(y))
        tuned, spread = tuple(self.best_over), tuple(self.spread)
        return Question(y, names, self.where, self.last, better, tuned, self.by, spread, by_better)


def _direction(quantity: str) -> Better:
    """Of a score more is better, of everything else less."""
    if not any(name.endswith("_metric") for name in parse(quantity).names):
        return "least"
    if re.fullmatch(r"\s*([\d.]+\s*\*)?\s*[\w.]+_metric\s*([*/]\s*[\d.]+)?\s*", quantity):
        return "most"
    raise ConfigError(f"{quantity}: arithmetic with a score: expected better: least or most beside it")


@dataclass(frozen=True)
class Figure(Selection):
    x: str = ""
    y: str = ""
    kind: Literal["lines", "points", "paths", "bars"] = "lines"
    line: list[str] = field(default_factory=list)
    row: list[str] = field(default_factory=list)
    column: list[str] = field(default_factory=list)
    star: bool = False
    log: list[str] = field(default_factory=list)
    x_label: str = ""
    y_label: str = ""
    diagonal: bool = False
    at: dict[str, str] = field(default_factory=dict)
    also: dict[str, Any] = field(default_factory=dict)  # label: {y, where}: a line of its own

    @property
    def panels(self) -> list[str]:
        return [*self.row, *self.column, *self.line]


@dataclass(frozen=True)
class Table(Selection):
    value: str = ""
    rows: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    digits: int = 3
    also: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Printed(Selection):
    """Numbers of the paper, by row and column."""

    id: str = ""
    what: str = ""
    place: str = ""
    value: str = ""
    digits: int = 2
    rounding: Literal["nearest", "up"] = "nearest"  # of the print; up: as bounds are printed
    runs: int = 1
    rows: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    cells: dict[Any, Any] = field(default_factory=dict)
    std: dict[Any, Any] = field(default_factory=dict)
    scales: list[str] = field(default_factory=lambda: ["full"])
    readings: list[str] = field(default_factory=lambda: ["paper"])
    differs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim(Selection):
    id: str = ""
    says: str = ""
    place: str = ""
    kind: str = ""
    y: str = ""
    each: list[str] = field(default_factory=list)
    scales: list[str] = field(default_factory=lambda: ["cpu", "full"])
    readings: list[str] = field(default_factory=lambda: [*READINGS])
    untestable: dict[str, str] = field(default_factory=dict)
    reads: str = ""
    at_least: Any = field(
        default=None, metadata={"key": "in"}
    )  # how many of the groups have to hold, or most; none: every one
    terms: dict[str, Any] = field(default_factory=dict, metadata={"rest": True})  # the kind's own keys

    @property
    def claimed(self) -> Claimed:
        return Claimed(self.kind, self.question(self.y), self.terms, self.each, self.at_least)


@dataclass(frozen=True)
class Artefact:
    paper: str
    name: str
    file: Any  # its path
    line: str  # the first comment: its line in `list papers`
    place: str = ""
    title: str = ""
    shows: str = ""
    cost: dict[str, Any] = field(default_factory=dict)
    reduced: dict[str, str] = field(default_factory=dict)
    nominal: dict[str, Any] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    names: dict[Any, str] = field(default_factory=dict)
    readings: list[str] = field(default_factory=lambda: [*READINGS])
    sweeps: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    table: Table | None = None
    printed: list[Printed] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.paper}/{self.name}"


def artefacts(config_dir: str | None = None) -> dict[str, Path]:
    """Every file by its id; a user's own file hides a packaged one of its name."""
    roots = [Path(str(files("dpfl_bench.conf"))), *([Path(config_dir)] if config_dir else [])]
    return {f"{f.parent.name}/{f.stem}": f for root in roots for f in sorted(root.glob("paper/*/[!_]*.yaml"))}


def chosen(word: str, config_dir: str | None = None) -> list[Artefact]:
    """`all`, a paper, or one artefact."""
    known = artefacts(config_dir)
    ids = [name for name in known if word in ("all", name, name.partition("/")[0])]
    if not ids:
        papers = dict.fromkeys(name.partition("/")[0] for name in known)
        near = [name for name in known if name.startswith(word.partition("/")[0] + "/")] or papers
        raise ConfigError(f"{word}: expected all, a paper or an artefact: {', '.join(near)}")
    return [load(known[name]) for name in ids]


def load(file: Path) -> Artefact:
    """ConfigError names the file, the key and what was expected."""
    import yaml

    try:
        text = file.read_text()
        shape.check_once(text)
        content = shape.numbers(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        comments = (line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
        own = {"paper": file.parent.name, "name": file.stem, "file": file, "line": next(comments, "")}
        if not isinstance(content, dict):
            raise ConfigError("expected keys and values")
        shape.known("file", content, [f.name for f in fields(Artefact) if f.name not in own])
        artefact: Artefact = record("", {**content, **own}, Artefact)
        _check(artefact)
    except (ConfigError, yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from None
    return artefact


def _check(artefact: Artefact) -> None:
    shape.check_sweeps(artefact.sweeps)
    shape.known("cost", artefact.cost, SCALES)
    shape.known("reduced", artefact.reduced, SCALES)
    shape.known("nominal", artefact.nominal, ("eps", "how"))
    shape.known("readings", artefact.readings, READINGS)
    for name, figure in artefact.figures.items():
        shape.known(f"figures.{name}.log", figure.log, ("x", "y"))
        for key, text in (("x", figure.x), ("y", figure.y), *figure.at.items()):
            _check_quantity(f"figures.{name}.{key}", text, figure)
        _check_selection(f"figures.{name}", figure, figure.y, artefact)
    if artefact.table is not None:
        _check_selection("table", artefact.table, artefact.table.value, artefact)
    for number, printed in enumerate(artefact.printed, start=1):
        _check_printed(f"printed: {printed.id or number}", printed, artefact)
    for number, claim in enumerate(artefact.claims, start=1):
        _check_claim(f"claims: {claim.id or number}", claim, artefact)
    ids = [claim.id for claim in artefact.claims] + [printed.id for printed in artefact.printed]
    if len(set(ids)) < len(ids) or "" in ids:
        raise ConfigError(f"ids of claims and printed numbers: expected each once, found {', '.join(ids)}")


def _check_selection(where: str, selection: Selection, y: str, artefact: Artefact) -> None:
    shape.known(f"{where}.from", selection.sweeps, list(artefact.sweeps))
    _check_quantity(f"{where}: {y or 'y or value'}", y, selection)
    try:
        Last.parse(selection.last)
        selection.question(y)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check_quantity(where: str, text: str, selection: Selection) -> None:
    if text.startswith(BEST) and not selection.by:
        raise ConfigError(f"{where}: {text}: expected by: the quantity that the best is best in")
    for each in (text.removeprefix(BEST), selection.by or text.removeprefix(BEST)):
        try:
            parse(each)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None


def _check_printed(where: str, printed: Printed, artefact: Artefact) -> None:
    _check_selection(where, printed, printed.value, artefact)
    shape.known(f"{where}: scales", printed.scales, SCALES)
    shape.known(f"{where}: readings", printed.readings, READINGS)
    cells = dict(entries(printed.cells))
    for key, values in (("cells", cells), ("std", dict(entries(printed.std)))):
        for at, value in values.items():
            checked(f"{where}: {key}: {' / '.join(at)}", value, float)
    places = [" / ".join(at) for at in cells]
    shape.known(f"{where}: std", (" / ".join(at) for at, _ in entries(printed.std)), places)
    shape.known(f"{where}: differs", map(shape.word, printed.differs), places)
    if min(printed.runs, printed.digits) < 0 or not (printed.rows or printed.columns):
        raise ConfigError(f"{where}: expected rows or columns, digits >= 0 and runs >= 0")


def _check_claim(where: str, claim: Claim, artefact: Artefact) -> None:
    _check_selection(where, claim, claim.y, artefact)
    kinds.check(claim.kind, claim.terms, where)
    shape.known(f"{where}: scales", claim.scales, SCALES)
    shape.known(f"{where}: untestable", claim.untestable, SCALES)
    shape.known(f"{where}: readings", claim.readings, READINGS)
    wanted = claim.at_least
    if wanted not in (None, "most") and (type(wanted) is not int or wanted < 1):
        raise ConfigError(f"{where}: in={wanted}: expected a number of groups, or most")


def entries(node: Mapping[Any, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every number under nested keys, by its row and column."""
    for name, value in node.items():
        at = (*above, shape.word(name))
        if isinstance(value, Mapping):
            yield from entries(value, at)
        elif value is not None:
            yield at, value
