"""One process at a time in a run folder, on one host or on several that share the folder; needs no
file locks of the server.

lock.1, lock.2, ... are claims; the highest one counts. A claim is made by a hard link, which is
atomic over NFS too, and one whose owner is dead or has let go is followed by the next number, never
removed first: of two takers only one gets the number. An owner is dead if its process is gone (told
by pid and start time, where both see the same processes) or if its claim was not touched for
SILENCE seconds, by the clock of the file system. An owner that was silent for long looks before it
writes.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

BEAT = 10.0  # seconds between two touches
SILENCE = 120.0  # without a touch, after which an owner that cannot be seen is dead
POLL = 1.0  # seconds between two looks of a process that waits


@dataclass(frozen=True)
class Owner:
    host: str
    space: str  # in which the pid means something: this start of the system, this namespace
    pid: int
    started: str  # a pid is given again
    since: str

    @staticmethod
    def here() -> Owner:
        pid = os.getpid()
        return Owner(
            platform.node(),
            _space(),
            pid,
            _started(pid) or "",
            datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def alive(self, silent: float) -> bool:
        if os.name == "nt" and self.pid == os.getpid() and self.host == platform.node():
            return True
        if os.name == "nt" or (self.host, self.space) != (platform.node(), _space()):
            return silent < SILENCE  # Windows has no signal 0: there it would end the process
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        started = _started(self.pid)
        return silent < SILENCE if started is None else started == self.started


class Busy(ValueError):
    """A living process works in this run folder."""

    def __init__(self, folder: Path, owner: Owner) -> None:
        super().__init__(
            f"{folder}: process {owner.pid} on {owner.host} works on this run since {owner.since}; expected"
            " nobody; wait for it, or stop it"
        )


class Lost(RuntimeError):
    """Another process took the folder over, for this one gave no sign of life."""


@dataclass
class Claim:
    """The folder is ours until `release`."""

    folder: Path
    number: int
    lost: bool = False
    finished: bool = False  # to be set where nobody will want the folder again
    _seen: float = field(default_factory=time.time)
    _ended: threading.Event = field(default_factory=threading.Event)

    def beat(self) -> None:
        """Touch the claim every BEAT seconds, until the end."""
        while not self._ended.wait(BEAT):
            self._look()

    def check(self) -> None:
        """Raise Lost if the folder is no longer ours; to be called before anything is written."""
        if time.time() - self._seen > SILENCE / 2:  # this process, or its machine, stood still
            self._look()
        if self.lost:
            raise Lost(f"{self.folder}: taken over by another process while this one stood still")

    def moved(self, folder: Path) -> None:
        """The folder has been given another name, under which nobody works."""
        self._ended.set()
        self.folder, self.finished = folder, True

    def release(self) -> None:
        self._ended.set()
        if self.finished:
            for number in _claims(self.folder):
                _path(self.folder, number).unlink(missing_ok=True)
        elif not self.lost and max(_claims(self.folder), default=0) == self.number:
            _part(self.folder, "{}").replace(_path(self.folder, self.number))

    def _look(self) -> None:
        try:
            self.lost = self.lost or max(_claims(self.folder), default=0) != self.number
            if not self.lost:
                os.utime(_path(self.folder, self.number))
                self._seen = time.time()
        except OSError:  # the server is away for a while
            pass


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[Claim]:
    """The folder for us alone. Raises Busy where another process has it, or waits until that one
    ends.
    """
    while not isinstance(claim := _claim(folder), Claim):
        if not wait:
            raise Busy(folder, claim)
        time.sleep(POLL)
    threading.Thread(target=claim.beat, daemon=True).start()
    try:
        yield claim
    finally:
        with suppress(OSError):  # a full disk: the claim counts until its owner is dead
            claim.release()


def holder(folder: Path) -> Owner | None:
    """The living process that works in a folder."""
    highest = max(_claims(folder), default=0)
    return _living(_path(folder, highest), time.time()) if highest else None


def _claim(folder: Path) -> Claim | Owner:
    """A claim of ours, or whoever has a living one."""
    folder.mkdir(parents=True, exist_ok=True)
    part = _part(folder, json.dumps(asdict(Owner.here())))
    now = part.stat().st_mtime
    try:
        while True:
            highest = max(_claims(folder), default=0)
            owner = _living(_path(folder, highest), now) if highest else None
            if owner:
                return owner
            if _linked(part, _path(folder, highest + 1)) and _is_ours(folder, highest + 1):
                return Claim(folder, highest + 1)
    finally:
        part.unlink(missing_ok=True)


def _is_ours(folder: Path, number: int) -> bool:
    """Lower claims have had their time. A higher one was made by a process that saw more than we
    did.
    """
    present = _claims(folder)
    won = max(present, default=0) == number
    for other in present:
        if (other < number) if won else (other == number):
            _path(folder, other).unlink(missing_ok=True)
    return won


def _claims(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [int(name[5:]) for name in names if name.startswith("lock.") and name[5:].isdigit()]


def _path(folder: Path, number: int) -> Path:
    return folder / f"lock.{number}"


def _living(claim: Path, now: float) -> Owner | None:
    try:
        fields_of_owner, silent = json.loads(claim.read_text()), now - claim.stat().st_mtime
        owner = Owner(**fields_of_owner) if fields_of_owner else None  # empty: its owner let go
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):  # being written, where there are no hard links
        owner, silent = Owner("an unknown host", "", 0, "", "a moment"), now - claim.stat().st_mtime
    return owner if owner and owner.alive(silent) else None


def _part(folder: Path, text: str) -> Path:
    """A file of ours alone, under a name that is no claim."""
    part = folder / f"lock.{platform.node()}.{os.getpid()}.{threading.get_ident()}.part"
    part.unlink(missing_ok=True)  # of a dead process with our pid; it may be linked to its claim
    with part.open("x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return part


def _linked(part: Path, claim: Path) -> bool:
    try:
        os.link(part, claim)
    except FileExistsError:
        return _same(part, claim)  # a lost answer of the server: it was linked, and the second try failed
    except OSError:  # a file system without hard links
        try:
            with claim.open("x") as file:
                file.write(part.read_text())
        except FileExistsError:
            return False
    return True


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except FileNotFoundError:
        return False


def _space() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When the process started, `dead` for one that only waits to be buried, None where this cannot
    be seen.
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:
            said = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
        except OSError:  # no ps
            return None
        return said.stdout.strip() or None
    return "dead" if state in "ZX" else rest[18]
