"""Who holds which record, as far as the accounting at record level must know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dpfl_bench.federation.parts import counted


@dataclass(frozen=True)
class Holders:
    """The clients that hold each record.

    smallest: records of the smallest client; None where the accounting does not need it.
    counts: number of clients that hold each record, (records,); by default one client each.
    parts: each client's record indices; empty where no record sits in two clients.
    """

    smallest: int | None
    counts: np.ndarray = field(default_factory=lambda: np.ones(1, np.int64))
    parts: tuple[np.ndarray, ...] = ()

    @property
    def most(self) -> int:
        """Number of clients that hold the most shared record."""
        return int(self.counts.max(initial=1))

    @staticmethod
    def of(parts: Sequence[np.ndarray], records: int) -> Holders:
        """The holders of records as they were dealt, whatever the partition says of itself.

        parts: each client's record indices. records: number of all training records.
        Raises ValueError for parts that no partition may deal.
        """
        counts = counted(parts, records)
        shared = counts.max(initial=0) > 1
        return Holders(min(len(part) for part in parts), counts, tuple(parts) if shared else ())

    def exposure(self, taken: np.ndarray) -> int:
        """The most releases that any record goes into, added up over all clients that hold it.

        taken: number of releases of each client, (clients,).
        """
        return int(self._releases(taken).max(initial=0))

    def exposure_of_each(self, taken: np.ndarray) -> np.ndarray:
        """The same of each client's own records alone, (clients,)."""
        releases = self._releases(taken)
        return np.array([releases[part].max() for part in self.parts]) if self.parts else releases

    def _releases(self, taken: np.ndarray) -> np.ndarray:
        """The releases that each record goes into, (records,). Where no record sits in two clients,
        those of each client's records, (clients,).
        """
        if not self.parts:
            return taken
        releases = np.zeros(len(self.counts), dtype=np.int64)
        for part, count in zip(self.parts, taken, strict=True):
            releases[part] += count
        return releases
