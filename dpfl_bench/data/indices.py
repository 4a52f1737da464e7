"""partition.npz: which of the source's training records went to which client, and which became test
records.

Places are those in the training records as the loader gives them, before anything is split off or
put in another order. So the split can be rebuilt elsewhere, from the same source and this file
alone (numpy reads it, no pickles).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Indices:
    records: int  # of the source, for training
    clients: list[np.ndarray]  # the places of each client's records
    test: np.ndarray  # those of the test records that were split off; empty where the source has a test set

    @staticmethod
    def of(
        records: int,
        split_off: np.ndarray | None,
        parts: list[np.ndarray],
        taken: np.ndarray | None = None,
    ) -> Indices:
        """parts: of the records that were left after `split_off` (a mask) was taken away. taken:
        places of those that were dealt before the split; None: all.
        """
        places = np.arange(records) if taken is None else taken
        test = np.zeros(len(places), bool) if split_off is None else split_off
        left = places[~test]
        return Indices(records, [left[part] for part in parts], places[test])

    @property
    def parts(self) -> list[np.ndarray]:
        """As the partition dealt them: places among the records that are left. `parts.digest`
        of these is the hash in result.json.
        """
        left = np.ones(self.records, bool)
        left[self.test] = False
        place = np.cumsum(left) - 1
        return [place[client] for client in self.clients]

    def save(self, path: Path) -> None:
        kind = np.int32 if self.records < 2**31 else np.int64
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        with part.open("wb") as file:
            np.savez_compressed(
                file,
                records=np.int64(self.records),
                sizes=np.array([len(client) for client in self.clients], kind),
                indices=np.concatenate(self.clients).astype(kind),
                test=self.test.astype(kind),
            )
        part.replace(path)

    @staticmethod
    def read(path: Path | str) -> Indices:
        with np.load(path, allow_pickle=False) as saved:
            ends = np.cumsum(saved["sizes"])[:-1]
            clients = np.split(saved["indices"].astype(np.int64), ends)
            return Indices(int(saved["records"]), clients, saved["test"].astype(np.int64))
