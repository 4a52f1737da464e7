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
    """Per setting, algorithm and guarantee: the run with the least mean test error, and its gap to the best one without privacy."""
    done = frame[frame["status"] == "done"].sort_values(["local_steps", "run_id"])  # of equals, the fewest local steps
    keys = ["dataset", "setting", "algo", "guarantee", "budget"]
    best = done.loc[done.groupby(keys)["test_error_mean"].idxmin()]
    columns = [*keys, "eps_target", "local_steps", "rounds", "clip", "lr", "test_error_mean", "test_error_std", "eps"]
    order = {"by": keys, "ascending": [True, True, True, True, False]}
    best = best[[c for c in columns if c in best]].sort_values(**order)
    free = best[best["budget"] == math.inf].set_index(["dataset", "setting", "algo"])["test_error_mean"]
    named = [(row.dataset, row.setting, row.algo) for row in best.itertuples()]
    gaps = [error - free[name] if name in free.index else math.nan for name, error in zip(named, best["test_error_mean"], strict=True)]
    return best.assign(gap=gaps).reset_index(drop=True)


def markdown(table: pd.DataFrame) -> str:
    """The optimal-(E, T) table; settings and guarantees are told where they differ."""
    told = [c for c in ("setting", "guarantee") if len(table) and table.loc[table[c] != "", c].nunique() > 1]
    head = ["data set", "algorithm", *told, "eps", "best local steps", "rounds", "test error", "gap to no privacy"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in table.itertuples():
        spread = f" ± {row.test_error_std:.4f}" if row.test_error_std == row.test_error_std and row.test_error_std > 0 else ""
        gap = "" if math.isnan(row.gap) else f"{row.gap:+.4f}"
        differing = [str(getattr(row, c)) for c in told]
        cells = [
            row.dataset,
            row.algo,
            *differing,
            f"{row.budget:.4g}",
            row.local_steps,
            row.rounds,
            f"{row.test_error_mean:.4f}{spread}",
            gap,
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
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
    return {**{k: v for k, v in swept.items() if k not in scalars}, **scalars, **_compared(result)}


def _compared(result: dict[str, Any]) -> dict[str, Any]:
    """What may stand in one row or line: the same problem, the same guarantee, the same eps.

    `budget` is the eps that was asked for where the noise was solved for it, and the eps that the run really has elsewhere.
    """
    asked, real = result["eps_target"], result.get("eps", result["eps_target"])
    private = real != math.inf
    words = [result.get(key) for key in ("unit", "trust", "neighbours", "observer")]
    words.append(f"{result['colluding']} colluding" if result.get("colluding") else None)
    words.append(f"delta {result.get('delta')}")
    words.append("PrivUnit" if result.get("mechanism") == "privunit" else None)
    words.append("drifting controls" if result.get("memory") and result.get("trust") == "central" else None)
    words.append("the paper's own accountant, no guarantee" if result.get("accountant") == "paper" else None)
    words.append("not fully accounted" if result.get("fully_accounted") is False else None)
    guarantee = ", ".join(str(w) for w in words if w) if private else ""
    setting = ", ".join(f"{key} {result[key]}" for key in ("model", "clients", "sampled_clients") if key in result)
    algo = f"{result['algo']} (naive step)" if result.get("naive") else result["algo"]
    return {"algo": algo, "budget": asked if 0.99 * asked <= real <= asked else real, "guarantee": guarantee, "setting": setting}


def _plot(frame: pd.DataFrame, target: Path) -> None:
    """For each problem and guarantee: the best run at each (algorithm, budget, local steps), over whatever else was swept."""
    done = frame[(frame["status"] == "done") & frame["test_error_mean"].notna()]
    for name, problem in done.groupby("dataset"):
        kinds = [(s, g) for s, rows in problem.groupby("setting") for g in [g for g in rows["guarantee"].unique() if g] or [""]]
        for number, (setting, guarantee) in enumerate(kinds, start=1):
            rows = problem[(problem["setting"] == setting) & problem["guarantee"].isin(["", guarantee])]
            best = rows.loc[rows.groupby(["algo", "budget", "local_steps"])["test_error_mean"].idxmin()]
            if best["local_steps"].nunique() > 1:
                suffix = f"_{number}" if len(kinds) > 1 else ""
                plots.u_curves(best, target / f"u_curves_{name}{suffix}.png", f"{setting}; {guarantee or 'no privacy'}")
