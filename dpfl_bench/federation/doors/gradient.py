"""The gradient door (record level): each record's gradient is clipped to norm C, each lot's sum
carries noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.checks.ranges import LARGEST_CLIP, LEAST_CLIP
from dpfl_bench.federation.doors.formats import FORMATS
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.privacy import bounding, noise_draws
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.problems.problem import Batch, Problem


@dataclass(frozen=True)
class RecordCounts:
    """How many records' gradients came to the door, and what became of them."""

    clipped: Tensor | int = 0
    blanked: int = 0  # the gradient or its norm is not finite: it counts as zero
    all: int = 0

    def __add__(self, other: RecordCounts) -> RecordCounts:
        return RecordCounts(self.clipped + other.clipped, self.blanked + other.blanked, self.all + other.all)


@dataclass(frozen=True)
class GradientDoor:
    """Record level: each record's gradient has norm at most C, and the sum over a lot carries its
    client's noise.

    Unit: record. Sampling: full, fixed-size or Poisson lots.
    """

    clip: float | None  # C; None: the median of the lot's norms (leaks)
    noise: float  # standard deviation / C of the noise on a lot's sum
    seed: int

    def start(
        self, round: PlannedRound, clients: np.ndarray, weights: Tensor, ledger: Ledger
    ) -> GradientPassage:
        """Open one round for some clients.

        clients: their indices, (c,). weights: a record's weight in the mean of each
        client's lots (one over the lot's size), (c,).
        ledger: records each noised gradient.
        """
        return GradientPassage(
            self, clients, weights, noise_draws.RecordGaussian(self.seed, round.index, clients), ledger
        )


@dataclass
class GradientPassage:
    """One chunk of clients at the door, during one round."""

    door: GradientDoor
    clients: np.ndarray
    weights: Tensor
    stream: noise_draws.RecordGaussian
    ledger: Ledger
    clipped: Tensor | int = 0
    blanked: int = 0
    records: int = 0

    @property
    def counts(self) -> RecordCounts:
        return RecordCounts(self.clipped, self.blanked, self.records)

    def gradient(self, problem: Problem, y: Tensor, batch: Batch) -> Tensor:
        """Each client's gradient at its own model: clipped, noised, divided by the lot's (expected)
        size. The ridge term, which depends on no record, is added unclipped.

        y: the clients' models, (c, d). batch: one lot of each. Returns (c, d).
        """
        bound: Tensor | float = 0.0

        def factors(norms: Tensor, weights: Tensor) -> Tensor:
            nonlocal bound
            bound = medians(norms, weights) if self.door.clip is None else self.door.clip
            scales = bounding.scales(norms, bound)
            self.clipped = self.clipped + (norms > bound).sum()
            if not scales.min().item() > 0:
                self.blanked += int((~norms.isfinite()).sum())
            return scales

        gradient, _ = problem.clipped_gradient(y, batch, factors)
        self.records += sum(batch.sizes)
        if self.door.noise == 0:
            return gradient
        self.ledger.record(self.clients)
        noise = torch.from_numpy(self.stream.draw(y.shape[1], FORMATS[y.dtype])).to(gradient)
        return gradient.addcmul_(noise, (self.door.noise * bound * self.weights.unsqueeze(1)).to(gradient))


def medians(norms: Tensor, weights: Tensor) -> Tensor:
    """C of each client: the median norm of its lot's records, (c, 1).

    norms, weights: (c, b), weight 0 where padded. A norm that is not finite counts as 0.
    """
    norms = norms.where(norms.isfinite(), 0)
    middle = [row[real].quantile(0.5) for row, real in zip(norms, weights > 0, strict=True)]
    return torch.stack(middle).clamp(LEAST_CLIP, LARGEST_CLIP).unsqueeze(1)
