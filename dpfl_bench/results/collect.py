"""Run folders in; results.csv, the optimal-(E, T) table and the U-curves out, with what is missing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpfl_bench.results import best, columns, folders, plots, tables
from dpfl_bench.results.best import Row, Table
from dpfl_bench.results.clean import clean
from dpfl_bench.results.folder import MEASURES, RunFolder
from dpfl_bench.results.folders import OUTDATED, Found, Run
from dpfl_bench.results.tables import TUNING
from dpfl_bench.results.tuning import Tuning, tuned
from dpfl_bench.settings import ConfigError


@dataclass(frozen=True)
class Collected:
    table: Table
    notes: list[str]  # on the table
    found: Found
    folder: Path

    @property
    def runs(self) -> int:
        return len(self.found.runs)

    @property
    def unfinished(self) -> list[str]:
        return [run.name for run in self.found.runs if run.word]

    @property
    def states(self) -> Counter[str]:
        return Counter(run.result["status"] if run.result else run.word for run in self.found.runs if not run.unusable)

    @property
    def left_out(self) -> Counter[str]:
        return Counter(run.unusable for run in self.found.runs if run.unusable)

    def json(self) -> str:
        told = {
            "table": clean(self.table.rows),
            "runs": self.runs,
            "unfinished": self.unfinished,
            "outdated": self.left_out[OUTDATED],
            "note": TUNING,
            "notes": self.notes,
            "states": self.states,
            "left_out": self.left_out,
            "missing": sum(count for _, count in self.found.missing),
        }
        return json.dumps(told, indent=2) + "\n"

    def text(self) -> str:
        lines = [tables.markdown(self.table), *self.notes, *self._gaps()]
        files = "results.csv, table.md, table.csv, table.tex and plots in " if any(run.result for run in self.found.runs) else ""
        lines.append(f"{self.runs} runs; {f'{files}{self.folder}' if files else 'none is finished, so nothing is written'}")
        return "\n".join(lines) + "\n"

    def _gaps(self) -> list[str]:
        """What is missing, and why."""
        lines = []
        if self.unfinished:
            words = Counter(run.word for run in self.found.runs if run.word)
            names = ", ".join(self.unfinished[:5]) + (", ..." if len(self.unfinished) > 5 else "")
            lines.append(f"unfinished: {len(self.unfinished)} ({', '.join(f'{n} {word}' for word, n in words.items())}): {names}")
        lines += [f"left out: {count} ({why})" for why, count in self.left_out.items()]
        for sweep, count in self.found.missing:
            lines.append(f"missing: {count} of {len(sweep.runs)} points of {sweep.path} have no run folder; to finish: {sweep.command}")
        if self.found.broken:
            lines.append(f"left out: {self.found.broken} folders with a sweep.json that cannot be read")
        return lines


def collect(given: Sequence[str], to: str | None, tuning: Tuning | None = None, by: str = MEASURES[0]) -> Collected:
    """Read every run below the folders `given`; a run seen twice counts once. by: what the best point is least in."""
    found = folders.look(given)
    if not found.runs and not found.missing:
        raise ConfigError(f"{' '.join(given)}: expected folders with runs (with a status.json), found none; run dpfl-bench run first")
    target = _target(Path(given[0]), to)
    finished = sorted((run for run in found.runs if run.result), key=lambda run: run.name)
    if not finished:
        return Collected(Table([], []), [TUNING], found, target)
    rows, settings, differing = _rows(finished)
    points, bad = best.pooled(best.compared(rows, differing), by)
    table = best.optimal(points, settings, by)
    notes = [TUNING, *filter(None, [best.uneven(points), best.shared(points), _diverged(finished, bad)])]
    if tuning:
        rows_with, more = tuned(table.rows, [*points, *bad], {run.name: run.path for run in finished}, tuning)
        table, notes = Table(rows_with, table.swept, by), [*notes, *more]
    made = Collected(table, notes, found, target)
    _write(made, rows)
    _plot(points, table.swept, target, by)
    return made


def _diverged(finished: Sequence[Run], bad: Sequence[Row]) -> str:
    count = sum(run.result is not None and run.result["status"] == "diverged" for run in finished)
    return (
        f"Diverged: {count} of {len(finished)} runs; the {len(bad)} points they belong to have no error and cannot be best." if bad else ""
    )


def _target(first: Path, to: str | None) -> Path:
    """Where the files go: into a sweep's own folder, else beside what was given."""
    target = Path(to) if to else first if (first / "sweep.json").exists() else first.parent
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{target}: expected a folder that can be written, or its name ({error.strerror}); say another by --to DIR"
        ) from None
    return target


def _rows(runs: Sequence[Run]) -> tuple[list[Row], list[str], list[str]]:
    """A row for each run: what was swept, then the scalars of result.json; which settings may be swept, and in which runs differ.

    Wall times are left out: equal runs give equal rows. `eps` is what a run really has, `eps_target` what it was given.
    """
    told = columns.columns([run.path for run in runs])
    rows = []
    for run, given in zip(runs, told.rows, strict=True):
        result = run.result or {}
        scalars = {key: value for key, value in result.items() if not isinstance(value, dict | list) and key != "seconds"}
        first = {"run_id": result["run_id"], "status": result["status"], "seeds": result.get("seeds")}
        swept = {key: value for key, value in given.items() if key.removesuffix(".name") not in {*scalars, "eps"}}
        rows.append({**first, **swept, **scalars})
    rows.sort(key=lambda row: (row["dataset"], row["algo"], -row["eps_target"], row["local_steps"], row["run_id"]))
    settings = [key for key in told.differing if key in told.named or "." not in key]
    return rows, settings, told.differing


def _write(made: Collected, rows: Sequence[Row]) -> None:
    folder = RunFolder(made.folder)
    folder.write("results.csv", tables.csv_text(rows, list(dict.fromkeys(key for row in rows for key in row))))
    folder.write("table.csv", tables.csv_text(made.table.rows, list(dict.fromkeys(key for row in made.table.rows for key in row))))
    folder.write("table.md", "\n".join([tables.markdown(made.table), *made.notes]) + "\n")
    folder.write("table.tex", tables.latex(made.table, made.notes))


def _plot(points: Sequence[Row], swept: Sequence[str], target: Path, by: str) -> None:
    """For each problem and guarantee: the best point at each (algorithm, budget, local steps), over whatever else was swept."""
    pictures: dict[str, list[tuple[str, list[Row]]]] = {}
    over = f"\nat each number of local steps the best of {', '.join(swept)}" if swept else ""
    for dataset, setting in sorted({(point["dataset"], point["setting"]) for point in points}):
        here = [point for point in points if (point["dataset"], point["setting"]) == (dataset, setting)]
        for guarantee in sorted({point["guarantee"] for point in here} - {""}) or [""]:
            members = [point for point in here if point["guarantee"] in ("", guarantee)]
            if len({point["local_steps"] for point in members}) > 1:
                title = f"{dataset}: {setting}\n{guarantee or 'no privacy'}{over}"
                pictures.setdefault(dataset.partition(" (")[0], []).append((title, members))
    for dataset, found in pictures.items():
        for number, (title, members) in enumerate(found, start=1):
            name = re.sub(r"[^\w.-]", "_", dataset) + (f"_{number}" if len(found) > 1 else "")
            plots.u_curves(best.best_by_steps(members, by), target / f"u_curves_{name}.png", title, by)
