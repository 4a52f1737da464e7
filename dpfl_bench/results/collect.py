"""Run folders in; results.csv, the optimal-(E, T) table and the U-curves out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dpfl_bench import RESULTS_VERSION
from dpfl_bench.results import plots
from dpfl_bench.results.clean import clean
from dpfl_bench.settings import ConfigError

TUNING = (
    "Choosing the best point of a sweep on private data costs privacy that no run's eps includes; "
    "the table describes the trade-off, it is not a private way to tune."
)


@dataclass(frozen=True)
class Collected:
    table: pd.DataFrame
    runs: int
    unfinished: list[str]
    outdated: int
    folder: Path

    def json(self) -> str:
        told = {"table": clean(self.table.to_dict(orient="records")), "runs": self.runs, "unfinished": self.unfinished}
        return json.dumps({**told, "outdated": self.outdated, "note": TUNING}, indent=2) + "\n"

    def text(self) -> str:
        lines = [markdown(self.table), TUNING]
        if self.unfinished:
            lines.append(f"unfinished: {len(self.unfinished)} ({', '.join(self.unfinished[:5])})")
        if self.outdated:
            lines.append(f"left out, made by a version with other numbers: {self.outdated}")
        lines.append(f"{self.runs} runs; results.csv, table.md, table.csv and plots in {self.folder}")
        return "\n".join(lines) + "\n"


def collect(folders: Sequence[str], to: str | None) -> Collected:
    """Read every run below `folders`; a run seen twice counts once."""
    everywhere = [path for folder in folders for path in _runs(Path(folder))]
    found = {path.name: path for path in sorted(everywhere, key=lambda path: (path / "result.json").exists())}
    if not found:
        raise ConfigError(f"{' '.join(folders)}: expected folders with runs (with a status.json), found none; run dpfl-bench run first")
    results = {name: _read(path / "result.json") for name, path in found.items()}
    current = {n: r for n, r in results.items() if r and r.get("results_version", RESULTS_VERSION) == RESULTS_VERSION}
    rows = [_row(found[name], result) for name, result in current.items()]
    target = Path(to) if to else Path(folders[0]).parent
    target.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows)
    table = pd.DataFrame()
    if rows:
        frame.to_csv(target / "results.csv", index=False)
        table = optimal(frame)
        table.to_csv(target / "table.csv", index=False)
        (target / "table.md").write_text(f"{markdown(table)}\n{TUNING}\n")
        _plot(frame, target)
    unfinished = [name for name, result in results.items() if not result]
    return Collected(table, len(found), unfinished, len(found) - len(unfinished) - len(rows), target)


def optimal(frame: pd.DataFrame) -> pd.DataFrame:
    """Per data set, algorithm and eps: the run with the least mean test error, and its gap to the best one without privacy."""
    done = frame[frame["status"] == "done"].sort_values(["local_steps", "run_id"])  # of equals, the fewest local steps
    keys = ["dataset", "algo", "eps_target"]
    best = done.loc[done.groupby(keys)["test_error_mean"].idxmin()]
    columns = [*keys, "local_steps", "rounds", "clip", "lr", "test_error_mean", "test_error_std", "eps"]
    best = best[[c for c in columns if c in best]].sort_values(["dataset", "algo", "eps_target"], ascending=[True, True, False])
    free = best[best["eps_target"] == math.inf].set_index(["dataset", "algo"])["test_error_mean"]
    gaps = [
        row.test_error_mean - free[row.dataset, row.algo] if (row.dataset, row.algo) in free.index else math.nan
        for row in best.itertuples()
    ]
    return best.assign(gap=gaps).reset_index(drop=True)


def markdown(table: pd.DataFrame) -> str:
    """The optimal-(E, T) table."""
    lines = [
        "| data set | algorithm | eps | best local steps | rounds | test error | gap to no privacy |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table.itertuples():
        spread = f" ± {row.test_error_std:.4f}" if row.test_error_std == row.test_error_std and row.test_error_std > 0 else ""
        gap = "" if math.isnan(row.gap) else f"{row.gap:+.4f}"
        error = f"{row.test_error_mean:.4f}{spread}"
        lines.append(f"| {row.dataset} | {row.algo} | {row.eps_target:g} | {row.local_steps} | {row.rounds} | {error} | {gap} |")
    return "\n".join(lines) + "\n"


def _runs(folder: Path) -> Iterator[Path]:
    if (folder / "status.json").exists():
        yield folder
        return
    yield from sorted(path.parent for path in folder.glob("**/status.json"))


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text()) if path.exists() else None


def _row(path: Path, result: dict[str, Any]) -> dict[str, Any]:
    """The scalars of result.json and what the run's overrides set."""
    overrides = path / ".hydra" / "overrides.yaml"
    lines = overrides.read_text().splitlines() if overrides.exists() else []
    swept = dict(line.removeprefix("- ").lstrip("+").split("=", 1) for line in lines if "=" in line)
    scalars = {k: v for k, v in result.items() if not isinstance(v, dict | list)}
    return {**{k: v for k, v in swept.items() if k not in scalars}, **scalars}


def _plot(frame: pd.DataFrame, target: Path) -> None:
    """For each data set: the best run at each (algorithm, eps, local steps), over whatever else was swept."""
    done = frame[(frame["status"] == "done") & frame["test_error_mean"].notna()]
    for name, rows in done.groupby("dataset"):
        best = rows.loc[rows.groupby(["algo", "eps_target", "local_steps"])["test_error_mean"].idxmin()]
        if best["local_steps"].nunique() > 1:
            plots.u_curves(best, target / f"u_curves_{name}.png")
