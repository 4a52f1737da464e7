"""The run folders below a folder, and what each of them tells. Nothing in them can make this fail:
what cannot be read is told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl_bench import RESULTS_VERSION
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results import sweeps
from dpfl_bench.results.folder import BROKEN, FINISHED, MEASURES, SET_ASIDE, RunFolder
from dpfl_bench.results.sweeps import Sweep

OUTDATED = "made by a version with other numbers"
MARKS = {"status.json", "result.json", "metrics.csv", ".hydra"}  # one of them makes a run folder
NUMBER = (int, float)
NEEDED: dict[str, Any] = {
    "run_id": str,
    "status": str,
    "algo": str,
    "dataset": str,
    "eps_target": NUMBER,
    "local_steps": int,
    "rounds": int,
}
NUMBERS = (
    "eps",
    "delta",
    "lr",
    "total_steps",
    *(f"{by}_{of}" for by in MEASURES for of in ("mean", "std")),
)  # or null
UNREADABLE = (OSError, *BROKEN)


@dataclass(frozen=True)
class Run:
    """One of `result`, `word` and `unusable`."""

    path: Path
    result: dict[str, Any] | None = None  # of a run that ended by itself
    word: str = ""  # what became of one that has not
    unusable: str = ""  # why it is left out

    @property
    def name(self) -> str:
        return str(self.result["run_id"]) if self.result else self.path.name


@dataclass(frozen=True)
class Survey:
    runs: list[Run]  # each run id once
    twice: list[tuple[Run, Run]]  # (taken, left) finished folders of one run that tell different results
    missing: list[tuple[Sweep, int]]  # sweeps of which some points have no run folder, and how many
    broken: int  # records of sweeps that cannot be read


def look(folders: Iterable[str]) -> Survey:
    """Every run below the folders (of a sweep's folder: the sweep's). Seen twice, a run counts
    once, as the finished one.
    """
    paths: dict[Path, None] = {}
    known: dict[Path, Sweep] = {}
    broken = 0
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise ConfigError(
                f"{folder}: expected folders with runs, there is nothing of that name; run dpfl-bench run"
                " first"
            )
        read_ones, unread = sweeps.below(folder)
        read_sweeps = {sweep.path: sweep for sweep in read_ones}
        broken += unread
        known |= read_sweeps
        paths |= dict.fromkeys(read_sweeps[folder].runs if folder in read_sweeps else run_folders(folder))
    runs: dict[str, Run] = {}
    twice: list[tuple[Run, Run]] = []
    for run in sorted((read(path) for path in paths if path.is_dir()), key=_said):
        other = runs.get(run.name)
        if other and other.result and _result(other) != _result(run):
            twice.append((run, other))
        runs[run.name] = run
    missing = [(sweep, sum(path.name not in runs for path in sweep.runs)) for sweep in known.values()]
    return Survey(list(runs.values()), twice, [(sweep, count) for sweep, count in missing if count], broken)


def run_folders(folder: Path) -> Iterator[Path]:
    """In order; nothing inside a run folder is looked at."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name in MARKS for entry in entries):
        yield folder
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False) and not SET_ASIDE.search(entry.name):
            yield from run_folders(Path(entry.path))


def _result(run: Run) -> dict[str, Any]:
    """What a result says beside wall time and how the machine was used."""
    return {key: value for key, value in (run.result or {}).items() if key not in ("seconds", "engine")}


def _said(run: Run) -> tuple[bool, bool, bool, str]:
    """Of two folders of one run, the one that says more comes last."""
    return run.result is not None, run.word == "running", bool(run.word), str(run.path)


def read(path: Path) -> Run:
    try:
        result = RunFolder(path).read("result.json")
    except UNREADABLE:
        return Run(path, unusable="result.json cannot be read")
    if result is None:
        return _unfinished(path)
    if not _is_ours(result):
        return Run(path, unusable="result.json is not one of this program's")
    if result.get("results_version") != RESULTS_VERSION:  # the first versions told none
        return Run(path, unusable=OUTDATED)
    return Run(path, result) if result["status"] in FINISHED else _unfinished(path)


def _is_ours(result: Any) -> bool:
    if not isinstance(result, dict):
        return False
    needed = all(isinstance(result.get(key), kind) for key, kind in NEEDED.items())
    numbers = all(result.get(key) is None or isinstance(result[key], NUMBER) for key in NUMBERS)
    told = [result[key] for key in (*NEEDED, *NUMBERS) if isinstance(result.get(key), int)]
    if any(abs(number) > 10**300 for number in told):  # beyond every float
        return False
    compared = (result.get("eps_target"), result.get("eps"), result.get("delta"))
    if any(number != number for number in compared):  # NaN is in no order, so it is in no row
        return False
    seeds = result.get("seeds", [])
    return needed and numbers and isinstance(seeds, list) and all(isinstance(seed, int) for seed in seeds)


def _unfinished(path: Path) -> Run:
    try:
        word = RunFolder(path).state().word
    except UNREADABLE:
        word = "unreadable"
    return Run(path, unusable="status.json cannot be read") if word == "unreadable" else Run(path, word=word)
