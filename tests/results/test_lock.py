"""One process at a time in a run folder: real processes, killed ones, two that take over at once,
hosts that cannot see each other.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from helpers.command import QUICK, call, read
from helpers.federations import settings_of

from dpfl_bench.results import lock
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.lock import Busy, Lost, Owner, holder, locked

HOLD = """
import sys, time
from pathlib import Path
from dpfl_bench.results.lock import locked
with locked(Path(sys.argv[1])):
    print("holding", flush=True)
    sys.stdin.read()
"""
# Takes the folder again and again. While it has it, it makes a file that nobody else may have made.
CONTEND = """
import os, random, sys, time
from pathlib import Path
from dpfl_bench.results import lock
folder, until = Path(sys.argv[1]), time.time() + float(sys.argv[2])
taken = 0
while time.time() < until:
    try:
        with lock.locked(folder):
            mark = os.open(folder / "mark", os.O_CREAT | os.O_EXCL)
            time.sleep(.002 * random.random())
            os.close(mark)
            os.unlink(folder / "mark")
            taken += 1
    except lock.Busy:
        time.sleep(.001 * random.random())
print(taken)
"""
# The same, but dies with the folder in its hands: whoever comes next takes it from a dead owner.
DIE = """
import os, sys
from pathlib import Path
from dpfl_bench.results import lock
folder = Path(sys.argv[1])
while True:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        if (folder / "enough").exists():
            break
        continue
    try:
        with lock.locked(folder):
            mark = os.open(folder / "mark", os.O_CREAT | os.O_EXCL)
            with open(folder / "taken", "a") as file:
                file.write("x")
            os.close(mark)
            os.unlink(folder / "mark")
            os.kill(os.getpid(), 9)
    except lock.Busy:
        os._exit(0)
    except BaseException:
        import traceback
        traceback.print_exc()
        (folder / "enough").touch()
        os._exit(1)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Python programs that end with the test."""
    running: list[subprocess.Popen[str]] = []

    def started(program: str, *arguments: object) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running.append(
            subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], text=True, **pipes)
        )  # type: ignore[call-overload]
        return running[-1]

    yield started
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def other(start: Start, tmp_path: Path) -> subprocess.Popen[str]:
    """A process that holds tmp_path/run."""
    process = start(HOLD, tmp_path / "run")
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    return process


def claims(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("lock.*"))


def claimed_by(folder: Path, owner: Owner, silent: float = 0) -> None:
    """What an owner elsewhere would have left."""
    folder.mkdir(exist_ok=True)
    (folder / "lock.1").write_text(json.dumps(asdict(owner)))
    os.utime(folder / "lock.1", (time.time() - silent,) * 2)


def test_one_at_a_time(other: subprocess.Popen[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    owner = holder(folder)
    assert owner is not None
    assert (owner.pid, owner.host) == (other.pid, platform.node())
    with pytest.raises(Busy) as refused, locked(folder):
        pass
    assert str(refused.value).startswith(
        f"{folder}: process {other.pid} on {platform.node()} works on this run since 20"
    )
    assert str(refused.value).endswith("; expected nobody; wait for it, or stop it")
    assert claims(folder) == ["lock.1"]
    other.communicate()
    assert holder(folder) is None
    with locked(folder) as claim:
        assert claim.number == 2
        assert claims(folder) == ["lock.2"], "claims that had their time are gone"


def test_a_killed_holder_is_followed(other: subprocess.Popen[str], tmp_path: Path) -> None:
    other.kill()
    other.wait()
    assert holder(tmp_path / "run") is None
    with locked(tmp_path / "run"):
        owner = holder(tmp_path / "run")
        assert owner is not None
        assert owner.pid == os.getpid()


def test_a_killed_holder_that_nobody_buried_is_followed(other: subprocess.Popen[str], tmp_path: Path) -> None:
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    os.kill(other.pid, 0)  # its number is still taken
    assert holder(tmp_path / "run") is None


def test_a_stopped_holder_keeps_the_folder(other: subprocess.Popen[str], tmp_path: Path) -> None:
    """On the same host it is seen to live, however long it has been silent."""
    os.kill(other.pid, signal.SIGSTOP)
    os.utime(tmp_path / "run" / "lock.1", (0, 0))
    assert holder(tmp_path / "run") is not None


def test_waiting(other: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "POLL", 0.01)
    pauses = iter(range(3))

    def sleep(seconds: float, real: Callable[[float], None] = time.sleep) -> None:
        if next(pauses, None) is None:
            other.kill()
            other.wait()
        real(seconds)

    monkeypatch.setattr(lock.time, "sleep", sleep)
    with locked(tmp_path / "run", wait=True) as claim:
        assert claim.number == 2


def test_the_pid_was_given_to_another_process(other: subprocess.Popen[str], tmp_path: Path) -> None:
    """The claim names a living pid, but that process began at another time."""
    owner = holder(tmp_path / "run")
    assert owner is not None
    folder = tmp_path / "elsewhere"
    claimed_by(folder, owner)
    assert holder(folder) == owner
    claimed_by(folder, replace(owner, started="1"))
    assert holder(folder) is None
    with locked(folder):
        pass


@pytest.mark.parametrize(
    "where", [{"host": "another"}, {"space": "another start of this host, or another container"}]
)
def test_out_of_sight_silence_decides(where: dict[str, str], tmp_path: Path) -> None:
    """Its pid means nothing here: neither a living nor a dead one of that number."""
    owner = replace(Owner.here(), **where)
    for pid in (os.getpid(), 2**22 + 1):
        claimed_by(tmp_path / "run", replace(owner, pid=pid), silent=0.9 * lock.SILENCE)
        assert holder(tmp_path / "run") is not None
        with pytest.raises(Busy), locked(tmp_path / "run"):
            pass
        claimed_by(tmp_path / "run", replace(owner, pid=pid), silent=1.1 * lock.SILENCE)
        assert holder(tmp_path / "run") is None
    with locked(tmp_path / "run"):
        pass


def test_silence_is_told_by_the_clock_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose own clock is hours ahead takes nothing from a living owner."""
    claimed_by(tmp_path / "run", replace(Owner.here(), host="another"))
    monkeypatch.setattr(lock.time, "time", lambda: 1e10)
    with pytest.raises(Busy), locked(tmp_path / "run"):
        pass


