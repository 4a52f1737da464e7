"""Outputs that cannot be written, a full disk and a killed worker are one line; nothing is computed
where it can be known before.
"""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers.command import QUICK, call

from dpfl_bench.experiment import job
from dpfl_bench.federation.workers import Workers
from dpfl_bench.results.folder import RunFolder

SHORT = (*QUICK, "total_steps=4", "local_steps=2")


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise AssertionError("data were loaded")

    monkeypatch.setattr(job, "load_data", load)


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("outputs", ["/dev/null", "/dev/null/x", "file", "file/x", "/proc/x", "x" * 300])
@pytest.mark.parametrize("flags", [(), ("-m",)])
def test_a_path_that_cannot_be_written(outputs: str, flags: tuple[str, ...]) -> None:
    Path("file").touch()
    said = call("run", *flags, *SHORT, f"outputs={outputs}")
    assert (said.code, said.out) == (1, "")
    assert said.err.count("\n") == 1, said.err
    assert "expected a path that can be read and written" in said.err


@pytest.mark.usefixtures("no_data")
@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder() -> None:
    Path("outputs").mkdir(mode=0o500)
    said = call("run", *SHORT)
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "Permission denied" in said.err


@pytest.mark.parametrize(
    "full_from", ["partition.csv", "env.json", "status.json", "privacy.json", "result.json"]
)
def test_a_full_disk(full_from: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From some file on nothing can be written; afterwards the same command ends as ever."""
    write, full = RunFolder.write, False

    def written(folder: RunFolder, name: str, content: Any) -> None:
        nonlocal full
        full = full or name == full_from
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(folder, name, content)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "write", written)
        said = call("run", *SHORT)
    assert (said.code, said.err.count("\n")) == (1, 1), said.err
    assert "No space left on device; expected room to write" in said.err
    assert call("run", *SHORT).code == 0


def test_what_a_killed_process_left_half_written_is_removed() -> None:
    folder = call("run", *SHORT).folder
    (folder / "result.json").unlink()
    left = [
        folder / "status.json.123.part",
        folder / "checkpoint/latest.123.part",
        folder / "checkpoint/memories.x.part",
    ]
    kept = folder / "lock.host.123.4.part"
    for file in (*left, kept):
        file.touch()
    assert call("run", *SHORT).code == 0
    assert not any(file.exists() for file in left)
    assert kept.exists()


def test_a_killed_worker_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Workers._ask

    def killing(self: Workers, *arguments: Any) -> Any:
        pid = self._workers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return ask(self, *arguments)

    monkeypatch.setattr(Workers, "_ask", killing)
    for flags in ((), ("-m",)):
        said = call("run", *flags, *SHORT, "engine.workers=2", "engine.chunk=10")
        assert said.code == 1
        assert "Traceback" not in said.err
        line = next(line for line in said.err.splitlines() if "worker process" in line)
        assert "ended by SIGKILL" in line
        assert "the same command goes on from the checkpoint" in line
