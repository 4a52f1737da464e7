"""`dpfl-bench replay`: a run folder's question again, from the folder alone, and whether every
number comes out the same.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import compose
from dpfl_bench.config.compose import Composed
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.validate import settings
from dpfl_bench.machine.say import say
from dpfl_bench.results import origin
from dpfl_bench.results.folder import BROKEN, FINISHED, RunFolder
from dpfl_bench.results.provenance import Answer
from dpfl_bench.sweep import sweep

SHOWN = 10  # differences
# of result.json: times and places, and what is told apart
NOT_NUMBERS = {"seconds", "origin", "source", "run_id", "point_id", "results_version"}


def command(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="dpfl-bench replay",
        description=(
            "Runs a run folder's question again, from its .hydra/config.yaml alone, into other outputs; the"
            " folder is only read. Relative paths are those of the working directory that it was run in,"
            " where that is still there."
        ),
    )
    parser.add_argument("folder", metavar="RUN_FOLDER", help="outputs/runs/ID, or wherever it was moved to")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare every number with the folder's; exit code 1 if one differs",
    )
    parser.add_argument(
        "--to",
        metavar="OUTPUTS",
        default="outputs/replays",
        help="where it is written (default: %(default)s)",
    )
    flags = parser.parse_intermixed_args(arguments)
    return replay(flags.folder, flags.check, flags.to)


def replay(folder: str, check: bool, to: str) -> int:
    """1 if the run diverged (without `check`), or if a number differs (with it). The folder itself
    is only read.
    """
    first = RunFolder(Path(folder).resolve())
    outputs = str(Path(to).resolve())
    known = _result(first) if check else None
    composed = _composed(first, outputs)
    _go_where_it_was(first)
    made = settings(composed)
    second = RunFolder.at(made.outputs, made.run_id)
    _refuse_itself(first, second, to)
    _say_other_id(first, made)
    code = sweep.asked(made, composed, Answer(force=True))
    if known is None or not second.finished:
        return code
    return _told(first, second, known, second.finished)


def _result(first: RunFolder) -> dict[str, Any]:
    try:
        found = first.read("result.json")
    except BROKEN:
        found = None
    if not found or found.get("status") not in FINISHED:
        raise ConfigError(
            f"{first.path}: expected a finished run to compare with, found no result; leave --check out, or"
            " finish it first"
        )
    return found


def _composed(first: RunFolder, outputs: str) -> Composed:
    """As it was composed then, but for where it is written; trackers have been told of this run
    already.
    """
    where = first.path / ".hydra"
    if not (where / "config.yaml").is_file():
        raise ConfigError(
            f"{first.path}: expected a run folder, with .hydra/config.yaml; say dpfl-bench replay"
            " outputs/runs/ID"
        )
    made = compose.composed((), str(where), "config")
    try:
        lines = (where / "overrides.yaml").read_text().splitlines()
    except FileNotFoundError:
        lines = []
    told = tuple(line.removeprefix("- ") for line in lines)
    return replace(made, config={**made.config, "outputs": outputs, "trackers": []}, overrides=told)


def _go_where_it_was(first: RunFolder) -> None:
    """Relative paths in its settings are from there; on another machine, from here."""
    try:
        told = (first.read("env.json") or {}).get("cwd")
    except BROKEN:
        return
    if isinstance(told, str) and Path(told).is_dir():
        os.chdir(told)


def _refuse_itself(first: RunFolder, second: RunFolder, to: str) -> None:
    if second.path.resolve() == first.path:
        raise ConfigError(
            f"--to {to}: expected other outputs than those of the run itself, which is not to be touched"
        )


def _say_other_id(first: RunFolder, made: Settings) -> None:
    try:
        named = (first.read("result.json") or {}).get("run_id", made.run_id)
    except BROKEN:
        return
    if named != made.run_id:
        say(
            f"{first.path}: run {named} is run {made.run_id} to this version of dpfl-bench, whose numbers may"
            " be others"
        )


def _told(first: RunFolder, second: RunFolder, known: dict[str, Any], anew: dict[str, Any]) -> int:
    """What differs, in lines: the code and the data, then the numbers."""
    for line in _origins(first, second, known, anew):
        say(line)
    found = [
        *_tables(first, second),
        *_numbers("result.json", known, anew),
        *_numbers("privacy.json", *_privacy(first, second)),
    ]
    for line in found[:SHOWN]:
        say(f"differs: {line}")
    if len(found) > SHOWN:
        say(f"differs: {len(found) - SHOWN} more")
    if not found:
        rows = second.metrics.path.read_bytes().count(b"\n") - 1
        say(
            f"every number is the same: {rows} rows of metrics.csv to the last byte, result.json,"
            " privacy.json"
        )
    return int(bool(found))


def _privacy(first: RunFolder, second: RunFolder) -> tuple[Any, Any]:
    try:
        return first.read("privacy.json"), second.read("privacy.json")
    except BROKEN:
        return None, second.read("privacy.json")


def _origins(
    first: RunFolder, second: RunFolder, known: Mapping[str, Any], anew: Mapping[str, Any]
) -> Iterator[str]:
    then, now = (result.get("origin") or {} for result in (known, anew))
    for key, part, what in (("targets", "code", "the code that it names"), ("data", "contents", "the data")):
        if then.get(key) != now.get(key):
            names = origin.names(*(origin.parts(folder, part) for folder in (first, second)))
            yield (
                f"{what} is other than it was ({names})"
                if key == "targets"
                else f"{what} are other than they were ({names})"
            )
    if then.get("package") != now.get("package"):
        yield "dpfl-bench itself is other than it was"


def _tables(first: RunFolder, second: RunFolder) -> Iterator[str]:
    """Where metrics.csv first differs."""
    try:
        contents = [folder.metrics.path.read_bytes() for folder in (first, second)]
    except FileNotFoundError:
        yield f"metrics.csv: there is none in {first.path}"
        return
    if contents[0] == contents[1]:
        return
    (head, *rows), (other_head, *other_rows) = (
        list(csv.reader(content.decode(errors="replace").splitlines())) for content in contents
    )
    yield _first_other(head, rows, other_head, other_rows)


def _first_other(
    head: list[str], rows: list[list[str]], other_head: list[str], other_rows: list[list[str]]
) -> str:
    if head != other_head:
        return f"metrics.csv: the columns were {','.join(head)}, now {','.join(other_head)}"
    for number, (row, other) in enumerate(zip(rows, other_rows, strict=False), start=1):
        for name, was, now in zip(head, row, other, strict=False):
            if was != now:
                return (
                    f"metrics.csv, row {number} ({','.join(row[:2])}), {name}: was {was or 'blank'}, now"
                    f" {now or 'blank'}"
                )
    return f"metrics.csv: had {len(rows)} rows, now {len(other_rows)}, or ends otherwise"


def _numbers(path: str, was: Any, now: Any) -> Iterator[str]:
    """Every value of the two that is not the same, by its name."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*was, *now]):
            if key not in NOT_NUMBERS:
                yield from _numbers(
                    f"{path}: {key}" if ":" not in path else f"{path}.{key}", was.get(key), now.get(key)
                )
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for place, pair in enumerate(zip(was, now, strict=True)):
            yield from _numbers(f"{path}[{place}]", *pair)
    elif was != now:
        yield f"{path} was {was}, now {now}"
