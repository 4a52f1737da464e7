"""Where a run stands, now and then: in status.json for `dpfl-bench status`, and in a line where no
terminal shows a bar.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpfl_bench.machine.say import say
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.standing import Standing, measured

SOON, SELDOM = 5.0, 30.0  # seconds to the first word in status.json, and between two


@dataclass
class Pulse:
    """name: of the run, as lines call it. done: rounds of all seeds, of in_all, that were played
    before.
    """

    folder: RunFolder
    name: str
    done: int
    in_all: int
    row: Mapping[str, Any] = field(default_factory=dict)  # the last one of metrics.csv
    played: int = 0
    begun: float = field(default_factory=lambda: time.monotonic())

    def __post_init__(self) -> None:
        self._told, self._said = self.begun + SOON - SELDOM, self.begun

    def evaluated(self, row: Mapping[str, Any]) -> None:
        self.row = row

    def beat(self, seed: int, round: int, rounds: int) -> None:
        """After each round: `round` of `rounds` of this seed."""
        self.played += 1
        now = time.monotonic()
        if now - self._told < SELDOM and now - self._said < SELDOM:
            return
        done = self.done + self.played
        left = (now - self.begun) / self.played * (self.in_all - done)
        standing = Standing(seed, round, rounds, done, self.in_all, measured(self.row), round_off(left))
        if now - self._told >= SELDOM:
            self.folder.tell("running", progress=standing.json())
            self._told = now
        if now - self._said >= SELDOM:
            if not sys.stderr.isatty() and not os.environ.get("DPFL_QUIET"):
                say(f"{self.name}: {standing}")
            self._said = now


def round_off(seconds: float) -> float:
    return float(f"{seconds:.3g}")
