"""`dpfl-bench collect`: run folders -> results.csv, the optimal-(E,T) table, plots."""

from __future__ import annotations

import argparse
import sys

from dpfl_bench.commands import arguments

EXAMPLES = (
    "collect outputs/runs",
    "collect outputs/runs --by psi --last 5 --where algo=dp_scaffnew --x privacy.clip --line local_steps",
    "collect outputs/runs --tuning-eps --json",
)
READ = (
    "docs/sweeps.md has a line on each warning under the table. Runs of one name with different code\n"
    "or data are refused (--mixed)."
)


def command(words: list[str]) -> int:
    flags = _parser().parse_intermixed_args(words)
    from dpfl_bench.results.collect import gather
    from dpfl_bench.results.collect.measures import Last
    from dpfl_bench.results.collect.tuning import Tuning
    from dpfl_bench.results.collect.view import View, parse_where

    asked = flags.tuning_eps or flags.tuning_distribution or flags.tuning_trials is not None
    tuning = Tuning(flags.tuning_distribution or "geometric", flags.tuning_trials) if asked else None
    Last.parse(flags.last)
    if len(flags.facet) > 2:
        arguments.complain(f"--facet {flags.facet[2]}: expected two at most, for rows and columns of panels")
        return 2
    where = parse_where(flags.where)
    view = View(
        flags.by, flags.last.replace(" ", ""), where, flags.x, tuple(flags.facet), flags.line, flags.width
    )
    collected = gather.collect(flags.folders, flags.to, tuning, mixed=flags.mixed, view=view)
    sys.stdout.write(collected.json() if flags.json else collected.text())
    return 0


def _parser() -> argparse.ArgumentParser:
    from dpfl_bench.results.folder import MEASURES

    does = "Run folders -> results.csv, the table of the best local steps and rounds, U-curves."
    parser = arguments.parser("collect", does, EXAMPLES, READ)
    add = parser.add_argument
    add("folders", nargs="+", help="run folders, folders that hold some, or a sweep's folder")
    add("--to", metavar="DIR", help="where the files go (default: the first folder's parent)")
    best = "a column of metrics.csv that the best point is least in (a score: greatest)"
    add("--by", metavar="COLUMN", default=MEASURES[0], help=f"{best} (default: {MEASURES[0]})")
    add(
        "--last",
        metavar="K",
        default="1",
        help="its mean over the last K rounds, or over the last 10%% of them",
    )
    one_of = "take the runs with that value, or one of those values; repeat it for another key"
    add("--where", metavar="KEY=VALUE", action="append", default=[], help=one_of)
    add(
        "--x",
        metavar="KEY",
        default="",
        help="draw over this setting, or over `round` (default: local_steps)",
    )
    add(
        "--facet",
        metavar="KEY",
        action="append",
        default=[],
        help="a panel for each value; twice: rows, columns",
    )
    add("--line", metavar="KEY", default="", help="a line for each value (default: eps)")
    widths = "a venue's column, for the figures: title and note then stand in figures.tex alone"
    add("--width", choices=["icml", "neurips", "ieee", "single", "double"], default="", help=widths)
    add("--mixed", action="store_true", help="one table of runs of different code or data, which says so")
    add("--tuning-eps", action="store_true", help="what it costs to find the best points privately")
    shapes = ("geometric", "logarithmic", "poisson")
    add("--tuning-distribution", choices=shapes, help="of the number of trials")
    add("--tuning-trials", type=float, metavar="MEAN", help="their mean (default: the number of points)")
    arguments.add_json(parser, "the table and its warnings as JSON, for machines")
    return parser
