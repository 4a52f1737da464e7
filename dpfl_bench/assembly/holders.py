"""Who holds which record, as far as the accounting at record level must know: foreseen without
data, or counted when they are dealt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.federation.parts import counted


@dataclass(frozen=True)
class Holders:
    """What record-level accounting must know of who holds what."""

    smallest: int | None  # records of the smallest client, where lots are a fixed number of them
    counts: np.ndarray = field(default_factory=lambda: np.ones(1, np.int64))  # clients that hold each record
    parts: tuple[np.ndarray, ...] = ()  # each client's records, where a record may sit in several clients

    @property
    def most(self) -> int:
        """Clients that hold the most shared record."""
        return int(self.counts.max(initial=1))

    @staticmethod
    def foreseen(settings: Settings) -> Holders:
        """Without data, from what the files know and `records` says. A partition of which nothing
        is known counts as disjoint.
        """
        if settings.privacy.unit != "record" or not settings.private:
            return Holders(None)
        if settings.dealing is not None and settings.dealing.parts is not None:
            known = settings.dataset["records"]
            if known is None:
                raise ConfigError(
                    "dataset.records=null: expected to know how many records there are, for overlapping"
                    " clients share them"
                )
            try:
                parts = settings.dealing.parts(known, settings.clients, settings.partition)
            except ValueError as error:
                raise ConfigError(str(error)) from None
            return Holders.of(parts, known)
        if settings.lots == "fixed" and settings.smallest_client is None:
            raise ConfigError(
                f"batch_size={settings.batch_size}: expected to know the records of the smallest client, for"
                " the sampling rate follows; say records=N, or sample_rate in place of batch_size"
            )
        return Holders(settings.smallest_client)

    @staticmethod
    def of(parts: Sequence[np.ndarray], records: int) -> Holders:
        """Counted from the federation as it was dealt, whatever the partition says of itself."""
        counts = counted(parts, records)
        return Holders(
            min(len(part) for part in parts), counts, tuple(parts) if counts.max(initial=0) > 1 else ()
        )

    def exposure(self, taken: np.ndarray) -> int:
        """The most releases that any record goes into, over all clients that hold it. taken: each
        client's releases, (M,).
        """
        if not self.parts:
            return int(taken.max(initial=0))
        over = np.zeros(len(self.counts), dtype=np.int64)
        for part, count in zip(self.parts, taken, strict=True):
            over[part] += count
        return int(over.max())
