"""Lots: which records of a client each local step looks at, drawn from (seed, round, client)
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpfl_bench import rng
from dpfl_bench.federation import lot_size

DRAWN_AT_ONCE = 2**22  # random numbers: 32 MB, however many steps and records
Lots = Sequence[np.ndarray] | np.ndarray  # one array of record numbers for each local step


@dataclass(frozen=True)
class LotRule:
    """Full batch (neither is given), `batch_size` records without replacement, or each record with
    probability `sample_rate`.
    """

    batch_size: int | None = None
    sample_rate: float | None = None

    @property
    def full(self) -> bool:
        return self.batch_size is None and self.sample_rate is None

    def draw(self, seed: int, round: int, client: int, records: int, steps: int) -> Lots:
        """The lot of each of `steps` local steps of one client with so many records: record numbers
        (0..records-1), in increasing order.
        """
        if self.full:
            return [np.arange(records)] * steps
        draw = rng.generator(seed, "lot", round, client)
        at_once = max(1, DRAWN_AT_ONCE // records)
        blocks = [min(at_once, steps - done) for done in range(0, steps, at_once)]
        if self.batch_size is not None:
            picks = [
                smallest(draw.bit_generator.random_raw(n * records).reshape(n, records), self.batch_size)
                for n in blocks
            ]
            return picks[0] if len(picks) == 1 else np.concatenate(picks)
        assert self.sample_rate is not None
        return [np.flatnonzero(row) for n in blocks for row in draw.random((n, records)) < self.sample_rate]

    def weight(self, records: int) -> float:
        """The weight of a record's gradient in its lot, for a client with so many records.

        A lot without replacement is divided by its size, a Poisson lot by its expected size, never
        by the size that was drawn.
        """
        return 1 / lot_size.expected(self.batch_size, self.sample_rate, records)


def smallest(keys: np.ndarray, count: int) -> np.ndarray:
    """The places of the `count` smallest numbers of each row, in increasing order: (n, m) -> (n,
    count).

    keys: random 64-bit numbers, overwritten. The last bits of each number become its place, and
    move with it. That is faster than argpartition, and no two numbers tie.
    """
    places = np.uint64(2 ** (keys.shape[1] - 1).bit_length() - 1)
    keys |= places
    keys ^= places - np.arange(keys.shape[1], dtype=np.uint64)
    keys.partition(count - 1, axis=1)
    picks = (keys[:, :count] & places).astype(np.int64)
    picks.sort(axis=1)
    return picks


def pad(
    lots: Sequence[Lots], starts: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The s lots of each of c clients as rectangles, one for each step.

    starts: number of each client's first record in the flat store, (c,). weights: of each client's
    records, (c,). Returns the records' numbers in the flat store, (s, c, b), their weights, 0 where
    padded, (s, c, b), and the lots' sizes, (s, c).
    """
    steps = list(zip(*lots, strict=True))
    sizes = np.array([[len(pick) for pick in step] for step in steps])
    width = max(1, sizes.max())
    if sizes.min() == width:
        index = np.stack(lots, axis=1) + starts[:, None]
        return index, np.broadcast_to(weights[:, None], index.shape).copy(), sizes
    index = np.tile(starts[:, None], (len(steps), 1, width))
    real = np.arange(width) < sizes[:, :, None]
    index[real] += np.concatenate([pick for step in steps for pick in step])
    return index, real * weights[:, None], sizes
