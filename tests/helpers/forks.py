"""A process that has imported everything and forks a child for each command: quick to start, and a
real process to kill.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.command import Said

TESTS = Path(__file__).parent.parent
# It asks git and hashes the code, too: what a process asks once, its children know.
SERVER = f"""
import gc, json, os, sys
import dp_accounting.pld, dp_accounting.rdp, hydra, sklearn.datasets
sys.path.insert(0, {str(TESTS)!r})
from helpers import differences
del sys.path[0]
differences.take_once()
from dpfl_bench import cli
from dpfl_bench.config import compose
from dpfl_bench.experiment import run
from dpfl_bench.results import code_hashes, environment
from dpfl_bench.sweep import whole_sweep
compose.composed([])
code_hashes.package()
environment.environment("cpu")
gc.collect()
gc.freeze()
for line in sys.stdin:
    arguments = json.loads(line)
    if isinstance(arguments, int):
        print(os.waitstatus_to_exitcode(os.waitpid(arguments, 0)[1]), flush=True)
        continue
    place = {{}}
    if isinstance(arguments, dict):
        place, arguments = arguments, arguments["arguments"]
    pid = os.fork()
    if pid == 0:
        code = 1
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        try:
            if place:
                os.environ.clear()
                os.environ.update(place["environment"])
                os.chdir(place["cwd"])
                if place["leads"]:
                    os.setsid()
                sys.path[:1] = place["environment"].get("PYTHONPATH", "").split(os.pathsep)
                for number, name in ((1, "out"), (2, "err")):
                    os.dup2(os.open(place[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            cli.main(arguments)
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(pid, flush=True)
"""


def rows_of(folder: Path) -> int:
    """The lines of its metrics.csv."""
    metrics = folder / "metrics.csv"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


@dataclass
class Child:
    """One command that runs. It keeps its number until `end`: it can be signalled even if it has
    just ended by itself.
    """

    pid: int
    server: Forks

    def end(self) -> int:
        """Its exit code, minus the signal that killed it."""
        return self.server.ask(self.pid)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def trains_in(self, folder: Path, rows: int = 0, patience: float = 60) -> bool:
        """Wait until this very process has begun to train there and metrics.csv has `rows` rows;
        False if it ended before.
        """
        until = time.monotonic() + patience
        while time.monotonic() < until:
            status = (
                json.loads((folder / "status.json").read_text()) if (folder / "status.json").exists() else {}
            )
            if status.get("pid") == self.pid and status["status"] != "running":
                return False
            if status.get("pid") == self.pid and rows_of(folder) > rows:
                return True
            time.sleep(0.005)
        raise TimeoutError(f"no training in {folder}")


@dataclass
class Forks:
    server: subprocess.Popen[str]

    def ask(self, what: int | Sequence[str] | dict[str, Any]) -> int:
        """The exit code of a child, or the number of the one that runs these arguments: each
        question has one answer.
        """
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(what) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def start(self, *arguments: str) -> Child:
        return Child(self.ask(arguments), self)

    def run(self, *arguments: str) -> int:
        return self.start(*arguments).end()

    def say(self, *arguments: str, cwd: Path | None = None) -> Said:
        """As `command` of the installed one: in this folder or in `cwd`, with the environment that
        this process has now. What dpfl-bench imports is there already; a user's own code is not.
        """
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            code = self._placed(arguments, Path.cwd() / (cwd or ""), out, err, leads=False).end()
            return Said(code, out.read_text(), err.read_text())

    def lead(self, *arguments: str, err: Path) -> Child:
        """Start these arguments in a process group of their own, as a shell starts a command."""
        return self._placed(arguments, Path.cwd(), Path(os.devnull), err, leads=True)

    def _placed(self, arguments: Sequence[str], cwd: Path, out: Path, err: Path, leads: bool) -> Child:
        place = {"environment": dict(os.environ), "cwd": str(cwd), "out": str(out), "err": str(err)}
        return Child(self.ask({"arguments": arguments, **place, "leads": leads}), self)


@contextmanager
def forks(cwd: Path, cache: Path) -> Iterator[Forks]:
    environment = {**os.environ, "DPFL_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    with (cwd / "stderr.txt").open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield Forks(server)
        finally:
            assert server.stdin is not None
            server.stdin.close()
            try:
                server.wait(timeout=60)
            finally:
                server.kill()
