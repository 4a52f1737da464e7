"""Whether the fields that an artefact names are fields of its runs. A name that no run has would
leave every run out, or put all in one group, and say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.compose import Composer
from dpfl_bench.papers.artefact import Artefact
from dpfl_bench.results.select.cells import OVER_ROUNDS
from dpfl_bench.results.select.sources import CHOSEN, PREFIXES
from dpfl_bench.sweep.recipe import Job, Recipe


def check(artefact: Artefact, recipes: Mapping[str, Recipe], composer: Composer) -> None:
    """Before anything runs. What needs other sweeps than these is left out."""
    known = {"sweep", *OVER_ROUNDS, *CHOSEN}
    for job in {_choices(job): job for recipe in recipes.values() for job in recipe.jobs()}.values():
        try:
            known |= composer.job(job).by_name.keys()
        except ConfigError:  # told with its sweep, when that is planned
            return
    for where, selection in artefact.selections.items():
        for name in selection.named if recipes.keys() >= set(selection.sweeps) else ():
            if name not in known and name.partition(".")[0] not in PREFIXES:
                last = name.rpartition(".")[2]
                near = ", ".join(sorted(key for key in known if key.rpartition(".")[2] == last)[:3])
                expected = near or "a setting, algo, dataset, model, partition, privacy, sweep, result.KEY"
                raise ConfigError(f"{where}: {name}: no run has that field; expected {expected}")


def _choices(job: Job) -> Job:
    """The words by which configs have other keys: those that choose a file, or add a key."""
    groups = tuple(f"{name}=" for name in CHOSEN)
    return tuple(word for word in job if word.startswith((*groups, "+")))
