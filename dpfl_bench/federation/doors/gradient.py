"""The gradient door (record level): each record's gradient is clipped to norm C, each lot's sum
carries noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.checks.ranges import LARGEST_CLIP, LEAST_CLIP
from dpfl_bench.federation.doors.formats import FORMATS
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.machine import device
from dpfl_bench.privacy import bounding, noise_draws
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.problems.problem import Batch, Problem

PIECE_NUMBERS = 2**28  # of noise that goes to a GPU at once: 1 GB in float32


@dataclass(frozen=True)
class RecordCounts:
    """How many records' gradients came to the door, and what became of them."""

    clipped: Tensor | int = 0
    blanked: Tensor | int = 0  # the gradient or its norm is not finite: it counts as zero
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
        stream = noise_draws.RecordGaussian(self.seed, round.index, clients)
        return GradientPassage(self, clients, weights, stream, ledger, round.steps)


@dataclass
class GradientPassage:
    """One chunk of clients at the door, during one round."""

    door: GradientDoor
    clients: np.ndarray
    weights: Tensor
    stream: noise_draws.RecordGaussian
    ledger: Ledger
    steps: int = 1  # of the round, whose noise is not drawn yet (on a GPU)
    clipped: Tensor | int = 0
    blanked: Tensor | int = 0
    records: int = 0
    drawn: Iterator[Tensor] = field(default_factory=lambda: iter(()))  # noise of the next steps

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
            if device.apart(scales) or not scales.min().item() > 0:
                self.blanked = self.blanked + (~norms.isfinite()).sum()
            return scales

        gradient, _ = problem.clipped_gradient(y, batch, factors)
        self.records += sum(batch.sizes)
        if self.door.noise == 0:
            return gradient
        self.ledger.record(self.clients)
        std = (self.door.noise * bound * self.weights.unsqueeze(1)).to(gradient)
        return gradient.addcmul_(self._noise(gradient), std)

    def _noise(self, like: Tensor) -> Tensor:
        """N(0, I) of the next step: (c, d). For a GPU, the noise of all steps is drawn at the first
        one and goes there in one piece (in several, if there is very much of it).
        """
        dimension, format = like.shape[1], FORMATS[like.dtype]
        if not device.apart(like):
            return device.placed(self.stream.draw(dimension, format), like)
        noise = next(self.drawn, None)
        if noise is None:
            steps = min(self.steps, max(1, PIECE_NUMBERS // like.numel()))
            self.steps -= steps
            draws = np.stack([self.stream.draw(dimension, format) for _ in range(steps)])
            self.drawn = iter(device.placed(draws, like))
            noise = next(self.drawn)
        return noise


def medians(norms: Tensor, weights: Tensor) -> Tensor:
    """C of each client: the median norm of its lot's records, (c, 1).

    norms, weights: (c, b), weight 0 where padded. A norm that is not finite counts as 0.
    """
    norms = norms.where(norms.isfinite(), 0).where(weights > 0, torch.nan)
    return norms.nanquantile(0.5, dim=1, keepdim=True).clamp(LEAST_CLIP, LARGEST_CLIP)
