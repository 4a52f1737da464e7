"""The ledger: what really left the doors. Written only by the doors, read by the accountant."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from dpfl_bench.privacy.releases import Releases


class OverspentError(RuntimeError):
    """The doors recorded something else than the schedule planned: a bug, never a setting."""


@dataclass
class Ledger:
    """Releases of one seed so far. `taken[i]`: how often client i's (noisy) message went out."""

    clients: int
    rounds: int = 0
    taken: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not len(self.taken):
            self.taken = np.zeros(self.clients, dtype=np.int64)

    def record(self, cohort: np.ndarray) -> None:
        """One release of the cohort's messages."""
        self.taken[cohort] += 1
        self.rounds += 1

    def check(self, allowed: np.ndarray, rounds: int) -> None:
        """Raise if the doors recorded more than the schedule (participation per client, rounds) allowed."""
        if self.rounds > rounds or (self.taken > allowed).any():
            worst = int((self.taken - allowed).max())
            raise OverspentError(
                f"the doors recorded {self.rounds} releases where the schedule allowed {rounds} "
                f"(a client was {max(worst, 0)} over its share): no result is saved; this is a bug in the algorithm or the engine"
            )

    def settle(self, allowed: np.ndarray, rounds: int) -> None:
        """At the end of a private run: raise unless exactly what was planned has been recorded, so that the plan is the ledger."""
        self.check(allowed, rounds)
        if self.rounds < rounds or (self.taken < allowed).any():
            raise OverspentError(
                f"the doors recorded {self.rounds} releases where the schedule planned {rounds}: something may have passed unrecorded; "
                "no result is saved; this is a bug in the algorithm or the engine"
            )

    def so_far(self, planned: Releases) -> Releases:
        """The planned releases cut back to what has happened."""
        return dataclasses.replace(planned, rounds=self.rounds, worst=int(self.taken.max(initial=0)))
