"""The optimal-(E, T) table for people, papers and machines: Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpfl_bench.results import escape, text_table
from dpfl_bench.results.collect.best import Table
from dpfl_bench.results.collect.points import Row

TUNING = (
    "Choosing the best point of a sweep on private data costs privacy that no run's eps includes; "
    "the table describes the trade-off, it is not a private way to tune."
)


@dataclass(frozen=True)
class Column:
    head: str
    cells: list[str]
    right: bool = True  # aligned, as numbers are


def laid_out(table: Table) -> list[Column]:
    """For a person; settings and guarantees are told where they differ."""
    rows = table.rows
    columns = [
        Column("data set", [row["dataset"] for row in rows], False),
        Column("algorithm", [row["algo"] for row in rows], False),
    ]
    for key in ("setting", "apart", "guarantee"):
        if len({row[key] for row in rows if row.get(key)}) > 1:
            columns.append(Column(key, [row[key] for row in rows], False))
    if any(row.get("nominal_eps") is not None for row in rows):
        columns.append(Column("nominal eps", [_nominal(row) for row in rows]))
    columns.append(Column("eps", [_real(row) for row in rows]))
    if any(row["n_seeds"] > 1 and row["budget"] < math.inf for row in rows):
        columns.append(Column("eps of all n", [_eps_of_all(row) for row in rows]))
    columns.append(Column("best local steps", [_cell(row["local_steps"]) for row in rows]))
    columns.append(Column("as good", [_ranges(row["as_good"], row["tried"]) for row in rows]))
    heads = {"rounds": "rounds", "total_steps": "total steps"}
    columns += [Column(heads[key], [_cell(row[key]) for row in rows]) for key in heads]
    columns += [
        Column(
            key, ["null" if row[key] is None and key in row["varied"] else _cell(row[key]) for row in rows]
        )
        for key in table.swept
    ]
    of = "" if table.last == "1" else f" (last {table.last} rounds)".replace("% rounds", " % of rounds")
    columns.append(Column(table.by.replace("_", " ") + of, [_error(row, table.by) for row in rows]))
    columns.append(Column("n seeds", [str(row["n_seeds"]) for row in rows]))
    columns.append(
        Column("gap to no privacy", ["" if math.isnan(row["gap"]) else f"{row['gap']:+.4f}" for row in rows])
    )
    if any("tuning_eps" in row for row in rows):
        columns.append(Column("trials", [_cell(row["tuning_trials"]) for row in rows]))
        columns.append(Column("eps with tuning", [_cell(row["tuning_eps"]) for row in rows]))
    if any(row.get("audited") for row in rows):
        columns.append(Column("audited", [row.get("audited", "") for row in rows], False))
    if any(set(row.get("mixed", [])) - {"package"} for row in rows):
        columns.append(Column("mixed", [", ".join(row["mixed"]) for row in rows], False))
    return columns


def _nominal(row: Row) -> str:
    return "" if row.get("nominal_eps") is None else f"{row['budget']:.4g}"


def _real(row: Row) -> str:
    """What was asked for where the noise was solved for it; beside a nominal eps, what holds."""
    if row.get("nominal_eps") is None:
        return f"{row['budget']:.4g}"
    valid = row.get("valid_eps")
    return "no bound" if valid is None or valid == math.inf else f"{valid:.4g}"


def _eps_of_all(row: Row) -> str:
    known = row.get("eps_all")
    return _cell(known) if known is not None else "" if row["budget"] == math.inf else "no bound"


def _error(row: Row, by: str) -> str:
    std = row[f"{by}_std"]
    return f"{row[f'{by}_mean']:.4f}" + (
        f" ± {std:.4f}" if row["n_seeds"] > 1 and not math.isnan(std) else ""
    )


def _ranges(chosen: Sequence[int] | None, tried: Sequence[int]) -> str:
    """4, 5 and 10 of 1, 4, 5, 10, 20: 4-10; ? where it is not known"""
    if chosen is None:
        return "?"
    ranges: list[list[int]] = []
    for before, number in zip([None, *tried], tried, strict=False):
        if number in chosen:
            if ranges and ranges[-1][-1] == before:
                ranges[-1].append(number)
            else:
                ranges.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in ranges)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown(table: Table) -> str:
    return text_table.markdown(*_lines(table))


def _lines(table: Table) -> tuple[list[str], list[list[str]], list[bool]]:
    columns = laid_out(table)
    rows = [[column.cells[index] for column in columns] for index in range(len(table.rows))]
    return [column.head for column in columns], rows, [column.right for column in columns]


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Numbers so that they come back bit for bit; nothing for what a row has not."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([escape.spreadsheet(column) for column in columns])
    writer.writerows([[_plain(row.get(column)) for column in columns] for row in rows])
    return text.getvalue().encode("utf-8", "replace").decode()


def _plain(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float | int):
        return repr(value)
    return escape.spreadsheet(" ".join(map(str, value)) if isinstance(value, list) else str(value))
