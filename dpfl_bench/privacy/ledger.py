"""The ledger: what really left the doors. The doors record it, the round player adds up what each
group of clients recorded, and the accountant reads it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np


class OverspentError(RuntimeError):
    """The doors recorded something other than the schedule planned: a bug, never a setting."""


@dataclass
class Ledger:
    """Releases of one seed so far.

    taken: (clients,), how often client i's noised message went out (client level), or how many
    noised gradients client i took (record level).

    sums: name of each further sum -> how often it went out with the messages.
    """

    clients: int
    rounds: int = 0
    taken: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    sums: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.taken):
            self.taken = np.zeros(self.clients, dtype=np.int64)

    def record(self, clients: np.ndarray) -> None:
        """One release by each of these clients. clients: (c,), indices."""
        self.taken[clients] += 1

    def record_sum(self, name: str) -> None:
        """One more sum over the cohort."""
        self.sums[name] = self.sums.get(name, 0) + 1

    def end_round(self) -> None:
        """One more round has been released."""
        self.rounds += 1

    def verify(self, planned: np.ndarray, rounds: int, sums: Collection[str] = ()) -> None:
        """Raise OverspentError unless the doors recorded exactly what the schedule planned so far:
        the accountant counts the plan, so plan and ledger must agree.

        planned: (clients,), releases of each client. rounds: of the schedule so far. sums: the
        names of a round's further sums.
        """
        counted = {name: rounds for name in sums}
        over = {name: count for name, count in self.sums.items() if count > counted.get(name, 0)}
        said = f"the doors recorded {self.rounds} rounds of releases where the schedule planned {rounds}"
        bug = "no result is saved; this is a bug in the algorithm or the engine"
        if self.rounds > rounds or (self.taken > planned).any() or over:
            worst = max(0, int((self.taken - planned).max()))
            raise OverspentError(
                f"{said} (a client was {worst} over its share; further sums too many: {over or 'none'}):"
                f" {bug}"
            )
        missing = [name for name in sums if self.sums.get(name, 0) < rounds]
        if self.rounds < rounds or (self.taken < planned).any() or missing:
            raise OverspentError(
                f"{said} (further sums missing: {missing or 'none'}): something may have passed unrecorded;"
                f" {bug}"
            )
