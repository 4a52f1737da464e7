"""Ctrl-C, SIGTERM and SIGUSR2 (Slurm's before preemption): the first asks to stop where nothing is
lost, the second stops at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

PREEMPTION = getattr(signal, "SIGUSR2", None)  # Windows has none
ASKING = (signal.SIGINT, signal.SIGTERM, *([PREEMPTION] if PREEMPTION else []))
KILL = getattr(signal, "SIGKILL", None)
CODES = tuple(128 + number for number in ASKING)  # exit codes of a process that was asked to stop


class WorkerDied(RuntimeError):
    """A worker process ended before its time."""


class Interrupted(Exception):
    """A signal asked to stop, and what was under way is safe on disk."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number
        self.exit_code = 128 + number


@dataclass
class Stop:
    number: int | None = None  # of the signal that asked
    eager: bool = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        if self.eager:
            raise Interrupted(number)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Where nothing is there to be saved, the first signal raises Interrupted."""
        self.eager = True
        try:
            if self.number is not None:
                raise Interrupted(self.number)
            yield
        finally:
            self.eager = False


_current: Stop | None = None


@contextmanager
def graceful() -> Iterator[Stop]:
    """Inside, the first signal only sets `number`; the caller looks at it where stopping is safe. A
    second signal raises KeyboardInterrupt. A nested call gives the outer one's Stop.
    """
    global _current
    if _current is not None:
        yield _current
        return
    _current = Stop()
    previous = {number: signal.signal(number, _current.ask) for number in ASKING}
    try:
        yield _current
    finally:
        _current = None
        for number, handler in previous.items():
            signal.signal(number, handler)


def forget() -> None:
    """In a forked process: give the signals their usual meaning back."""
    global _current
    _current = None
    for number in ASKING:
        signal.signal(number, signal.SIG_DFL)
