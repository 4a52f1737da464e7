"""Lots: which records of a client each local step looks at, drawn from (seed, round, client) alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpfl_bench import rng


@dataclass(frozen=True)
class LotRule:
    """Full batch (neither is given), `batch_size` records without replacement, or each record with probability `sample_rate`."""

    batch_size: int | None = None
    sample_rate: float | None = None

    @property
    def full(self) -> bool:
        return self.batch_size is None and self.sample_rate is None

    def draw(self, seed: int, round: int, client: int, records: int, steps: int) -> list[tuple[np.ndarray, float]]:
        """For each of `steps` local steps: the record numbers (0..records-1) and the weight of each one's gradient.

        A lot without replacement is averaged; a Poisson lot is divided by its expected size, never by its realised one.
        """
        weight = self.weight(records)
        if self.full:
            return [(np.arange(records), weight)] * steps
        draw = rng.generator(seed, "lot", round, client)
        if self.batch_size is not None:
            picks = draw.random((steps, records)).argpartition(self.batch_size - 1, axis=1)[:, : self.batch_size]
            return [(pick, weight) for pick in picks]
        assert self.sample_rate is not None
        taken = draw.random((steps, records)) < self.sample_rate
        return [(np.flatnonzero(row), weight) for row in taken]

    def weight(self, records: int) -> float:
        """Of a record in its lot, for a client with so many."""
        return 1 / (self.batch_size or records * (self.sample_rate or 1))


def pad(lots: Sequence[tuple[np.ndarray, float]], starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """n lots as rectangles: record index (n, b) into the flat store and weight (n, b), 0 where padded. starts: of their clients, (n,)."""
    widths = {len(pick) for pick, _ in lots}
    width = max(widths, default=0)
    if widths == {width} and width > 0:
        return np.stack([pick for pick, _ in lots]) + starts[:, None], np.repeat([[w] for _, w in lots], width, axis=1)
    index = np.repeat(starts[:, None], max(width, 1), axis=1)
    weight = np.zeros(index.shape)
    for row, (pick, w) in enumerate(lots):
        index[row, : len(pick)] += pick
        weight[row, : len(pick)] = w
    return index, weight
