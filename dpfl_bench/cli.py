"""The command line: `dpfl-bench VERB ...`. Verbs import what they need when they are called: help,
list and plan never load torch.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

from dpfl_bench.machine.imports import preload

HELP = """\
dpfl-bench: experiments in differentially private federated learning

usage: dpfl-bench VERB [key=value ...] [group=choice ...]

  run       train and write a run folder      dpfl-bench run algo=dp_scaffnew eps=2
            a sweep: every combination        dpfl-bench run -m algo=dp_fedavg,dp_scaffnew eps=0.5,2,inf local_steps=1,2,5,10
            every divisor, or 8 of them       dpfl-bench run -m total_steps=1000 local_steps=divisors:8
            on all cores, on a cluster        dpfl-bench run -m hydra/launcher=joblib|slurm ...
            the jobs and how long they take   dpfl-bench run -m --dry-run ...
            only what has not failed earlier  dpfl-bench run -m --no-retry ...
            where code or data have changed   dpfl-bench run [-m] --force|--accept ...    anew (the old is kept), or as it is
            Slurm's jobs after Ctrl-C         dpfl-bench run -m --detach|--cancel ...
            show the settings                 dpfl-bench run --cfg job algo=dp_fedavg
  replay    a run folder's question again, from the folder alone; whether every number is the same
                                              dpfl-bench replay outputs/runs/ID [--check] [--to OUTPUTS]
  plan      no training: noise, eps in every view, rounds that eps allows, optimal steps in theory
                                              dpfl-bench plan algo=dp_scaffnew eps=2 [--json] [--views]
  status    what is done, running, failed, missing, and the command that finishes it
                                              dpfl-bench status [outputs] [--json]
  collect   run folders -> results.csv, the optimal-(E,T) table, U-curves
                                              dpfl-bench collect outputs/runs [--to DIR] [--by test_loss] [--tuning-eps] [--mixed] [--json]
  data      list: what is on this machine     dpfl-bench data list [--json] [--own-code]
            fetch, verify: files, checksums   dpfl-bench data fetch mnist [dataset.root=DIR]
            show: who gets what, a picture    dpfl-bench data show dataset=mnist partition=dirichlet clients=20 [--to FILE.png]
                                              calls what a YAML file of your own names only with --own-code
  list      algorithms, data sets, models, partitions, privacy models   [--json]
  version

