"""One side of scripts/same_numbers: its process, which plays every command of SIDE/commands.json.

A command's runs go into SIDE/runs/NUMBER. What the command says goes into said.1.json there.
An interrupted command runs twice, and its second answer goes into said.2.json.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import small_runs

SECONDS = 300.0  # within which the run to be interrupted has measured some rounds
ROWS = 4  # that it has measured by then
Main = Callable[[Sequence[str]], None]


def play(side: Path) -> None:
    """Play the commands, and prove that this process has loaded no other code than the side's."""
    from dpfl_bench import cli

    for number, command in enumerate(json.loads((side / "commands.json").read_text())):
        folder = side / "runs" / str(number)
        folder.mkdir(parents=True)
        words, answers = command.split(), []
        if words[0] == small_runs.CUT:
            words.pop(0)
            with interrupted(folder):
                answers.append(answer(cli.main, words, folder))
        answers.append(answer(cli.main, words, folder))
        for count, content in enumerate(answers, 1):
            (folder / f"said.{count}.json").write_text(json.dumps(content))
    check_origin(side / "code")


def check_origin(code: Path) -> None:
    """Exit with a message where a module of dpfl_bench is not a file under `code`."""
    package = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "dpfl_bench"}
    files = {name: Path(str(module.__file__)) for name, module in package.items()}
    strangers = {name: str(file) for name, file in files.items() if not file.is_relative_to(code)}
    if strangers or not package:
        sys.exit(f"expected every module of dpfl_bench in {code}, got {strangers}")


def answer(main: Main, words: Sequence[str], folder: Path) -> dict[str, Any]:
    """Exit code and output of a command; the code is None after an exception."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([*words, f"outputs={folder}"])
        except SystemExit as stop:
            code = stop.code
        except BaseException:
            traceback.print_exc()
            code = None
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


@contextlib.contextmanager
def interrupted(folder: Path) -> Iterator[None]:
    """Send this process a SIGINT once a run in `folder` has measured some rounds."""
    over = threading.Event()

    def watch() -> None:
        until = time.monotonic() + SECONDS
        while not over.wait(0.01) and time.monotonic() < until:
            if any(table.read_bytes().count(b"\n") > ROWS for table in folder.glob("runs/*/metrics.csv")):
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


if __name__ == "__main__":
    play(Path(sys.argv[1]))
