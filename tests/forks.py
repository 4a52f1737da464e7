"""A process that has imported everything and forks a child for each command: quick to start, and a real process to kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SERVER = """
import json, os, sys
import dp_accounting.pld, dp_accounting.rdp, hydra, sklearn.datasets
from dpfl_bench import cli, compose, run, sweep
compose.composed([])
for line in sys.stdin:
    arguments = json.loads(line)
    pid = os.fork()
    if pid == 0:
        code = 1
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        try:
            cli.main(arguments)
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@dataclass
class Child:
    """One command that runs."""

    pid: int
    server: subprocess.Popen[str]

    def end(self) -> int:
        """Its exit code, minus the signal that killed it."""
        assert self.server.stdout is not None
        return int(self.server.stdout.readline())

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid, number)  # the server has not waited for it yet, or its number is not taken again so soon

    def trains_in(self, folder: Path, rows: int = 0, patience: float = 60) -> bool:
        """Wait until this very process has begun to train there and metrics.csv has `rows` rows; False if it ended before."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            status = json.loads((folder / "status.json").read_text()) if (folder / "status.json").exists() else {}
            if status.get("pid") == self.pid and status["status"] != "running":
                return False
            begun = status.get("pid") == self.pid and (folder / "metrics.csv").exists()
            if begun and (folder / "metrics.csv").read_bytes().count(b"\n") > rows:
                return True
            time.sleep(0.002)
        raise TimeoutError(f"no training in {folder}")


@dataclass
class Forks:
    server: subprocess.Popen[str]

    def start(self, *arguments: str) -> Child:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(arguments) + "\n")
        self.server.stdin.flush()
        return Child(int(self.server.stdout.readline()), self.server)

    def run(self, *arguments: str) -> int:
        return self.start(*arguments).end()


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
