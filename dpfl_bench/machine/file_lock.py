"""One process at a time, by the system's lock on a file: flock, or Windows' own. Where there is
neither, and on file systems without locks, nobody waits.

Run folders have a lock of their own, which needs none of the system's (`results/lock.py`).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

CONTENDED = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
POLL = 0.05  # seconds between two tries, on Windows


@contextmanager
def alone(path: Path, keep: bool = False) -> Iterator[None]:
    """One process (or thread) at a time. The system lifts the lock of a process that dies.

    path: the lock, a file that holds nothing. keep: it stays; else it is removed afterwards (on
    Windows: where nobody waits for it).
    """
    while True:
        with path.open("ab") as opened:
            _take(opened)
            if not keep and not _still_there(opened, path):
                continue  # whoever had it has removed it
            try:
                yield
            finally:
                if not keep:
                    with suppress(OSError):  # Windows: not while it is open
                        path.unlink()
        if os.name == "nt" and not keep:
            with suppress(OSError):  # somebody waits for it
                path.unlink()
        return


def _take(file: IO[bytes]) -> None:
    """Wait for the lock on an open file."""
    with suppress(ImportError):
        import fcntl

        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        return
    with suppress(ImportError):
        _take_on_windows(file)


def _take_on_windows(file: IO[bytes]) -> None:
    import msvcrt as windows

    module: Any = windows
    while True:
        try:
            file.seek(0)
            module.locking(file.fileno(), module.LK_NBLCK, 1)
            return
        except OSError as error:
            if error.errno not in CONTENDED:
                return
        time.sleep(POLL)


def _still_there(opened: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False
