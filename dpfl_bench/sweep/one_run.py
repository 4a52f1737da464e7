"""One run: what is done is left alone, and what other code or data computed is asked about."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl_bench.budget.notes import notes
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import compose
from dpfl_bench.config.call import call
from dpfl_bench.config.compose import Composed
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.validate import settings
from dpfl_bench.machine import ranks
from dpfl_bench.machine.imports import preload
from dpfl_bench.machine.place import place
from dpfl_bench.machine.say import say
from dpfl_bench.machine.signals import Interrupted, WorkerDied
from dpfl_bench.results import lock, provenance
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.provenance import Answer, Asker
from dpfl_bench.results.summary import summary
from dpfl_bench.sweep import points

ASK = Answer()


def run_one(overrides: Sequence[str], config_dir: str | None, config_name: str, answer: Answer = ASK) -> int:
    points.refuse_divisors(overrides)
    composed = compose.composed(overrides, config_dir, config_name)
    return computed(settings(composed), composed, answer)


def computed(run: Settings, composed: Composed, answer: Answer) -> int:
    """Compute what is not there yet. ConfigError where other code or data computed what is there,
    and `answer` does not say what is to become of it.
    """
    here = ranks.group()
    if place().ranks != here.size:
        raise ConfigError(
            "torchrun, srun: expected the command, `torchrun -m dpfl_bench run`, got a notebook's run"
        )
    if not here.first:
        return _along(run, here)
    folder = RunFolder.at(run.outputs, run.run_id)
    try:
        _settle(run, folder, answer)
    except lock.Busy as error:
        say(str(error))
        return 1
    known = folder.finished
    here.told(b"" if known else b"train")
    if known is None:
        preload("dpfl_bench.experiment.run")
        from dpfl_bench.experiment.run import run as train

        for note in notes(run):
            say(note)

        try:
            train(run, composed.overrides, composed.yaml())
        except (lock.Busy, lock.Lost, WorkerDied) as error:
            say(str(error))
            return 1
        except Interrupted as error:
            if not here.another_spoke():  # torchrun stops the others where a rank ends with an error
                say(f"{error}; the same command goes on from its checkpoint in {folder.path}")
            return error.exit_code
    result = known or folder.finished
    assert result is not None
    say(("already done: " if known else "") + summary(result))
    sys.stdout.write(f"{folder.path}\n")
    return 1 if result["status"] == "diverged" else 0


def _along(run: Settings, here: ranks.Group) -> int:
    """What the other ranks do: rank 0 looks at folders, and says whether there is work."""
    try:
        if here.told(None):
            preload("dpfl_bench.experiment.run")
            from dpfl_bench.experiment.run import along

            along(run)
    except ranks.RankDied as error:
        say(str(error))
        return error.code
    except WorkerDied as error:
        here.meets_error()
        say(f"rank {here.rank} on {here.hosts[here.rank]}: {error}")
        return 1
    except Interrupted as error:
        return error.exit_code
    return 0


def _settle(run: Settings, folder: RunFolder, answer: Answer) -> None:
    """Raises ConfigError with what the user has to answer. Who forces a run that is finished wants
    it computed again.
    """
    if answer.force and folder.finished and not lock.holder(folder.path):
        say(f"{folder.path}: computed anew; what was there is kept as {folder.set_aside().name}")
        return
    finding = Asker(load).look(run, folder)
    findings = [finding] if finding else []
    if refused := provenance.refused(findings, answer):
        raise ConfigError(refused[0])
    provenance.settle(findings, answer, say)


def load(dataset: Mapping[str, Any]) -> Any:
    """The records of a data set, as provenance compares them."""
    return call(dataset, "dataset")
