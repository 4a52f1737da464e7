"""Whether the fields that an artefact names are fields of its runs. A name that no run has would
leave every run out, or put all in one group, and say nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.compose import Composer
from dpfl_bench.papers.artefact import Artefact, Claim, Figure, Printed, Selection, Table
from dpfl_bench.papers.sweeps import Sweep
from dpfl_bench.results.select.cells import BEST, OVER_ROUNDS
from dpfl_bench.results.select.sources import CHOSEN, PREFIXES


def check(artefact: Artefact, laid: Mapping[str, Sweep], composer: Composer) -> None:
    """Before anything runs."""
    known = {"sweep", *OVER_ROUNDS, *CHOSEN}
    for job in {_chosen(job): job for sweep in laid.values() for job in sweep.jobs()}.values():
        try:
            known |= set(_keys(composer.job(job).config))
        except ConfigError:  # told with its sweep, when that is planned
            return
    for where, name in _named(artefact, laid):
        if name not in known and name.partition(".")[0] not in PREFIXES:
            last = name.rpartition(".")[2]
            near = ", ".join(sorted(key for key in known if key.rpartition(".")[2] == last)[:3])
            expected = near or "a setting, algo, dataset, model, partition, privacy, sweep, result.KEY"
            raise ConfigError(f"{artefact.file}: {where}: {name}: no run has that field; expected {expected}")


def _chosen(job: tuple[str, ...]) -> tuple[str, ...]:
    """The words by which configs have other keys: those that choose a file, or add a key."""
    groups = tuple(f"{name}=" for name in CHOSEN)
    return tuple(word for word in job if word.startswith((*groups, "+")))


def _keys(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _named(artefact: Artefact, laid: Collection[str]) -> Iterator[tuple[str, str]]:
    """Every name, and where it stands; of what needs no other sweeps than these."""
    every: list[tuple[str, Selection]] = [(f"figures.{k}", figure) for k, figure in artefact.figures.items()]
    every += [("table", artefact.table)] if artefact.table else []
    every += [(f"printed: {each.id}", each) for each in artefact.printed]
    every += [(f"claims: {each.id}", each) for each in artefact.claims]
    for where, selection in every:
        if set(selection.sweeps) <= set(laid):
            yield from ((where, name) for name in _of(selection))


def _of(selection: Selection) -> Iterator[str]:
    yield from (*selection.where, *selection.best_over, *selection.spread)
    y = ""
    if isinstance(selection, Figure):
        yield from selection.panels
        y = selection.y
    elif isinstance(selection, Table | Printed):
        yield from (*selection.rows, *selection.columns)
        y = selection.value
    elif isinstance(selection, Claim):
        terms = selection.terms
        yield from (*selection.each, *(terms[key] for key in ("along", "with", "x") if key in terms))
        yield from (key for side in ("of", "than") for key in terms.get(side, {}))
        y = selection.y
    if y.startswith(BEST):
        yield y.removeprefix(BEST)
