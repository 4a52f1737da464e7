"""`dpfl-bench collect`: run folders -> results.csv, the optimal-(E,T) table, plots."""

from __future__ import annotations

import argparse
import sys

from dpfl_bench.commands import arguments

EXAMPLES = (
    "collect outputs/runs",
    "collect outputs/demo/runs --to outputs/demo --by test_loss",
    "collect outputs/runs --tuning-eps --json",
)
READ = (
    "docs/sweeps.md has a line on each warning under the table. Runs of one name with different code\n"
    "or data are refused (--mixed)."
)


def command(words: list[str]) -> int:
    flags = _parser().parse_intermixed_args(words)
    from dpfl_bench.results.collect import gather
    from dpfl_bench.results.collect.tuning import Tuning

    asked = flags.tuning_eps or flags.tuning_distribution or flags.tuning_trials is not None
    tuning = Tuning(flags.tuning_distribution or "geometric", flags.tuning_trials) if asked else None
    collected = gather.collect(flags.folders, flags.to, tuning, flags.by, flags.mixed)
    sys.stdout.write(collected.json() if flags.json else collected.text())
    return 0


def _parser() -> argparse.ArgumentParser:
    from dpfl_bench.results.folder import MEASURES

    does = "Run folders -> results.csv, the table of the best local steps and rounds, U-curves."
    parser = arguments.parser("collect", does, EXAMPLES, READ)
    add = parser.add_argument
    add("folders", nargs="+", help="run folders, folders that hold some, or a sweep's folder")
    add("--to", metavar="DIR", help="where the files go (default: the first folder's parent)")
    best = "what the best point is least in, after the last round"
    add("--by", choices=MEASURES, default=MEASURES[0], help=best)
    add("--mixed", action="store_true", help="one table of runs of different code or data, which says so")
    add("--tuning-eps", action="store_true", help="what it costs to find the best points privately")
    shapes = ("geometric", "logarithmic", "poisson")
    add("--tuning-distribution", choices=shapes, help="of the number of trials")
    add("--tuning-trials", type=float, metavar="MEAN", help="their mean (default: the number of points)")
    arguments.add_json(parser, "the table and its warnings as JSON, for machines")
    return parser
