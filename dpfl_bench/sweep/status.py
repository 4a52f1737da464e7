"""`dpfl-bench status`: what became of the runs of a folder, and the commands that finish the
rest.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results import sweeps
from dpfl_bench.results.folder import BROKEN, SET_ASIDE, RunFolder, RunState, plain_text
from dpfl_bench.results.standing import Standing
from dpfl_bench.results.sweeps import Sweep

WORDS = ("done", "diverged", "running", "failed", "interrupted", "died", "unreadable", "missing")
MEANING = {
    "running": "running, its process lives",
    "died": "its process ended without a word; goes on from its checkpoint",
    "interrupted": "goes on from its checkpoint",
    "missing": "not begun",
}
SHOWN = 20  # runs of each kind


def survey(folder: str) -> dict[str, Any]:
    """Every run of outputs, outputs/runs, one sweep's folder, or one run's."""
    path = Path(folder)
    asked, broken = sweeps.below(path)
    swept = {run: overrides for sweep in asked for run, overrides in sweep.runs.items()}
    alone = [] if (path / "sweep.json").exists() else [run for run in _runs(path) if run not in swept]
    if not swept and not alone:
        raise ConfigError(
            f"{folder}: expected outputs, outputs/runs, or the folder of a sweep or run, found no run; run"
            " dpfl-bench run first"
        )
    overrides = {**swept, **{run: _overrides(run) for run in alone}}
    states = {run: RunFolder(run).state() for run in overrides}
    count = Counter(state.word for state in states.values())
    return {
        "folder": folder,
        "counts": {word: count[word] for word in WORDS},
        "unreadable_sweeps": broken,
        "finish": [
            *_again(asked, states),
            *dict.fromkeys(_run(run, overrides[run]) for run in alone if _unfinished(states[run])),
        ],
        "runs": [
            {
                "run_id": run.name,
                "status": state.word,
                "error": state.error,
                "progress": _standing(run) if state.word == "running" else None,
                "overrides": list(overrides[run]),
                "folder": str(run),
            }
            for run, state in states.items()
        ],
    }


def text(survey: dict[str, Any]) -> str:
    """For a person: the counts, what is not done and why, and what to do."""
    total = len(survey["runs"])
    lines = [
        f"{total} runs: " + ", ".join(f"{count} {word}" for word, count in survey["counts"].items() if count)
    ]
    for word in WORDS[1:]:
        runs = [run for run in survey["runs"] if run["status"] == word]
        for run in runs[:SHOWN]:
            why = run["error"].partition("\n")[0] if run["error"] else _told(run) or MEANING[word]
            lines.append(f"  {word:11} {run['run_id']}  {' '.join(run['overrides'])}: {why}")
        if len(runs) > SHOWN:
            lines.append(f"  {word:11} and {len(runs) - SHOWN} more (--json lists all)")
    if survey["unreadable_sweeps"]:
        lines.append(f"left out: {survey['unreadable_sweeps']} folders with a sweep.json that cannot be read")
    lines += (
        ["to finish:", *(f"  {command}" for command in survey["finish"][:SHOWN])] if survey["finish"] else []
    )
    return "\n".join(lines) + "\n"


def _standing(run: Path) -> dict[str, Any] | None:
    """Where a running run stands, as its process last told."""
    standing = Standing.of(RunFolder(run))
    return standing.json() if standing else None


def _told(run: dict[str, Any]) -> str | None:
    return str(Standing(**run["progress"])) if run["progress"] else None


def again(sweep: Sweep) -> str:
    """The sweep's command, from here."""
    return (
        sweep.command if Path(sweep.cwd) == Path.cwd() else f"cd {shlex.quote(sweep.cwd)} && {sweep.command}"
    )


def _again(asked: Iterable[Sweep], states: dict[Path, RunState]) -> list[str]:
    return [again(sweep) for sweep in asked if any(_unfinished(states[run]) for run in sweep.runs)]


def _run(run: Path, overrides: Sequence[str]) -> str:
    """The command that it was last begun by, -cd and all, where that is known."""
    try:
        program, *arguments = shlex.split((RunFolder(run).read("env.json") or {})["command"])
    except BROKEN:
        program, arguments = "", []
    return shlex.join(
        ["dpfl-bench", *(arguments if Path(program).name == "dpfl-bench" else ["run", *overrides])]
    )


def _unfinished(state: RunState) -> bool:
    return not state.finished and state.word != "running"


def _runs(path: Path) -> list[Path]:
    if (path / "status.json").exists():
        return [path]
    runs = {file.parent for file in (*path.glob("*/status.json"), *path.glob("runs/*/status.json"))}
    return sorted(run for run in runs if not SET_ASIDE.search(run.name))


def _overrides(run: Path) -> list[str]:
    try:
        lines = plain_text(run / ".hydra" / "overrides.yaml").splitlines()
    except (OSError, ValueError):
        return []
    return [line.removeprefix("- ") for line in lines]
