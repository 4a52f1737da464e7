"""A run folder's question again, from the folder alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import compose
from dpfl_bench.config.compose import Composed
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.validate import settings
from dpfl_bench.machine.say import say
from dpfl_bench.results import differences, where_it_was
from dpfl_bench.results.folder import BROKEN, FINISHED, RunFolder, plain_text
from dpfl_bench.results.provenance import Answer
from dpfl_bench.sweep import one_run


def replay(folder: str, check: bool, to: str) -> int:
    """1 if the run diverged (without `check`), or if a number differs (with it). The folder itself
    is only read.
    """
    first = RunFolder(Path(folder).resolve())
    outputs = str(Path(to).resolve())
    known = _result(first) if check else None
    composed = _composed(first, outputs)
    where_it_was.go(first)
    again = settings(composed)
    second = RunFolder.at(again.outputs, again.run_id)
    _refuse_itself(first, second, to)
    _say_other_id(first, again)
    code = one_run.computed(again, composed, Answer(force=True))
    if known is None or not second.finished:
        return code
    return differences.tell(first, second, known, second.finished)


def _result(first: RunFolder) -> dict[str, Any]:
    try:
        result = first.read("result.json")
    except BROKEN:
        result = None
    if not result or result.get("status") not in FINISHED:
        raise ConfigError(
            f"{first.path}: expected a finished run to compare with, found no result; leave --check out, or"
            " finish it first"
        )
    return result


def _composed(first: RunFolder, outputs: str) -> Composed:
    """The run's own config, written elsewhere, and without trackers: they have the rows of this run
    already.
    """
    where = first.path / ".hydra"
    if not (where / "config.yaml").is_file():
        raise ConfigError(
            f"{first.path}: expected a run folder, with .hydra/config.yaml; say dpfl-bench replay"
            " outputs/runs/ID"
        )
    composed = compose.composed((), str(where), "config")
    try:
        lines = plain_text(where / "overrides.yaml").splitlines()
    except (OSError, ValueError):
        lines = []
    overrides = tuple(line.removeprefix("- ") for line in lines)
    return replace(
        composed, config={**composed.config, "outputs": outputs, "trackers": []}, overrides=overrides
    )


def _refuse_itself(first: RunFolder, second: RunFolder, to: str) -> None:
    if second.path.resolve() == first.path:
        raise ConfigError(
            f"--to {to}: expected other outputs than those of the run itself, which is not to be touched"
        )


def _say_other_id(first: RunFolder, again: Settings) -> None:
    try:
        named = (first.read("result.json") or {}).get("run_id", again.run_id)
    except BROKEN:
        return
    if named != again.run_id:
        say(
            f"{first.path}: run {named} is run {again.run_id} to this version of dpfl-bench, whose numbers"
            " may be others"
        )
