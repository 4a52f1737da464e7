"""The command line: `dpfl-bench VERB ...`. Verbs import what they need when they are called: help, list and plan never load torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

HELP = """\
dpfl-bench: experiments in differentially private federated learning

usage: dpfl-bench VERB [key=value ...] [group=choice ...]

  run       train and write a run folder      dpfl-bench run algo=dp_scaffnew eps=2
            every combination                 dpfl-bench run -m algo=dp_fedavg,dp_scaffnew eps=0.5,2,inf local_steps=1,2,5,10
            show the settings                 dpfl-bench run --cfg job algo=dp_fedavg
  plan      no training: noise, eps in every view, rounds that eps allows, optimal steps in theory
                                              dpfl-bench plan algo=dp_scaffnew eps=2 [--json] [--views]
  collect   run folders -> results.csv, the optimal-(E,T) table, U-curves
                                              dpfl-bench collect outputs/runs [--to DIR] [--json]
  list      algorithms, data sets, models, partitions, privacy models   [--json]
  version

-cd DIR adds a folder with your own algo/, dataset/, model/ ... YAML files; -cn NAME takes another primary config.
JSON goes to stdout, everything else to stderr. The last line that `run` prints is the run folder.
Exit codes: 0 done, 1 failed or diverged, 2 bad settings, 130 Ctrl-C, 143 SIGTERM.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `dpfl-bench` command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = arguments.pop(0) if arguments else "--help"
    if verb in ("--help", "-h", "help"):
        sys.stdout.write(HELP)
        return
    if verb in ("version", "--version"):
        from dpfl_bench import __version__

        sys.stdout.write(__version__ + "\n")
        return
    if verb not in VERBS:
        _say(f"{verb}: unknown verb; expected one of {', '.join(VERBS)}, version (dpfl-bench --help)")
        sys.exit(2)
    try:
        code = VERBS[verb](arguments)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 1
    except ValueError as error:
        if type(error).__module__.partition(".")[0] != "dpfl_bench":
            raise  # not one of ours: a bug, with its traceback
        _say(str(error))
        code = 2
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    from dpfl_bench import compose

    flags = compose.parser("dpfl-bench run").parse_intermixed_args(arguments)
    if flags.help:
        sys.stdout.write(HELP)
        return 0
    if flags.cfg:
        sys.stdout.write(compose.shown(flags.cfg, flags.overrides, flags.config_dir, flags.config_name))
        return 0
    from dpfl_bench import sweep

    if flags.multirun:
        return sweep.run_all(flags.overrides, flags.config_dir, flags.config_name)
    return sweep.run_one(flags.overrides, flags.config_dir, flags.config_name)


def _plan(arguments: list[str]) -> int:
    from dpfl_bench import compose, plan
    from dpfl_bench.config import settings

    parser = compose.parser("dpfl-bench plan")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--views", action="store_true", help="every observer by every accountant, and eps over the rounds")
    flags = parser.parse_intermixed_args(arguments)
    if flags.help:
        sys.stdout.write(HELP)
        return 0
    composed = compose.composed(flags.overrides, flags.config_dir, flags.config_name)
    planned = plan.plan(settings(composed), detailed=flags.json or flags.views)
    sys.stdout.write(json.dumps(planned, indent=2) + "\n" if flags.json else plan.text(planned))
    return 0


def _list(arguments: list[str]) -> int:
    import argparse

    from dpfl_bench import catalogue

    parser = argparse.ArgumentParser(prog="dpfl-bench list")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--config-dir", "-cd", help="a folder searched for more configs")
    flags = parser.parse_intermixed_args(arguments)
    entries = catalogue.entries(flags.config_dir)
    sys.stdout.write(json.dumps(entries, indent=2) + "\n" if flags.json else catalogue.text(entries))
    return 0


def _collect(arguments: list[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(prog="dpfl-bench collect")
    parser.add_argument("folders", nargs="+", help="run folders, or folders that hold some")
    parser.add_argument("--to", default=None, help="where results.csv, tables and plots go (default: the first folder's parent)")
    parser.add_argument("--json", action="store_true", help="the table for machines")
    flags = parser.parse_intermixed_args(arguments)
    from dpfl_bench.results import collect

    collected = collect.collect(flags.folders, flags.to)
    sys.stdout.write(collected.json() if flags.json else collected.text())
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"dpfl-bench: {line}\n")


VERBS = {"run": _run, "plan": _plan, "collect": _collect, "list": _list}
