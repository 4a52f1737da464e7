"""What a run measured: any column of metrics.csv, at its end."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.folder import BROKEN, RunFolder

AT = ("seed", "round", "steps")  # columns that say where a row stands, and measure nothing
OF_TRAINING = ("train_loss", "suboptimality")  # of every training record
NAN = math.nan


class Blank(ConfigError):
    """A column that a run has left without values."""


@dataclass(frozen=True)
class Last:
    """Which rounds at the end count: the last `rounds`, or the last `share` of all."""

    rounds: int | None = 1
    share: float | None = None

    @staticmethod
    def parse(text: int | str) -> Last:
        """Of 5, "5" or "10%"."""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", str(text))
        number = float(match[1]) if match else 0.0
        if match and match[2] and 0 < number <= 100:
            return Last(None, number / 100)
        if match and not match[2] and number >= 1 and number == int(number):
            return Last(int(number))
        raise ConfigError(f"last={text}: expected a number of rounds like 5, or a share of them like 10%")

    def of(self, rounds: int) -> int:
        """How many rounds of so many."""
        if self.share is not None:
            return max(1, round(self.share * rounds))
        assert self.rounds is not None
        return self.rounds

    def __str__(self) -> str:
        return str(self.rounds) if self.share is None else f"{100 * self.share:g}%"


def by_seed(folder: Path, column: str, last: int | str = 1) -> dict[int, float]:
    """The value of a run at its end, seed by seed: the mean of a column of metrics.csv over the
    last rounds.

    last: 5 for the last five rounds, "10%" for the last tenth of them. Every one of these rounds
    has to be evaluated. A seed that diverged, or that was not played after one that did, is NaN.
    """
    window = Last.parse(last)
    values = _by_seed(Path(folder), column)
    played = _played(Path(folder), values)
    return {
        seed: _at_end(Path(folder), column, values[seed], window) if complete else NAN
        for seed, complete in played.items()
    }


def columns(folder: Path) -> list[str]:
    """The columns of a run that have a value somewhere, beside those that say where."""
    header, rows = _read(Path(folder))
    return [name for name in header if name not in AT and any(row.get(name) for row in rows)]


def _at_end(folder: Path, column: str, values: Mapping[int, float], window: Last) -> float:
    """values: round -> value, of one seed that was played to its end."""
    wanted = at_end(values, window, folder.name)
    if any(math.isnan(values[number]) for number in wanted):
        raise _blank(folder, column)
    return math.fsum(values[number] for number in wanted) / len(wanted)


def at_end(evaluated: Collection[int], window: Last, run: str) -> range:
    """The rounds at the end that count; ConfigError where one of them was not evaluated."""
    end = max(evaluated)
    count = window.of(end)
    if count > end:
        raise ConfigError(f"last={window}: expected at most the {end} rounds of run {run}")
    wanted = range(end - count + 1, end + 1)
    there = [number for number in wanted if number in evaluated]
    if len(there) < count:
        raise ConfigError(
            f"last={window}: run {run} evaluated {len(there)} of its last {count} rounds; run it"
            f" with eval_last={count} (or eval_every=1), or say --last 1"
        )
    return wanted


def _by_seed(folder: Path, column: str) -> dict[int, dict[int, float]]:
    """Seed -> round -> value, in order of the file; NaN where the cell is blank."""
    header, rows = _read(folder)
    if column not in header or column in AT[:2]:
        known = ", ".join(name for name in header if name not in AT[:2])
        raise ConfigError(f"{column}: expected a column of metrics.csv of run {folder.name}: {known}")
    values: dict[int, dict[int, float]] = {}
    for row in rows:
        cell = row.get(column)
        values.setdefault(int(row["seed"]), {})[int(row["round"])] = float(cell) if cell else NAN
    if all(math.isnan(value) for of_seed in values.values() for value in of_seed.values()):
        raise _blank(folder, column)
    return values


def _blank(folder: Path, column: str) -> Blank:
    known = ", ".join(columns(folder))
    why = " (evaluate=all without train_subset fills it)" if column in OF_TRAINING else ""
    return Blank(f"{column}: run {folder.name} left this column blank{why}; it measured {known}")


def _read(folder: Path) -> tuple[list[str], list[dict[str, str]]]:
    file = RunFolder(folder).metrics.path
    try:
        with file.open(newline="") as lines:
            reader = csv.DictReader(lines)
            rows = list(reader)
            return list(reader.fieldnames or []), rows
    except (OSError, ValueError):
        raise ConfigError(f"{file}: expected the rows of a run, it cannot be read") from None


def _played(folder: Path, seeds: Sequence[int] | Mapping[int, Any]) -> dict[int, bool]:
    """Every seed of the run, and whether it was played to its end."""
    try:
        result = RunFolder(folder).read("result.json") or {}
        broken = (result.get("diverged") or {}).get("seed")
        asked = [int(seed) for seed in result.get("seeds") or seeds]
    except (OSError, *BROKEN):
        raise ConfigError(f"{folder / 'result.json'}: expected a run's result, it cannot be read") from None
    if not result:
        raise ConfigError(f"{folder}: expected a run that has ended; run it to its end first")
    return {seed: seed in seeds and (broken is None or seed < broken) for seed in asked}
