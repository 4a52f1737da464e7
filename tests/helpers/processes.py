"""What the tests of worker processes look at: who lives, whose children they are, what is open, how
much memory is taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def _state(pid: int) -> list[str] | None:
    """State, parent, process group, ...; None if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def alive(pid: int) -> bool:
    """Neither gone nor waiting to be buried."""
    state = _state(pid)
    return state is not None and state[0] not in "ZX"


def cpu_seconds(pid: int) -> float:
    """That it has computed."""
    state = _state(pid)
    assert state is not None
    return sum(map(int, state[11:13])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    return _with(1, pid)


def descendants(pid: int) -> list[int]:
    return [one for child in children(pid) for one in (child, *descendants(child))]


def leads_a_group(pid: int) -> bool:
    return (_state(pid) or [""] * 3)[2] == str(pid)


def group(pid: int) -> list[int]:
    """Who lives in its process group."""
    return _with(2, pid)


def _with(place: int, number: int) -> list[int]:
    everybody = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return sorted(pid for pid in everybody if alive(pid) and (_state(pid) or [""] * 3)[place] == str(number))


def until(holds: Callable[[], object], seconds: float = 10.0) -> bool:
    """Whether it holds within so many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def all_gone(pids: Iterable[int], seconds: float = 10.0) -> bool:
    pids = list(pids)
    return until(lambda: not any(alive(pid) for pid in pids), seconds)


def open_files() -> list[str]:
    """What this process has open."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the listing's own
            continue
    return sorted(names)


def named_memory(pid: int) -> set[str]:
    """What a process shares under a name: it would stay if everybody were killed now."""
    mapped = {
        line.split(maxsplit=5)[-1]
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        if "/dev/shm/" in line
    }
    opened = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    return {
        name for name in mapped | opened if name.startswith("/dev/shm/") and not name.endswith("(deleted)")
    }


def pss(pid: int, *kinds: str) -> int:
    """Bytes of memory that a process has, its share alone of what several have; of some kinds
    alone, Anon, File or Shmem. Its share of a file's grows when any other program that had it open,
    too, ends.
    """
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    )
    return sum(int(lines[name].split()[0]) for name in ([f"Pss_{kind}" for kind in kinds] or ["Pss"])) * 1024