def test_the_holder_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT", 0.01)
    with locked(tmp_path / "run"):
        os.utime(tmp_path / "run" / "lock.1", (0, 0))
        until = time.monotonic() + 10
        while (tmp_path / "run" / "lock.1").stat().st_mtime == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert (tmp_path / "run" / "lock.1").stat().st_mtime > 0


def test_whoever_stood_still_looks_before_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host slept, another one took the folder over: the claim is lost, and not let go of a
    second time.
    """
    folder = tmp_path / "run"
    with locked(folder) as claim:
        claim.check()
        claimed_by(tmp_path / "theirs", replace(Owner.here(), host="another"))
        (tmp_path / "theirs" / "lock.1").rename(folder / "lock.2")
        claim.check()  # it looked a moment ago
        monkeypatch.setattr(lock.time, "time", lambda: claim._seen + lock.SILENCE)
        with pytest.raises(Lost, match="taken over by another process while this one stood still"):
            claim.check()
    owner = holder(folder)
    assert owner is not None
    assert owner.host == "another"


def test_a_finished_run_keeps_no_trace(tmp_path: Path) -> None:
    with locked(tmp_path / "run") as claim:
        claim.finished = True
    assert claims(tmp_path / "run") == []


def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*names: Path) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(lock.os, "link", link)
    with locked(tmp_path / "run"):
        with pytest.raises(Busy), locked(tmp_path / "run"):
            pass
        (tmp_path / "run" / "lock.1").write_text("")  # as it is for a moment
        with pytest.raises(Busy, match="an unknown host"), locked(tmp_path / "run"):
            pass


def test_a_lost_answer_of_the_server_is_no_defeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link was made, the answer got lost, and the second try finds it there."""
    real = os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)
        real(source, target)

    monkeypatch.setattr(lock.os, "link", link)
    with locked(tmp_path / "run"):
        assert claims(tmp_path / "run") == ["lock.1"]


def test_a_taker_that_saw_an_old_listing_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It saw no claim, or a lower one that was free, while the folder has long been another's under
    a higher number.
    """
    folder = tmp_path / "run"
    claimed_by(folder, replace(Owner.here(), host="another"))
    (folder / "lock.1").rename(folder / "lock.5")
    real = lock._claims
    for seen in ([], [2]):
        listings = iter([seen])
        with monkeypatch.context() as late:
            late.setattr(lock, "_claims", lambda path, listings=listings: next(listings, real(path)))
            with pytest.raises(Busy), locked(folder):
                pass
        assert claims(folder) == ["lock.5"]


@pytest.mark.slow
def test_takers_at_once_never_both_win(start: Start, tmp_path: Path) -> None:
    """Four processes, hundreds of takings: a second owner would find the first one's mark."""
    (tmp_path / "run").mkdir()
    takers = [start(CONTEND, tmp_path / "run", 4) for _ in range(4)]
    said = [taker.communicate(timeout=60) for taker in takers]
    assert [taker.returncode for taker in takers] == [0] * 4, said
    taken = [int(out) for out, _ in said]
    assert sum(taken) > 200
    assert min(taken) > 0


@pytest.mark.slow
def test_takers_of_dead_owners_never_both_win(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    takers = [start(DIE, folder) for _ in range(4)]
    time.sleep(4)
    (folder / "enough").touch()
    said = [taker.communicate(timeout=60) for taker in takers]
    assert [taker.returncode for taker in takers] == [0] * 4, said
    assert not any(errors for _, errors in said), said
    assert (folder / "taken").stat().st_size > 100


# --- in the run's folder ---


def test_run_says_who_holds_it(start: Start) -> None:
    given = ("total_steps=10", *QUICK)
    folder = Path("outputs/runs", settings_of(*given).run_id)
    process = start(HOLD, folder.absolute())
    assert process.stdout is not None
    process.stdout.readline()
    said = call("run", *given)
    assert said.code == 1
    assert said.out == ""
    assert said.err.startswith(
        f"dpfl-bench: {folder}: process {process.pid} on {platform.node()} works on this run since "
    )
    assert RunFolder(folder).state().word == "running"
    assert not (folder / "status.json").exists()
    process.kill()
    process.wait()
    assert RunFolder(folder).state().word == "missing"
    assert call("run", *given).folder == folder
    assert claims(folder) == []


def test_what_becomes_of_a_run_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes nothing more, not even that it failed: the folder is another's."""
    real = lock.Claim.check
    monkeypatch.setattr(
        lock.Claim,
        "check",
        lambda claim: (setattr(claim, "lost", (claim.folder / "metrics.csv").exists()), real(claim)),
    )
    said = call("run", "total_steps=10", *QUICK)
    assert said.code == 1
    assert said.err.endswith(": taken over by another process while this one stood still\n")
    (folder,) = Path("outputs/runs").iterdir()
    assert read(folder, "status.json")["status"] == "running"
    assert not (folder / "result.json").exists()