-cd DIR adds a folder with your own algo/, dataset/, model/ ... YAML files; -cn NAME takes another primary config.
A `_target_` in such a file is code: run, data fetch and data verify call it; plan imports an algorithm's module and calls nothing.
JSON goes to stdout, everything else to stderr. The last line that `run` prints is the run folder.
A sweep that is run again leaves alone what is done, resumes what was cut off and tries again what failed.
Exit codes: 0 done, 1 failed, diverged or another process works on it (replay --check: another number; data verify: a subset, or
unverified), 2 bad settings or data, or made by other code or data (--force, --accept),
130 Ctrl-C, 143 SIGTERM, 140 SIGUSR2.
"""


def command() -> None:
    """Entry point of the `dpfl-bench` command: `main`, and the end at once. Python's own end takes
    torch apart, a fifth of a second for nothing: everything is on disk, and no process or thread of
    ours is left.
    """
    words = set(sys.argv[2:])
    if (
        sys.argv[1:2] == ["run"]
        and words & {"-m", "--multirun"}
        and not words & {"--dry-run", "hydra/launcher=slurm"}
    ):
        from dpfl_bench.sweep import early

        early.start()
    try:
        main()
        code: Any = 0
    except SystemExit as stop:
        code = stop.code
    with suppress(OSError):  # nobody listens any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def main(argv: Sequence[str] | None = None) -> None:
    """What the command does; raises SystemExit."""
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
    from dpfl_bench.config import compose

    parser = compose.parser("dpfl-bench run")
    parser.add_argument(
        "--dry-run", action="store_true", help="with -m: the jobs, what is done, how long the rest may take"
    )
    parser.add_argument("--no-retry", action="store_true", help="with -m: leave jobs that failed earlier")
    parser.add_argument(
        "--force",
        action="store_true",
        help="compute anew what other code or data made; the old folder is kept as ID.old-N",
    )
    parser.add_argument(
        "--accept", action="store_true", help="take what other code or data made, and note it in origin.json"
    )
    for way in ("detach", "cancel"):
        parser.add_argument(
            f"--{way}", dest="on_interrupt", action="store_const", const=way, help="Slurm's jobs after Ctrl-C"
        )
    flags = parser.parse_intermixed_args(arguments)
    if flags.help:
        sys.stdout.write(HELP)
        return 0
    if flags.cfg:
        sys.stdout.write(
            compose.Composer(flags.config_dir, flags.config_name).shown(flags.cfg, flags.overrides)
        )
        return 0
    preload("dpfl_bench.sweep.sweep")
    from dpfl_bench.results.provenance import Answer
    from dpfl_bench.sweep import sweep

    where = (flags.config_dir, flags.config_name)
    answer = Answer(flags.force, flags.accept)
    if flags.multirun:
        command = shlex.join(
            [
                "dpfl-bench",
                "run",
                *(word for word in arguments if word not in ("--no-retry", "--force", "--accept")),
            ]
        )
        ways = sweep.Ways(command, flags.dry_run, not flags.no_retry, answer, flags.on_interrupt)
        return sweep.run_all(flags.overrides, *where, ways)
    for flag in ("--dry-run", "--no-retry", "--detach", "--cancel"):
        if flag in arguments:
            _say(f"{flag}: expected a sweep; say -m too")
            return 2
    return sweep.run_one(flags.overrides, *where, answer)


def _replay(arguments: list[str]) -> int:
    preload("dpfl_bench.commands.replay")
    from dpfl_bench.commands import replay

    return replay.command(arguments)


def _status(arguments: list[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(prog="dpfl-bench status")
    parser.add_argument(
        "folder", nargs="?", default="outputs", help="outputs, outputs/runs, or the folder of a sweep or run"
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    flags = parser.parse_intermixed_args(arguments)
    from dpfl_bench.sweep import status

    found = status.survey(flags.folder)
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if flags.json else status.text(found))
    return 0


def _plan(arguments: list[str]) -> int:
    from dpfl_bench.commands import plan
    from dpfl_bench.config import compose
    from dpfl_bench.config.validate import settings

    parser = compose.parser("dpfl-bench plan")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument(
        "--views", action="store_true", help="every observer by every accountant, and eps over the rounds"
    )
    flags = parser.parse_intermixed_args(arguments)
    if flags.help:
        sys.stdout.write(HELP)
        return 0
    composed = compose.composed(flags.overrides, flags.config_dir, flags.config_name)
    planned = plan.plan(settings(composed), detailed=flags.json or flags.views)
    sys.stdout.write(json.dumps(planned, indent=2) + "\n" if flags.json else plan.text(planned))
    return 0


def _list(arguments: list[str]) -> int:
    from dpfl_bench.config import catalogue

    return _listing("list", arguments, catalogue)


def _listing(verb: str, arguments: list[str], source: Any, own_code: bool = False) -> int:
    """What a module's `entries` finds, by its `text` or as JSON."""
    import argparse

    parser = argparse.ArgumentParser(prog=f"dpfl-bench {verb}")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--config-dir", "-cd", help="a folder searched for more configs")
    if own_code:
        words = "import your own data sets' modules, to ask their SOURCE which files are here"
        parser.add_argument("--own-code", action="store_true", help=words)
    flags = parser.parse_intermixed_args(arguments)
    entries = source.entries(flags.config_dir, *([flags.own_code] if own_code else []))
    sys.stdout.write(json.dumps(entries, indent=2) + "\n" if flags.json else source.text(entries))
    return 0


def _collect(arguments: list[str]) -> int:
    import argparse

    from dpfl_bench.results.folder import MEASURES

    told = (
        "docs/sweeps.md has a line on each warning under the table. Runs of one name with different code or"
        " data are refused (--mixed)."
    )
    parser = argparse.ArgumentParser(prog="dpfl-bench collect", epilog=told)
    parser.add_argument("folders", nargs="+", help="run folders, folders that hold some, or a sweep's folder")
    parser.add_argument(
        "--to",
        default=None,
        help="where results.csv, tables and plots go (default: the first folder's parent)",
    )
    parser.add_argument("--json", action="store_true", help="the table and its warnings for machines")
    parser.add_argument(
        "--by",
        choices=MEASURES,
        default=MEASURES[0],
        help="what the best point is least in, after the last round",
    )
    parser.add_argument(
        "--mixed",
        action="store_true",
        help="take runs of different code or data into one table, which says so",
    )
    parser.add_argument(
        "--tuning-eps",
        action="store_true",
        help="what it costs if the best points are found by private selection",
    )
    parser.add_argument(
        "--tuning-distribution",
        choices=("geometric", "logarithmic", "poisson"),
        help="of the number of trials",
    )
    parser.add_argument(
        "--tuning-trials", type=float, metavar="MEAN", help="their mean (default: the number of points)"
    )
    flags = parser.parse_intermixed_args(arguments)
    from dpfl_bench.results.collect import gather
    from dpfl_bench.results.collect.tuning import Tuning

    asked = flags.tuning_eps or flags.tuning_distribution or flags.tuning_trials is not None
    tuning = Tuning(flags.tuning_distribution or "geometric", flags.tuning_trials) if asked else None
    collected = gather.collect(flags.folders, flags.to, tuning, flags.by, flags.mixed)
    sys.stdout.write(collected.json() if flags.json else collected.text())
    return 0


