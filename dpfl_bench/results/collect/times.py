"""times.csv: when, where and how long each run was computed, and in which job of Slurm's. It stands
apart from results.csv, in which equal runs have equal rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dpfl_bench.machine.say import duration
from dpfl_bench.results.collect import columns
from dpfl_bench.results.collect.folders import Run
from dpfl_bench.results.folder import BROKEN, RunFolder

FILE = "times.csv"
COLUMNS = (
    *("run_id", "overrides", "training_seconds", "began", "ended", "attempt_seconds", "host"),
    *("slurm_job", "slurm_node", "slurm_cpus", "slurm_restarts", "slurm_job_seconds"),
)
Row = dict[str, Any]


def rows(runs: Sequence[Run]) -> list[Row]:
    """A row for each finished run, the longest first."""
    found = [_row(run) for run in runs if run.result]
    return sorted(found, key=lambda row: -row["training_seconds"])


def said(rows: Sequence[Row]) -> str | None:
    """One line on all of them."""
    if not rows:
        return None
    seconds = [row["training_seconds"] for row in rows]
    jobs = {row["slurm_job"]: row["slurm_job_seconds"] or 0 for row in rows[::-1] if row["slurm_job"]}
    parts = [f"{len(rows)} runs, {duration(sum(seconds))} of training"]
    parts.append(f"the longest {duration(seconds[0])} ({rows[0]['run_id']})")
    if jobs:
        longest = max(jobs, key=lambda job: float(jobs[job]))
        parts.append(f"{len(jobs)} jobs of Slurm's, the longest {duration(jobs[longest])} ({longest})")
    return f"times: {'; '.join(parts)}: {FILE}"


def _row(run: Run) -> Row:
    """Of the last attempt. What a folder does not tell is None."""
    result = run.result or {}
    env, status = _read(run, "env.json"), _read(run, "status.json")
    told = env.get("slurm")
    slurm: dict[str, Any] = told if isinstance(told, dict) else {}
    began, ended = env.get("began"), status.get("updated")
    whole = {
        "run_id": run.name,
        "overrides": " ".join(columns.overrides(run.path)),
        "training_seconds": _number(result.get("seconds")) or 0.0,
        "began": began,
        "ended": ended,
        "attempt_seconds": between(began, ended),
        "host": env.get("host"),
        "slurm_job_seconds": between(slurm.get("began"), ended),
        **{f"slurm_{key}": slurm.get(key) for key in ("job", "node", "cpus", "restarts")},
    }
    return {key: whole[key] for key in COLUMNS}


def _read(run: Run, name: str) -> dict[str, Any]:
    try:
        content = RunFolder(run.path).read(name)
    except (*BROKEN, OSError):
        return {}
    return content if isinstance(content, dict) else {}


def between(began: Any, ended: Any) -> float | None:
    """Seconds from one ISO time to another."""
    try:
        return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
    except (ValueError, TypeError):
        return None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
