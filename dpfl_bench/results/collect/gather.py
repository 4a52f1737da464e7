"""Run folders in; results.csv, the optimal-(E, T) table and the U-curves out, with what is
missing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results import escape
from dpfl_bench.results.collect import (
    audited,
    best,
    caveats,
    columns,
    folders,
    latex,
    pictures,
    points,
    tables,
    times,
)
from dpfl_bench.results.collect.best import Table
from dpfl_bench.results.collect.columns import Columns
from dpfl_bench.results.collect.edges import Caveat
from dpfl_bench.results.collect.eps_of_all import with_eps_of_all
from dpfl_bench.results.collect.folders import OUTDATED, Run, Survey
from dpfl_bench.results.collect.mixed import WHAT, Clash, clashes, marked, origin, refuse
from dpfl_bench.results.collect.points import Row
from dpfl_bench.results.collect.tables import TUNING
from dpfl_bench.results.collect.tuning import Tuning, tuned
from dpfl_bench.results.collect.view import View, chosen, valued
from dpfl_bench.results.folder import MEASURES, RunFolder
from dpfl_bench.results.json_numbers import clean


@dataclass(frozen=True)
class Collected:
    table: Table
    notes: list[str]  # on every table
    warnings: list[Caveat]  # on this one
    survey: Survey
    folder: Path
    times: list[times.Row] = field(default_factory=list)

    @property
    def runs(self) -> int:
        return len(self.survey.runs)

    @property
    def unfinished(self) -> list[str]:
        return [run.name for run in self.survey.runs if run.word]

    @property
    def states(self) -> Counter[str]:
        return Counter(
            run.result["status"] if run.result else run.word for run in self.survey.runs if not run.unusable
        )

    @property
    def left_out(self) -> Counter[str]:
        return Counter(run.unusable for run in self.survey.runs if run.unusable)

    def json(self) -> str:
        report = {
            "table": clean(self.table.rows),
            "runs": self.runs,
            "unfinished": self.unfinished,
            "outdated": self.left_out[OUTDATED],
            "note": TUNING,
            "notes": self.notes,
            "warnings": [caveat.json() for caveat in self.warnings],
            "states": self.states,
            "left_out": self.left_out,
            "times": clean(self.times),
            "missing": sum(count for _, count in self.survey.missing),
        }
        return json.dumps(report, indent=2) + "\n"

    @property
    def said(self) -> list[str]:
        """What stands under the table."""
        return [*self.notes, *(caveat.says for caveat in self.warnings)]

    def text(self) -> str:
        lines = [tables.markdown(self.table), *map(escape.plain, [*self.said, *self._gaps()])]
        lines += map(escape.plain, filter(None, [times.said(self.times)]))
        files = (
            "results.csv, times.csv, table.md, table.csv, table.tex, figures.tex and plots in "
            if any(run.result for run in self.survey.runs)
            else ""
        )
        lines.append(
            f"{self.runs} runs;"
            f" {f'{files}{self.folder}' if files else 'none is finished, so nothing is written'}"
        )
        return "\n".join(lines) + "\n"

    def _gaps(self) -> list[str]:
        """What is missing, and why."""
        lines = []
        if self.unfinished:
            words = Counter(run.word for run in self.survey.runs if run.word)
            names = ", ".join(self.unfinished[:5]) + (", ..." if len(self.unfinished) > 5 else "")
            lines.append(
                f"unfinished: {len(self.unfinished)}"
                f" ({', '.join(f'{n} {word}' for word, n in words.items())}): {names}"
            )
        lines += [f"left out: {count} ({why})" for why, count in self.left_out.items()]
        for sweep, count in self.survey.missing:
            lines.append(
                f"missing: {count} of {len(sweep.runs)} points of {sweep.path} have no run folder; to finish:"
                f" {sweep.command}"
            )
        if self.survey.broken:
            lines.append(f"left out: {self.survey.broken} folders with a sweep.json that cannot be read")
        return lines


def collect(
    given: Sequence[str],
    to: str | None,
    tuning: Tuning | None = None,
    by: str = MEASURES[0],
    mixed: bool = False,
    view: View | None = None,
) -> Collected:
    """Read every run below the folders `given`; a run seen twice counts once. by: what the best
    point is least in (a score: greatest), if `view` does not say it.

    mixed: take runs into one table whose code or data differ, and say so.
    """
    view = view or View(by)
    by = view.by
    survey = folders.look(given)
    if not survey.runs and not survey.missing:
        raise ConfigError(
            f"{' '.join(given)}: expected folders with runs (with a status.json), found none; run dpfl-bench"
            " run first"
        )
    finished = sorted((run for run in survey.runs if run.result), key=lambda run: run.name)
    if not finished:
        return Collected(Table([], []), [TUNING], [], survey, _target(Path(given[0]), to))
    finished = chosen(finished, view.where)
    swept = columns.columns([run.path for run in finished])
    apart = _clashes(finished, swept, survey)
    if not mixed:
        refuse(apart)
    rows = valued(_rows(finished, swept), finished, view)
    good, bad = points.pooled(points.compared(rows, swept.differing, view.apart), by)
    ended, bad = caveats.ended(finished, bad, by), best.placed(bad, good)
    table = replace(best.optimal(good, swept.differing, by), last=view.last)
    where = {run.name: run.path for run in finished}
    table, about = _completed(table, good, bad, where, apart)
    notes, warnings = [TUNING], [*caveats.of_runs(finished, survey, apart), *ended, *about]
    if tuning:
        rows_with, also = tuned(table.rows, [*good, *bad], where, tuning)
        table, notes = replace(table, rows=rows_with), [*notes, *also]
    where_to = _target(Path(given[0]), to)
    collected = Collected(table, notes, warnings, survey, where_to, times.rows(finished))
    _write(collected, rows)
    drawn = pictures.curves(good, table, collected.folder, apart, view.width)
    if view.drawn:
        shown = points.compared(rows, swept.differing, pooled=view.filled().fields)
        drawn += pictures.views(shown, finished, view, swept.differing, collected.folder)
    RunFolder(collected.folder).write("figures.tex", latex.figures(drawn))
    return collected


def rows(given: Sequence[str]) -> list[Row]:
    """A row for each finished run below the folders, as results.csv has them. Writes nothing."""
    finished = sorted((run for run in folders.look(given).runs if run.result), key=lambda run: run.name)
    return _rows(finished, columns.columns([run.path for run in finished])) if finished else []


def _completed(
    table: Table, points: Sequence[Row], bad: Sequence[Row], where: Mapping[str, Path], apart: Sequence[Clash]
) -> tuple[Table, list[Caveat]]:
    """With the eps of all models and what is mixed in each row; and what else is to be said of
    it.
    """
    rows, silent = with_eps_of_all(table.rows, points, where)
    rows = audited.marked(marked(rows, points, apart), where)
    said = [*caveats.of_table(rows, points, bad, where), *caveats.of_all(silent, rows)]
    return replace(table, rows=rows), said


def _target(first: Path, to: str | None) -> Path:
    """Where the files go: into a sweep's own folder, else beside what was given."""
    target = Path(to) if to else first if (first / "sweep.json").exists() else first.parent
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{target}: expected a folder that can be written, or its name ({error.strerror}); say another by"
            " --to DIR"
        ) from None
    return target


