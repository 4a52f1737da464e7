"""A process that has imported everything forks servers, and a server a child for each command:
quick to start, and a real process to kill.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from helpers.command import Said
from helpers.processes import until

TESTS = Path(__file__).parent.parent
NOWHERE = Path(os.devnull)
# One for all workers of pytest-xdist, and it ends with the session. It asks git and hashes the
# code, too: what a process asks once, its children know.
IMPORTER = f"""
import gc, json, os, signal, socket, sys
address, session = sys.argv[1], int(sys.argv[2])
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
listener = socket.socket(socket.AF_UNIX)
listener.bind(address + ".new")
listener.listen()
listener.settimeout(1)
os.rename(address + ".new", address)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        try:
            os.kill(session, 0)
        except ProcessLookupError:
            os._exit(0)
        continue
    if os.fork() == 0:
        break
    connection.close()
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
listener.close()
stream = connection.makefile("rw")
place = json.loads(stream.readline())
os.environ.clear()
os.environ.update(place["environment"])
os.chdir(place["cwd"])
os.dup2(os.open("stderr.txt", os.O_WRONLY | os.O_CREAT), 2)
def say(number):
    stream.write(str(number) + "\\n")
    stream.flush()
for line in stream:
    arguments = json.loads(line)
    if isinstance(arguments, int):
        say(os.waitstatus_to_exitcode(os.waitpid(arguments, 0)[1]))
        continue
    place = {{}}
    if isinstance(arguments, dict):
        place, arguments = arguments, arguments["arguments"]
    pid = os.fork()
    if pid == 0:
        code = 1
        os.dup2(0, connection.fileno())
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
    say(pid)
os._exit(0)
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
    server: IO[str]

    def ask(self, what: int | Sequence[str] | dict[str, Any]) -> int:
        """The exit code of a child, or the number of the one that runs these arguments: each
        question has one answer.
        """
        self.server.write(json.dumps(what) + "\n")
        self.server.flush()
        return int(self.server.readline())

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

    def lead(self, *arguments: str, err: Path, out: Path = NOWHERE) -> Child:
        """Start these arguments in a process group of their own, as a shell starts a command."""
        return self._placed(arguments, Path.cwd(), out, err, leads=True)

    def _placed(self, arguments: Sequence[str], cwd: Path, out: Path, err: Path, leads: bool) -> Child:
        place = {"environment": dict(os.environ), "cwd": str(cwd), "out": str(out), "err": str(err)}
        return Child(self.ask({"arguments": arguments, **place, "leads": leads}), self)


@contextmanager
def forks(cwd: Path, cache: Path, shared: Path) -> Iterator[Forks]:
    """A server of one's own, forked from the process in `shared` that imports for all."""
    address = shared / "forks" / "socket"
    with suppress(FileExistsError):
        address.parent.mkdir()
        _start(address)
    assert until(address.exists, 120), (address.parent / "stderr.txt").read_text()
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(address))
        with line.makefile("rw") as stream:
            environment = {**os.environ, "DPFL_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
            stream.write(json.dumps({"cwd": str(cwd), "environment": environment}) + "\n")
            yield Forks(stream)


def _start(address: Path) -> None:
    session = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    with (address.parent / "stderr.txt").open("w") as errors:
        subprocess.Popen(
            [sys.executable, "-c", IMPORTER, address, str(session)],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
