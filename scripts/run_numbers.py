"""What a command of scripts/same_numbers leaves behind on each side, and in what they differ."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
CONTROL = "weight_decay=0.0001"  # what NEW has besides in the negative control
UNCOMPARED = {"run_id", "point_id", "results_version", "origin", "seconds"}  # code and clock
SHOWN = 6  # differences of a command
Files = dict[str, Any]  # the content of each file of a run
Rename = Callable[[str], str]  # a word of OLD -> the word of NEW


@dataclass
class Verdict:
    """What came of a command.

    word: equal, DIFFERS or FAILED. lines: why. notes: what is no failure, in words that fit any
    run.
    """

    word: str
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Failed(Exception):
    """A command has no numbers to compare."""


def verdict(old: Path, new: Path, rename: Rename) -> Verdict:
    """old, new: the folders of one command, as play_runs.py leaves them."""
    sides, failures = [], []
    for side, folder in (("OLD", old), ("NEW", new)):
        try:
            sides.append(_runs(folder))
        except (Failed, OSError, ValueError) as error:  # a file is missing, or is no JSON
            failures.append(f"{side}: {error}")
    if failures:
        return Verdict("FAILED", failures)
    before, after = {rename(question): files for question, files in sides[0].items()}, sides[1]
    if before.keys() != after.keys():
        return Verdict("FAILED", [f"OLD ran {sorted(before)}, NEW ran {sorted(after)}"])
    codes = [[answer["code"] for answer in _answers(folder)] for folder in (old, new)]
    lines = [] if codes[0] == codes[1] else [f"exit codes were {codes[0]}, now {codes[1]}"]
    notes: list[str] = []
    for question, files in before.items():
        more, remarks = _differences(files, after[question], rename)
        lines += [f"{question}: {line}" if len(before) > 1 else line for line in more]
        notes += remarks
    rest = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return Verdict("DIFFERS" if lines else "equal", lines[:SHOWN] + rest, notes)


def _answers(folder: Path) -> list[dict[str, Any]]:
    """What the command said, once or, after an interruption, twice."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("said.*.json"))]


def _runs(folder: Path) -> dict[str, Files]:
    """Every run of a command, by what was asked; a plan counts as one."""
    *cuts, answer = _answers(folder)
    for cut in cuts:
        if cut["code"] != INTERRUPTED:
            raise Failed(f"the run was not interrupted: exit code {cut['code']}")
    last_line = "".join(answer["err"].strip().splitlines()[-1:])
    if answer["code"] not in (0, 1):  # 1: a run diverged, or failed
        raise Failed(f"exit code {answer['code']}: {last_line}")
    runs = sorted((folder / "runs").glob("*"))
    if not runs and answer["code"] == 0:
        return {"plan": {"plan": json.loads(answer["out"])}}
    unfinished = [run.name for run in runs if not (run / "result.json").exists()]
    if unfinished or not runs:
        raise Failed(f"{len(unfinished)} of {len(runs)} runs did not end: {last_line}")
    return {_question(run) if len(runs) > 1 else "run": _files(run) for run in runs}


def _question(run: Path) -> str:
    """The words that a sweep gave this run."""
    lines = (run / ".hydra" / "overrides.yaml").read_text().splitlines()
    words = [line.removeprefix("- ") for line in lines]
    return " ".join(word for word in words if word != CONTROL and not word.startswith("outputs="))


def _files(run: Path) -> Files:
    result, privacy = (json.loads((run / name).read_text()) for name in ("result.json", "privacy.json"))
    kept = {key: value for key, value in result.items() if key not in UNCOMPARED}
    table = (run / "metrics.csv").read_bytes().decode()
    return {"metrics.csv": table, "result.json": kept, "privacy.json": privacy}


def _differences(old: Files, new: Files, rename: Rename) -> tuple[list[str], list[str]]:
    """Differences, then notes."""
    lines: list[str] = []
    notes: list[str] = []
    for name, content in old.items():
        if isinstance(content, str):
            more, remarks = _differing_rows(name, content, new[name], rename)
            lines += more
            notes += remarks
            continue
        before = {".".join(map(rename, path)): leaf for path, leaf in _leaves(content)}
        after = {".".join(path): leaf for path, leaf in _leaves(new[name])}
        notes += [f"{name}: {path} is in OLD alone" for path in before.keys() - after.keys()]
        notes += [f"{name}: {path} is in NEW alone" for path in after.keys() - before.keys()]
        for path in [path for path in before if path in after]:
            was, now = before[path], after[path]
            if json.dumps(was) == json.dumps(now):
                continue
            if isinstance(was, str) and isinstance(now, str):
                notes.append(f"{name}: {path} has another text")
            else:
                lines.append(f"{name}: {path} was {was!r}, now {now!r}")
    return lines, notes


def _differing_rows(name: str, old: str, new: str, rename: Rename) -> tuple[list[str], list[str]]:
    """The first row that is not the same to the byte in the columns that both sides have, and a
    note for each column of one side alone.
    """
    columns, newline, rows = old.partition("\n")
    before = ",".join(map(rename, columns.split(",")))
    after = new.partition("\n")[0]
    both = [column for column in before.split(",") if column in after.split(",")]
    sides = ((before, after, "OLD"), (after, before, "NEW"))
    notes = [
        f"{name}: column {column} is in {side} alone"
        for own, others, side in sides
        for column in own.split(",")
        if column not in others.split(",")
    ]
    shown = _of_columns(before + newline + rows, both), _of_columns(new, both)
    for number, (was, now) in enumerate(zip_longest(*(text.split("\n") for text in shown))):
        if was != now:
            cells = list(zip_longest(both, (was or "").split(","), (now or "").split(",")))
            moved = [f"{column} was {a!r}, now {b!r}" for column, a, b in cells if a != b]
            return [f"{name}: row {number}: {moved[0] if moved else 'an end of line'}"], notes
    return ([] if both else [f"{name}: no column is on both sides"]), notes


def _of_columns(table: str, columns: list[str]) -> str:
    """A table's text with these columns alone, in this order. Its ends of lines stay as they are; a
    row of another length than the header stays whole.
    """
    header = table.partition("\n")[0].split(",")
    places = [header.index(column) for column in columns]
    rows = [line.split(",") for line in table.split("\n")]
    return "\n".join(
        ",".join(row[place] for place in places) if len(row) == len(header) else ",".join(row) for row in rows
    )


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every number, text, true, false and null of a JSON value, with the keys that lead to it."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(part, (*path, str(key)))
    else:
        yield path, value
