"""The gradient door, observed: which records a lot holds, the exact sum of their bounded gradients,
and what leaves with noise. As in `watched.py`, what the door computes is written down and handed on
as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.doors.gradient import GradientDoor, GradientPassage, RecordCounts, medians
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.problems.problem import Batch, Factors, Problem, Scored


@dataclass(frozen=True)
class MarkedBatch(Batch):
    rows: Tensor = field(default_factory=lambda: torch.zeros(0))  # (c, b): places in the flat store


class MarkedFederation(Federation):
    """The same clients and records. Batches know which records are in them."""

    def __init__(self, federation: Federation, hollow: bool = False):
        """hollow: batches have no features, for problems that look at none."""
        self.__dict__.update(federation.__dict__)
        self._full_batch = None  # it knows no records
        self.hollow = hollow

    def _gather(self, rows: Tensor, weights: Tensor, sizes: np.ndarray) -> Batch:
        if self.hollow:
            return MarkedBatch(weights.unsqueeze(2), weights, weights, sizes.tolist(), rows)
        batch = super()._gather(rows, weights, sizes)
        return MarkedBatch(batch.features, batch.targets, batch.weights, batch.sizes, rows)


@dataclass(frozen=True)
class Lot:
    """One local step of c clients at the gradient door."""

    step: int
    clients: np.ndarray
    rows: np.ndarray  # (c, b): places in the flat store; -1 where padded
    exact: Tensor  # (c, d): what the problem made of the bounded gradients
    released: Tensor  # (c, d)
    clip: Tensor | float  # C; (c, 1) where it is the median of the lot's norms


class Through:
    """A problem that hands everything on to another one."""

    def __init__(self, problem: Problem):
        self.problem = problem

    @property
    def dimension(self) -> int:
        return self.problem.dimension

    @property
    def classes(self) -> int:
        return self.problem.classes

    @property
    def l2(self) -> float:
        return self.problem.l2

    @property
    def metric(self) -> str:
        return self.problem.metric

    def start(self, seed: int, like: Tensor) -> Tensor:
        return self.problem.start(seed, like)

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        return self.problem.gradient(y, batch)

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        return self.problem.clipped_gradient(y, batch, factors)

    def losses(self, x: Tensor, features: Tensor, targets: Tensor) -> Scored:
        return self.problem.losses(x, features, targets)


class _Heard(Through):
    """Keeps what the door is given: the sums, and the norms of the gradients."""

    exact: Tensor
    norms: Tensor

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        def noted(norms: Tensor, weights: Tensor) -> Tensor:
            self.norms = norms
            return factors(norms, weights)

        gradient, norms = self.problem.clipped_gradient(y, batch, noted)
        self.exact = gradient.clone()  # noise may be added in place
        return gradient, norms


class WatchedGradients:
    """A passage of the gradient door, and a diary."""

    def __init__(self, plain: GradientPassage, lots: list[Lot], before: Iterator[Lot] | None):
        self.plain, self._lots, self._before, self._step = plain, lots, before, 0
        self._median = plain.door.clip is None

    @property
    def counts(self) -> RecordCounts:
        return self.plain.counts

    def gradient(self, problem: Problem, y: Tensor, batch: Batch) -> Tensor:
        heard, seen = _Heard(problem), None if self._before is None else next(self._before)
        if self._median and seen is not None:  # the other world's C is given
            self.plain.door = replace(self.plain.door, clip=cast(Any, seen.clip))
        released = self.plain.gradient(heard, y, batch)
        marked = cast(MarkedBatch, batch)
        rows = marked.rows.where(batch.weights > 0, -1).cpu().numpy()
        clip: Tensor | float | None = self.plain.door.clip
        if clip is None:
            clip = medians(heard.norms, batch.weights)
        lot = Lot(self._step, self.plain.clients, rows, heard.exact, released.clone(), clip)
        self._lots.append(lot)
        self._step += 1
        return released if seen is None else seen.released.clone()


@dataclass(frozen=True)
class WatchedDoor(GradientDoor):
    """before: the lots of another world. Then clients go on from what was released there."""

    lots: list[Lot] = field(default_factory=list)
    before: Iterator[Lot] | None = None

    @staticmethod
    def of(door: GradientDoor, before: list[Lot] | None = None) -> WatchedDoor:
        seen = None if before is None else iter(before)
        known = {f.name: getattr(door, f.name) for f in fields(GradientDoor)}
        return WatchedDoor(**known, before=seen)

    def start(
        self, round: PlannedRound, clients: np.ndarray, weights: Tensor, ledger: Ledger
    ) -> GradientPassage:
        plain = super().start(round, clients, weights, ledger)
        return cast(GradientPassage, WatchedGradients(plain, self.lots, self.before))


def rows_of_lots(federation: Federation, seed: int, round: PlannedRound, clients: np.ndarray) -> np.ndarray:
    """How often each record is in a lot of these clients in one round: (records of the store,)."""
    counts = np.zeros(int(federation.offsets[-1]), np.int64)
    hollow = MarkedFederation(federation, hollow=True)
    for batch in hollow.batches(seed, round.index, clients, round.steps):
        marked = cast(MarkedBatch, batch)
        np.add.at(counts, marked.rows[batch.weights > 0].cpu().numpy(), 1)
    return counts
