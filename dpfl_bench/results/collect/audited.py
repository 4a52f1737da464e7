"""What audits found (audit.json, of `dpfl-bench audit`), run by run and row by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfl_bench.results.collect.points import Row
from dpfl_bench.results.folder import BROKEN, RunFolder

WORST_FIRST = ("violated", "inconclusive", "holds")


def of_run(folder: Path) -> dict[str, Any]:
    """The verdict and the eps that is proved; nothing where there was no audit."""
    try:
        found = RunFolder(folder).read("audit.json")
        return {} if found is None else {"audited": str(found["verdict"]), "proved_eps": found["lower"]}
    except (OSError, *BROKEN):
        return {}


def marked(rows: Sequence[Row], folders: Mapping[str, Path]) -> list[Row]:
    """The rows with the worst verdict over their runs, the largest eps that is proved of one, and
    how many were audited.
    """
    return [{**row, **_of_row([of_run(folders[run]) for run in row["run_ids"]])} for row in rows]


def of_runs(folders: Iterable[Path]) -> str:
    """The worst verdict over some runs, and how many of them were audited; nothing if none was."""
    runs = [of_run(folder) for folder in folders]
    verdicts = [run["audited"] for run in runs if run]
    return f"{min(verdicts, key=_rank)} ({len(verdicts)} of {len(runs)} runs)" if verdicts else ""


def _of_row(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    known = [run for run in runs if run]
    if not known:
        return {}
    worst = min((run["audited"] for run in known), key=_rank)
    proved = max(float(run["proved_eps"]) for run in known)
    of = "" if len(known) == len(runs) else f" ({len(known)} of {len(runs)} runs)"
    return {"audited": f"{worst}, eps >= {proved:.4g}{of}"}


def _rank(verdict: str) -> int:
    return WORST_FIRST.index(verdict) if verdict in WORST_FIRST else 0
