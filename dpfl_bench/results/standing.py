"""Where a run stands, for whoever waits for it: status.json's `progress`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpfl_bench.machine.say import duration
from dpfl_bench.results.folder import BROKEN, RunFolder

SHOWN = (("test_error", "test error"), ("train_loss", "training loss"))


@dataclass(frozen=True)
class Standing:
    """round: of this seed. done, in_all: rounds of all seeds. measured: the last evaluated row of
    metrics.csv, its numbers that say how good the model is and what it spent. seconds_left: at the
    pace so far.
    """

    seed: int
    round: int
    rounds: int
    done: int
    in_all: int
    measured: Mapping[str, float]
    seconds_left: float

    def json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        seed = f" of seed {self.seed}" if self.in_all > self.rounds else ""
        parts = [f"round {self.round} of {self.rounds}{seed}"]
        known = next(((key, name) for key, name in SHOWN if key in self.measured), None)
        if known:
            parts.append(f"{known[1]} {self.measured[known[0]]:.4f}")
        if "eps" in self.measured:
            parts.append(f"eps {self.measured['eps']:.4g} so far")
        if self.measured.get("round", self.round) != self.round:
            parts[-1] += f" (after round {self.measured['round']:g})"
        return ", ".join([*parts, f"about {duration(self.seconds_left)} left"])

    @staticmethod
    def of(folder: RunFolder) -> Standing | None:
        """Of a running run, as its process last told; None before that."""
        try:
            told = (folder.read("status.json") or {})["progress"]
            standing = Standing(**told)
            str(standing)  # what is no number is not ours
        except (*BROKEN, OSError):
            return None
        return standing


def measured(row: Mapping[str, Any]) -> dict[str, float]:
    """What of an evaluated row is shown: without empty cells, and without an infinite eps."""
    keys = ("round", "eps", *(key for key, _ in SHOWN))
    return {key: float(row[key]) for key in keys if row.get(key) is not None and math.isfinite(row[key])}
