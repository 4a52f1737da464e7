"""`reproduce --check`: whether an artefact's numbers are the committed ones. Where the same kind of
machine made both, every bit; else what the seeds allow.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.machine.say import say
from dpfl_bench.papers.artefact import Artefact
from dpfl_bench.papers.overview import COMMITTED, FILE
from dpfl_bench.results import made
from dpfl_bench.results.agreement import rows, same_bits, same_intervals
from dpfl_bench.results.differences import numbers
from dpfl_bench.results.folder import BROKEN
from dpfl_bench.results.verdicts.agreement import apart

COMPARED = ("claims", "printed", "eps", "not_accounted")  # of verdict.json
WORDS = ("says", "place", "reads", "what")  # which change no number
Record = Mapping[str, Any]


def folder(word: str) -> Path:
    """Of the numbers to compare with: the one that is named, or docs/reports of the checkout that
    this package runs from.
    """
    chosen = Path(word) if word else COMMITTED
    if next(chosen.glob(f"*/*/*/{FILE}"), None) is None:
        raise ConfigError(
            f"--check: {chosen}: expected committed reports, PAPER/ARTEFACT/SCALE-READING/{FILE}; found none;"
            " work in a checkout that has docs/reports, or name a folder: --check=DIR"
        )
    return chosen


@dataclass(frozen=True)
class Made:
    """What one artefact's folder holds."""

    record: Record
    data: str

    @staticmethod
    def read(folder: Path) -> Made:
        packed = folder / "data.csv.gz"  # where it is long
        data = gzip.decompress(packed.read_bytes()).decode() if packed.exists() else None
        record = json.loads((folder / FILE).read_text())
        return Made(record, (folder / "data.csv").read_text() if data is None else data)

    @property
    def numbers(self) -> dict[str, Any]:
        return {key: _without_words(self.record[key]) for key in COMPARED}


def tell(artefact: Artefact, committed: Path, own: Path) -> int:
    """A line for the artefact, and one for each number that differs. 0 if none does.

    committed, own: its folders SCALE-READING.
    """
    name = f"{artefact.id} {own.name}"
    try:
        was, now = Made.read(committed), Made.read(own)
        others = made.differing(was.record["made"], now.record["made"])
        spreads = {name for name, figure in artefact.figures.items() if figure.spread}
        lines, unknown = _by_intervals(was, now, spreads) if others else (_by_bits(was, now), 0)
    except FileNotFoundError as error:
        say(f"{name}: nothing to compare with: {error.filename} is not there")
        return 1
    except (OSError, EOFError, *BROKEN) as error:
        say(f"{name}: {committed}: cannot be read ({error!r})")
        return 1
    how = (
        f"by intervals, for it is another kind of machine ({'; '.join(others)})"
        if others
        else "bit for bit, for it is the same kind of machine"
    )
    count = f"{len(rows(was.data))} rows of data.csv, {len(was.record['printed'])} printed numbers"
    said = f"{len(lines)} numbers differ" if lines else "the same as committed"
    left = f"; {unknown} have no interval to compare by" if unknown else ""
    say(f"{name}: {said}, {how}; {count}, {len(was.record['claims'])} claims{left}")
    for line in lines:
        say(f"  {line}")
    return int(bool(lines))


def _by_bits(was: Made, now: Made) -> list[str]:
    return [*same_bits(was.data, now.data), *numbers(FILE, was.numbers, now.numbers)]


def _by_intervals(was: Made, now: Made, spreads: set[str]) -> tuple[list[str], int]:
    lines, unknown = same_intervals(was.data, now.data, spreads)
    more, left = apart(was.record, now.record)
    return [*lines, *(f"{FILE}: {line}" for line in more)], unknown + left


def _without_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_words(each) for key, each in value.items() if key not in WORDS}
    return [_without_words(each) for each in value] if isinstance(value, list) else value
