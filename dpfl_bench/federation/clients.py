"""All clients' records as one flat store with offsets, on one device: client i owns rows offsets[i]
to offsets[i + 1].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.data.records import Records
from dpfl_bench.federation.sampling import LotRule, Lots, pad
from dpfl_bench.machine import device as device_formats
from dpfl_bench.problems.problem import Batch, in_dtype


class Federation:
    """The clients' training records and the global test set. M clients, n training records.

    `features` (n, *shape), `targets` (n, ...), `record_weights` (n,): of the training records,
    client by client. `sizes` (M,): how many each client has. `test_owners`: the client of each test
    record, or None.
    """

    def __init__(
        self,
        records: Records,
        parts: list[np.ndarray],
        lots: LotRule,
        device: torch.device,
        dtype: torch.dtype,
    ):
        """parts: the numbers of each client's records. lots: which records a local step looks
        at.
        """
        order = np.concatenate(parts)
        in_order = np.array_equal(order, np.arange(len(records.train_y)))
        # records in order (`prepare.arranged`) are not copied
        x, y = (column if in_order else column[order] for column in (records.train_x, records.train_y))
        self.sizes = np.array([len(part) for part in parts])
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)])
        self.lots = lots
        self.dtype = dtype
        self.features, self.targets = self._store(x, y, device)
        self.test_features, self.test_targets = self._store(records.test_x, records.test_y, device)
        natural = records.owners is not None and all(
            (records.owners[part] == i).all() for i, part in enumerate(parts)
        )
        # where clients are the data's own, each has a test set of its own
        owners = records.test_owners if natural else None
        self.test_owners = (
            None if owners is None else torch.from_numpy(np.ascontiguousarray(owners)).to(device)
        )
        weights = np.repeat(1 / (len(parts) * self.sizes), self.sizes)
        self.record_weights = torch.from_numpy(weights).to(device_formats.wide(device)).to(device)
        self.scored: Tensor | None = None  # rows of the training records that are scored; None: all
        self._full_batch: tuple[bytes, Batch] | None = None

    def score_only(self, rows: np.ndarray) -> None:
        """From now on the training loss is that of these records."""
        self.scored = torch.from_numpy(np.sort(rows)).to(self.features.device)

    @property
    def scored_weights(self) -> Tensor:
        """Of the training records that are scored, in the training loss; they sum to 1."""
        if self.scored is None:
            return self.record_weights
        weights = self.record_weights[self.scored]
        return weights / weights.sum()

    def _store(self, x: np.ndarray, y: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
        features, targets = (
            torch.from_numpy(np.require(values, requirements=["C", "W"])) for values in (x, y)
        )
        if features.is_floating_point():  # images stay uint8 until their batch
            features = features.to(self.dtype)
        if targets.is_floating_point():
            targets = targets.to(self.dtype)
        return features.to(device), targets.to(device)

    @property
    def clients(self) -> int:
        return len(self.sizes)

    def batches(self, seed: int, round: int, clients: np.ndarray, steps: int) -> Iterator[Batch]:
        """Draw the lots of one round: yields one batch a local step.

        clients: their indices, (c,). steps: how many batches.
        """
        if self.lots.full:
            batch = self._whole(clients)
            yield from (batch for _ in range(steps))
            return
        rows, weights, sizes = self._padded(
            [self.lots.draw(seed, round, int(i), int(self.sizes[i]), steps) for i in clients], clients
        )
        for lots, weight, size in zip(rows, weights, sizes, strict=True):
            widest = max(1, int(size.max()))
            yield self._gather(lots.narrow(1, 0, widest), weight.narrow(1, 0, widest), size)

    def lot_weights(self, clients: np.ndarray) -> Tensor:
        """The weight of one record in a lot of each of these clients, (c,): one over the lot's
        (expected) size.
        """
        return device_formats.placed(self._weights(clients), self.features, self.dtype)

    def whole_in_float64(self, clients: np.ndarray) -> Iterator[Batch]:
        """Full batches of these clients in float64, one client at a time."""
        for i in clients:
            rows = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
            features = in_dtype(self.features[rows], self.dtype).double()
            targets = self.targets[rows]
            weights = features.new_full((1, len(targets)), 1 / len(targets))
            targets = targets.double() if targets.is_floating_point() else targets
            yield Batch(features[None], targets[None], weights, [len(targets)])

    def _whole(self, clients: np.ndarray) -> Batch:
        """The full batch of some clients. The last one is kept, so that a federation that fits one
        chunk is gathered once.
        """
        key = clients.tobytes()
        if self._full_batch is None or self._full_batch[0] != key:
            rows, weights, sizes = self._padded([[np.arange(self.sizes[i])] for i in clients], clients)
            self._full_batch = key, self._gather(rows[0], weights[0], sizes[0])
        return self._full_batch[1]

    def _padded(self, lots: list[Lots], clients: np.ndarray) -> tuple[Tensor, Tensor, np.ndarray]:
        index, weight, sizes = pad(lots, self.offsets[clients], self._weights(clients))
        placed = device_formats.placed
        return placed(index, self.features), placed(weight, self.features, self.dtype), sizes

    def _weights(self, clients: np.ndarray) -> np.ndarray:
        return np.array([self.lots.weight(int(self.sizes[i])) for i in clients])

    def _gather(self, rows: Tensor, weights: Tensor, sizes: np.ndarray) -> Batch:
        """The batch of some records. rows: their numbers in the store; weights: (c, b) each. sizes:
        of the lots without padding, (c,).
        """
        flat = rows.reshape(-1)
        features, targets = (
            store.index_select(0, flat).view(*rows.shape, *store.shape[1:])
            for store in (self.features, self.targets)
        )
        return Batch(in_dtype(features, self.dtype), targets, weights, sizes.tolist())
