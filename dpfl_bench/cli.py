"""The command line: `dpfl-bench VERB ...`. commands/ has a file for each verb, which imports what
it needs when it is called: help, list and plan never load torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from dpfl_bench.commands import VERBS
from dpfl_bench.machine.place import place

ALIASES = {"--version": "version"}
HELP = ("--help", "-h", "help")


def command() -> None:
    """Entry point of the `dpfl-bench` command: `main`, and the end at once. Python's own end takes
    torch apart, a fifth of a second for nothing: everything is on disk, and no process or thread of
    ours is left.
    """
    if sys.argv[1:2] == ["run"]:
        from dpfl_bench.commands import run

        run.start_early(sys.argv[2:])
    try:
        main()
        code: Any = 0
    except SystemExit as stop:
        code = stop.code
    _remove_socket()
    with suppress(OSError):  # nobody listens any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _remove_socket() -> None:
    """The folder with the socket of the process that workers are forked from. Python's own end
    would remove it.
    """
    if "multiprocessing.util" in sys.modules:
        import shutil
        from multiprocessing.process import current_process

        if folder := getattr(current_process(), "_config", {}).get("tempdir"):
            shutil.rmtree(folder, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> None:
    """What the command does; raises SystemExit."""
    verb, *words = [*(sys.argv[1:] if argv is None else argv)] or ["--help"]
    verb = ALIASES.get(verb, verb)
    if verb in HELP:
        from dpfl_bench.commands import overview
        from dpfl_bench.machine.colour import painted

        sys.stdout.write(painted(overview.TEXT, sys.stdout, overview.RULES))
        return
    if verb not in VERBS:
        from dpfl_bench.checks import nearest
        from dpfl_bench.commands.arguments import complain

        meant = nearest.did_you_mean(nearest.choice(verb, VERBS))
        complain(f"{verb}: unknown verb; expected one of {', '.join(VERBS)}{meant} (dpfl-bench --help)")
        sys.exit(2)
    sys.exit(_code(verb, words))


def _code(verb: str, words: list[str]) -> int:
    """What the verb returns; a refusal of ours as one line and 2."""
    if verb != "run" and place().ranks > 1:
        from dpfl_bench.commands.arguments import refuse_ranks

        return refuse_ranks(verb)
    try:
        code: int = import_module(f"dpfl_bench.commands.{verb}").command(words)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 1
    except (ValueError, OSError) as error:
        from dpfl_bench.checks.errors import one_line

        line = one_line(error)
        if line is None:
            raise  # a bug, with its traceback
        from dpfl_bench.commands.arguments import complain

        complain(line)
        code = 2 if isinstance(error, ValueError) else 1
    return code
