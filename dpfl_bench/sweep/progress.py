"""Where a sweep stands, in one line, as its run folders tell it."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dpfl_bench.machine.say import duration, say
from dpfl_bench.results.folder import FINISHED, RunFolder, RunState

SELDOM = 30.0  # seconds between two lines where there is no terminal
SHARE = 0.05  # of the time, at most, that is spent on looking

WAITING = "waiting"


class Progress:
    """Counts all runs of a sweep. Those in `todo` are about to be run, so how they ended earlier
    does not count.
    """

    def __init__(self, runs: Iterable[Path], todo: Iterable[Path]) -> None:
        _one_process()
        self._before = {path: _stamp(path) for path in todo}
        self._folders = {path: RunFolder(path) for path in runs}
        self._words: dict[Path, str] = {path: self._word(path) for path in self._folders}
        self._failures = {p for p, word in self._words.items() if word in ("failed", "diverged")}
        self.busy: set[Any] = set()  # points that another process has; the launcher left them to it
        self._begun, self._ended_before = time.monotonic(), self._ended
        self._next, self._said = 0.0, self._begun
        self._bar: Any = tqdm(bar_format="{desc}", file=sys.stderr, disable=None, leave=False)
        self._show(self.line)

    def update(self, now: bool = False) -> None:
        """Look at the folders, and tell what changed: seldom enough to cost little, or at once."""
        begun = time.monotonic()
        if begun < self._next and not now:
            return
        for path, word in self._words.items():
            if word not in (*FINISHED, "failed"):  # what was interrupted may be requeued
                self._words[path] = self._word(path)
        self._next = begun + max(0.5, (time.monotonic() - begun) / SHARE)
        self._show(self.line)

    def failures(self) -> list[tuple[Path, RunState]]:
        """The runs that `update` has found failed or diverged, each once."""
        bad = [path for path, word in self._words.items() if word in ("failed", "diverged")]
        new = [path for path in bad if path not in self._failures]
        self._failures.update(new)
        return [(path, self._folders[path].state()) for path in new]

    def ended(self, run: Path) -> bool:
        """Whether another process brought it to its end, which may be a failure."""
        return self._word(run) in (*FINISHED, "failed")

    def close(self) -> None:
        self._bar.close()

    @property
    def line(self) -> str:
        """Done, running, failed, and how long it may take."""
        count = Counter(self._words.values())
        failed = count["failed"] + count["diverged"]
        parts = [f"{count['done']} of {len(self._words)} done", f"{count['running']} running"]
        parts += [f"{failed} failed"] if failed else []
        left = self._seconds_left(count[WAITING] + count["running"])
        return "sweep: " + ", ".join([*parts, *([f"about {duration(left)} left"] if left else [])])

    @property
    def _ended(self) -> int:
        return sum(word not in (WAITING, "running") for word in self._words.values())

    def _seconds_left(self, runs: int) -> float | None:
        ended = self._ended - self._ended_before
        return runs * (time.monotonic() - self._begun) / ended if ended and runs else None

    def _word(self, path: Path) -> str:
        if not path.exists():
            return WAITING
        state = self._folders[path].state()
        if state.finished or state.word == "running":
            return state.word
        untouched = path in self._before and self._before[path] == _stamp(path)
        return WAITING if untouched or state.word == "missing" else state.word

    def _show(self, line: str) -> None:
        if not self._bar.disable:
            self._bar.set_description_str(line)
        elif time.monotonic() - self._said > SELDOM:
            say(line)
            self._said = time.monotonic()


def _stamp(run: Path) -> tuple[int, int] | None:
    """Changes when a run's status is written."""
    try:
        status = (run / "status.json").stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_ino


def _one_process() -> None:
    """tqdm's lock is shared with forked processes and stays locked when one of them is killed; its
    thread should not be forked.
    """
    tqdm.monitor_interval = 0
    tqdm.set_lock(threading.RLock())