def _data(arguments: list[str]) -> int:
    verb, *others = arguments or [""]
    if verb in ("--help", "-h"):
        sys.stdout.write(HELP)
        return 0
    if verb == "list":
        from dpfl_bench.data import listing

        return _listing("data list", others, listing, own_code=True)
    if verb in ("fetch", "verify"):
        return _data_files(verb, others)
    if verb == "show":
        return _data_show(others)
    _say(
        f"{' '.join(['data', *arguments[:1]])}: expected data list, fetch, verify or show (dpfl-bench --help)"
    )
    return 2


def _data_files(verb: str, arguments: list[str]) -> int:
    from contextlib import redirect_stdout

    from dpfl_bench.config import compose
    from dpfl_bench.config.validate import settings

    parser = compose.parser(f"dpfl-bench data {verb}")
    parser.add_argument("--json", action="store_true", help="for machines")
    flags = parser.parse_intermixed_args(arguments)
    if flags.help:
        sys.stdout.write(HELP)
        return 0
    name, *overrides = flags.overrides or [""]
    if not name or "=" in name:
        _say(
            f"{' '.join(['data', verb, *flags.overrides[:1]])}: expected the name of a data set first"
            " (dpfl-bench data list)"
        )
        return 2
    composed = compose.composed([f"dataset={name}", *overrides], flags.config_dir, flags.config_name)
    dataset = settings(composed, used=("dataset",)).dataset
    from dpfl_bench.config.call import call
    from dpfl_bench.data import verdict

    with redirect_stdout(sys.stderr):  # torchvision may print while it downloads
        made = {"fetch": verdict.fetched, "verify": verdict.verified}[verb](
            name, dataset, lambda node: call(node, "dataset")
        )
    sys.stdout.write(json.dumps(made, indent=2) + "\n" if flags.json else verdict.text(made))
    if "error" in made:
        _say(made["error"])
    return int(made["code"])


def _data_show(arguments: list[str]) -> int:
    from dpfl_bench.config import compose
    from dpfl_bench.config.validate import settings

    parser = compose.parser("dpfl-bench data show")
    parser.add_argument(
        "--to", default=None, help="the picture (default: OUTPUTS/data/DATASET_PARTITION.png)"
    )
    parser.add_argument(
        "--own-code",
        action="store_true",
        help="call the loader or partition that a YAML file of your own names",
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    flags = parser.parse_intermixed_args(arguments)
    if flags.help:
        sys.stdout.write(HELP)
        return 0
    chosen = settings(
        compose.composed(flags.overrides, flags.config_dir, flags.config_name), used=("dataset", "partition")
    )
    from dpfl_bench.assembly.algorithm import DESCRIBING
    from dpfl_bench.assembly.data import load_data
    from dpfl_bench.config import targets
    from dpfl_bench.data import dealt
    from dpfl_bench.results import plots

    names = {"dataset": chosen.dataset["name"], "partition": chosen.partition["name"]}
    picture, table = dealt.targets(flags.to, chosen.outputs, "_".join(names.values()))
    with (
        nullcontext()
        if flags.own_code
        else targets.only_ours("data show calls no code of your own unless you say --own-code")
    ):
        loaded = load_data(chosen)
    ways = {key: value for key, value in chosen.partition.items() if key not in DESCRIBING}
    said = {
        **names,
        "ways": ways,
        "hash": loaded.partition_hash,
        "picture": str(picture),
        "table": str(table),
    }
    shown = dealt.summary(loaded.records, loaded.parts, said)
    dealt.save(table, loaded.partition_csv())
    plots.partition(table, picture, dealt.title(shown))
    sys.stdout.write(json.dumps(shown, indent=2) + "\n" if flags.json else dealt.text(shown))
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"dpfl-bench: {line}\n")


VERBS = {
    "run": _run,
    "plan": _plan,
    "replay": _replay,
    "status": _status,
    "collect": _collect,
    "data": _data,
    "list": _list,
}
