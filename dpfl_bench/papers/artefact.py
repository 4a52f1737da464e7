"""A table or figure of a paper, as its YAML file in conf/paper/PAPER/ says it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpfl_bench.checks import nearest, yaml_file
from dpfl_bench.checks.errors import ConfigError, located
from dpfl_bench.config import catalogue
from dpfl_bench.config.records import record
from dpfl_bench.papers import overlays
from dpfl_bench.papers.overlays import READINGS, Reading, Scale
from dpfl_bench.results.exhibits.figure import Figure
from dpfl_bench.results.exhibits.table import Table
from dpfl_bench.results.select.selection import Selection
from dpfl_bench.results.verdicts import claim, printed


@dataclass(frozen=True)
class Printed(printed.Printed):
    scales: list[Scale] = field(default_factory=lambda: ["full"])
    readings: list[Reading] = field(default_factory=lambda: ["paper"])

    def elsewhere(self, scale: Scale, reading: Reading, reduced: str) -> str:
        """Why runs are at another setting than what is printed, if they are."""
        if scale not in self.scales:
            return reduced or f"scale={scale}"
        return "" if reading in self.readings else f"reading={reading}"


@dataclass(frozen=True)
class Claim(claim.Claim):
    id: str = ""
    says: str = ""
    place: str = ""
    scales: list[Scale] = field(default_factory=lambda: ["cpu", "full"])
    readings: list[Reading] = field(default_factory=lambda: [*READINGS])
    untestable: dict[Scale, str] = field(default_factory=dict)
    reads: str = ""


@dataclass(frozen=True)
class Nominal:
    """The eps that the paper states, if it is one for all runs, and where it is from."""

    eps: float | None = None
    how: str = ""


@dataclass(frozen=True)
class Content:
    """The keys of the file."""

    place: str = ""
    title: str = ""
    shows: str = ""
    cost: dict[Scale, Any] = field(default_factory=dict)
    reduced: dict[Scale, str] = field(default_factory=dict)
    nominal: Nominal = Nominal()
    open: list[str] = field(default_factory=list)
    names: dict[Any, str] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=lambda: [*READINGS])
    sweeps: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    table: Table | None = None
    printed: list[Printed] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    @property
    def selections(self) -> dict[str, Selection]:
        """All that chooses runs, by where it stands in the file."""
        return {
            **{f"figures.{name}": figure for name, figure in self.figures.items()},
            **({"table": self.table} if self.table else {}),
            **{f"printed: {each.id or number}": each for number, each in enumerate(self.printed, start=1)},
            **{f"claims: {each.id or number}": each for number, each in enumerate(self.claims, start=1)},
        }

    def check(self) -> None:
        overlays.check(self.sweeps)
        for where, selection in self.selections.items():
            selection.check(where)
            if unknown := [name for name in selection.sweeps if name not in self.sweeps]:
                raise ConfigError(f"{where}.from: {unknown[0]}: expected one of {', '.join(self.sweeps)}")
        ids = [claim.id for claim in self.claims] + [printed.id for printed in self.printed]
        if len(set(ids)) < len(ids) or "" in ids:
            raise ConfigError(
                f"ids of claims and printed numbers: expected each once, found {', '.join(ids)}"
            )


@dataclass(frozen=True)
class Artefact(Content):
    file: Path = Path()
    line: str = ""  # the first comment: its line in `list papers`

    @property
    def id(self) -> str:
        return id_of(self.file)

    @property
    def paper(self) -> str:
        return self.file.parent.name


def id_of(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


def artefacts(config_dir: str | None = None) -> dict[str, Path]:
    """Every file by its id; a user's own file hides a packaged one of its name."""
    return {id_of(file): file for file in catalogue.named("paper/*", config_dir)}


def chosen(word: str, config_dir: str | None = None) -> list[Artefact]:
    """`all`, a paper, or one artefact."""
    known = artefacts(config_dir)
    ids = [name for name in known if word in ("all", name, name.partition("/")[0])]
    if not ids:
        papers = dict.fromkeys(name.partition("/")[0] for name in known)
        near = [name for name in known if name.startswith(word.partition("/")[0] + "/")] or [*papers]
        meant = nearest.did_you_mean(nearest.choice(word, [*papers, *known]))
        raise ConfigError(f"{word}: expected all, a paper or an artefact: {', '.join(near)}{meant}")
    return [load(known[name]) for name in ids]


def load(file: Path) -> Artefact:
    """ConfigError names the file, the key and what was expected."""
    with located(file):
        text, keys = yaml_file.read(file)
        content = record("", keys, Content)
        content.check()
    return Artefact(**vars(content), file=file, line=catalogue.first_comment(text.splitlines()))
