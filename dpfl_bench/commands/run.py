"""`dpfl-bench run`: one run, or a sweep with -m."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from dpfl_bench.checks.errors import one_line
from dpfl_bench.commands import arguments
from dpfl_bench.machine import ranks
from dpfl_bench.machine.imports import preload
from dpfl_bench.machine.place import hush, place
from dpfl_bench.machine.say import say

EXAMPLES = (
    "run algo=dp_scaffnew eps=2",
    "run -m algo=dp_fedavg,dp_scaffnew eps=0.5,2,inf total_steps=100 local_steps=divisors --dry-run",
    "run -m +experiment=breast_cancer hydra/launcher=slurm",
)
READ = (
    "docs/settings.md (every key), docs/sweeps.md (sweeps), docs/reproduce.md (--force, --accept);\n"
    "`dpfl-bench list` has the choices, `dpfl-bench run --cfg job` every key with its value. Names that\n"
    "look alike: engine.memory is GB of this machine, privacy.memory what control variates are made of;\n"
    "privacy.observer is whose view eps bounds; the launcher joblib is the old name of cores"
)
ONLY_OF_SWEEPS = ("--dry-run", "--no-retry", "--quiet", "--detach", "--cancel")
NOT_TO_FINISH = ("--no-retry", "--force", "--accept")  # of a command that finishes a sweep


def command(words: list[str]) -> int:
    flags = _parser().parse_intermixed_args(words)
    if place().ranks > 1:
        if flags.cfg or flags.multirun:
            return arguments.refuse_ranks("run -m" if flags.multirun else "run --cfg")
        hush()
    if flags.cfg:
        return _shown(flags)
    if not flags.multirun and (flag := next((flag for flag in ONLY_OF_SWEEPS if flag in words), None)):
        arguments.complain(f"{flag}: expected a sweep; say -m too")
        return 2
    preload("dpfl_bench.sweep.whole_sweep")
    from dpfl_bench.results.provenance import Answer
    from dpfl_bench.sweep import one_run, whole_sweep

    _tell(not flags.quiet)
    if place().ranks > 1:
        return _on_ranks(flags)
    config = (flags.config_dir, flags.config_name)
    answer = Answer(flags.force, flags.accept)
    if not flags.multirun:
        return one_run.run_one(flags.overrides, *config, answer)
    again = shlex.join(["dpfl-bench", "run", *(word for word in words if word not in NOT_TO_FINISH)])
    ways = whole_sweep.Ways(again, flags.dry_run, not flags.no_retry, answer, flags.on_interrupt)
    return whole_sweep.run_all(flags.overrides, *config, ways)


def _on_ranks(flags: argparse.Namespace) -> int:
    """One run, of which this process is a rank. Of all ranks that end with an error, one says
    so.
    """
    from dpfl_bench.results.provenance import Answer
    from dpfl_bench.sweep import one_run

    here = ranks.join(place())
    config = (flags.config_dir, flags.config_name, Answer(flags.force, flags.accept))
    try:
        code = one_run.run_one(flags.overrides, *config)
    except ranks.RankDied as error:
        say(str(error))
        code = error.code
    except Exception as error:
        if not here.meets_error():
            code = 2 if isinstance(error, ValueError) else 1
        elif here.first or one_line(error) is None:
            here.leave(1)
            raise
        else:
            arguments.complain(f"rank {here.rank} on {here.hosts[here.rank]}: {one_line(error)}")
            code = 2
    here.leave(code)
    return code


def start_early(words: Sequence[str]) -> None:
    """A sweep on this machine forks its workers of a process that imports everything while the
    sweep is still planned.
    """
    given = set(words)
    elsewhere = {"--dry-run", "hydra/launcher=slurm", "--help", "-h", "--cfg", "-c"}
    _tell("--quiet" not in given)  # before there are workers
    elsewhere |= given if place().ranks > 1 else set()
    if given & {"-m", "--multirun"} and not given & elsewhere:
        from dpfl_bench.sweep import fork_server

        fork_server.start()


def _tell(done: bool) -> None:
    """Whether each job that is done has a line. Worker processes inherit the answer."""
    os.environ.pop("DPFL_QUIET", None)
    if not done:
        os.environ["DPFL_QUIET"] = "1"


def _shown(flags: argparse.Namespace) -> int:
    from dpfl_bench.config import compose

    composer = compose.Composer(flags.config_dir, flags.config_name)
    sys.stdout.write(composer.shown(flags.cfg, flags.overrides))
    return 0


def _parser() -> argparse.ArgumentParser:
    does = "Trains and writes a run folder; its path is the last line on stdout. With -m: a sweep."
    parser = arguments.parser("run", does, EXAMPLES, READ)
    arguments.add_settings(parser, "key=value, group=choice, +experiment=NAME; with -m: key=value,value")
    add = parser.add_argument
    add("--multirun", "-m", action="store_true", help="a sweep: every combination of the values")
    add("--cfg", "-c", choices=["job", "hydra", "all"], help="show the config instead of running")
    add("--dry-run", action="store_true", help="with -m: the jobs, and how long the rest may take")
    add("--no-retry", action="store_true", help="with -m: leave alone what failed earlier")
    add("--quiet", action="store_true", help="with -m: the progress, and a line for what failed alone")
    add("--force", action="store_true", help="compute anew what other code or data made; keep it as ID.old-N")
    add("--accept", action="store_true", help="take what other code or data made; origin.json notes it")
    for way, what in (("detach", "the jobs go on"), ("cancel", "the jobs end with a checkpoint")):
        words = f"with -m on Slurm, after Ctrl-C: {what}"
        add(f"--{way}", dest="on_interrupt", action="store_const", const=way, help=words)
    return parser
