"""Whether every number of two run folders is the same, and where the first difference is."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Any

from dpfl_bench.machine.say import say
from dpfl_bench.results import origin
from dpfl_bench.results.folder import BROKEN, RunFolder

SHOWN = 10  # differences
# of result.json: times, places, the machine's use, and what `tell` compares by itself
NOT_NUMBERS = {"seconds", "audited", "origin", "source", "run_id", "point_id", "results_version", "engine"}


def tell(first: RunFolder, second: RunFolder, known: dict[str, Any], anew: dict[str, Any]) -> int:
    """Say what differs between two folders of one question: the code and the data, then the
    numbers. 1 if a number differs.

    known, anew: what their result.json say.
    """
    for line in _origins(first, second, known, anew):
        say(line)
    lines = [
        *_tables(first, second),
        *numbers("result.json", known, anew),
        *numbers("privacy.json", *_privacy(first, second)),
    ]
    for line in lines[:SHOWN]:
        say(f"differs: {line}")
    if len(lines) > SHOWN:
        say(f"differs: {len(lines) - SHOWN} more")
    if not lines:
        rows = second.metrics.path.read_bytes().count(b"\n") - 1
        say(
            f"every number is the same: {rows} rows of metrics.csv to the last byte, result.json,"
            " privacy.json"
        )
    return int(bool(lines))


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


def numbers(path: str, was: Any, now: Any) -> Iterator[str]:
    """Every value of the two that is not the same, by its name."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*was, *now]):
            if key not in NOT_NUMBERS:
                yield from numbers(
                    f"{path}: {key}" if ":" not in path else f"{path}.{key}", was.get(key), now.get(key)
                )
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for place, pair in enumerate(zip(was, now, strict=True)):
            yield from numbers(f"{path}[{place}]", *pair)
    elif was != now:
        yield f"{path} was {was}, now {now}"