def _clashes(finished: Sequence[Run], swept: Columns, survey: Survey) -> list[Clash]:
    """Also of folders that were left for another of the same run."""
    left = [other for _, other in survey.twice]
    return clashes([*finished, *left], [*swept.sources, *columns.columns([run.path for run in left]).sources])


def _rows(runs: Sequence[Run], settings: Columns) -> list[Row]:
    """A row for each run: what was swept, then the scalars of result.json, then what it was
    computed by.

    Wall times are left out: equal runs give equal rows. `eps` is what a run really has,
    `eps_target` what it was given.
    """
    rows = []
    for run, given in zip(runs, settings.rows, strict=True):
        result = run.result or {}
        scalars = {
            key: value
            for key, value in result.items()
            if not isinstance(value, dict | list) and key != "seconds"
        }
        first = {"run_id": result["run_id"], "status": result["status"], "seeds": result.get("seeds")}
        swept = {
            key: value for key, value in given.items() if key.removesuffix(".name") not in {*scalars, "eps"}
        }
        hashes = {f"origin.{part}": digest for part in WHAT if (digest := origin(run, part))}
        rows.append({**first, **swept, **scalars, **hashes, **audited.of_run(run.path)})
    rows.sort(
        key=lambda row: (row["dataset"], row["algo"], -row["eps_target"], row["local_steps"], row["run_id"])
    )
    return rows


def _write(collected: Collected, rows: Sequence[Row]) -> None:
    folder = RunFolder(collected.folder)
    folder.write(
        "results.csv", tables.csv_text(rows, list(dict.fromkeys(key for row in rows for key in row)))
    )
    folder.write(times.FILE, tables.csv_text(collected.times, times.COLUMNS))
    folder.write(
        "table.csv",
        tables.csv_text(
            collected.table.rows, list(dict.fromkeys(key for row in collected.table.rows for key in row))
        ),
    )
    folder.write(
        "table.md",
        "\n\n".join([tables.markdown(collected.table).rstrip(), *map(escape.markdown, collected.said)])
        + "\n",
    )
    folder.write("table.tex", latex.table(collected.table, collected.said))
