"""Plain autograd: one client after the other, one record after the other.

Every other backend is a `Loop` that computes the one or the other faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dpfl_bench.machine import device
from dpfl_bench.problems.network import Network
from dpfl_bench.problems.problem import Batch, Factors, lengths

CHUNK_NUMBERS = 2**21  # of the records' gradients that are computed at once: about a cache's size
HELD_NUMBERS = 2**26  # of the gradients that are kept until they are summed: 256 MB in float32


class Backend(Protocol):
    """`Problem.gradient` and `Problem.clipped_gradient` without l2."""

    def gradient(self, y: Tensor, batch: Batch) -> Tensor: ...
    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]: ...


class Piece(Protocol):
    """The gradients of n records of one client."""

    norms: Tensor  # (n,)

    def add(self, scales: Tensor, out: Tensor) -> None:
        """out += sum_r scales_r gradient_r over the records whose norm is finite.

        scales: (n,). out: (d,).
        """
        ...


class Rows:
    """A piece whose gradients are formed: (n, d)."""

    def __init__(self, gradients: Tensor):
        self.norms = lengths(gradients)
        if device.apart(gradients) or not math.isfinite(self.norms.sum().item()):
            gradients = gradients.where(self.norms.isfinite().unsqueeze(1), 0)
        self.gradients = gradients

    def add(self, scales: Tensor, out: Tensor) -> None:
        out.addmv_(self.gradients.t(), scales)


@dataclass(frozen=True)
class Loop:
    network: Network

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        """The gradient of each client's lot: (c, d). A lot that is empty (Poisson) gives 0."""
        return torch.stack([self._weighted(row, *batch.lot(i)) for i, row in enumerate(y)])

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        """First the norms of all records' gradients, then their scaled sum.

        The gradients are kept for the sum, or computed once more where there are more than
        HELD_NUMBERS. A backward pass of the reweighted loss would be cheaper, but it rounds in
        another way than the gradients that were measured. A record on the kink of a ReLU may then
        get another gradient, of any length.
        """
        fits = sum(batch.sizes) * self.numbers(batch) <= HELD_NUMBERS
        held = list(self._pieces(y, batch)) if fits else None
        norms = torch.zeros_like(batch.weights)
        for client, records, piece in held or self._pieces(y, batch):
            norms[client, records] = piece.norms.to(norms)
        factor = factors(norms, batch.weights)
        scales = batch.weights * factor
        if device.apart(factor) or not factor.min().item() > 0:
            scales = scales.where(norms.isfinite(), 0)
        total = torch.zeros_like(y, memory_format=torch.contiguous_format)  # y may be one row for all
        for client, records, piece in held or self._pieces(y, batch):
            scale = scales[client, records]
            if held is None:
                # Computed once more, a gradient may differ (Dropout, some GPU operations). It is
                # shrunk to the length that was measured.
                measured = norms[client, records].clamp(min=torch.finfo(norms.dtype).tiny)
                longer = (piece.norms.to(norms) / measured).clamp(min=1)
                scale = (scale / longer).where(longer.isfinite(), 0)
            piece.add(scale, total[client])
        return total, norms

    def numbers(self, batch: Batch) -> int:
        """How many numbers one record's gradient takes."""
        return self.network.dimension

    def piece(self, y: Tensor, features: Tensor, targets: Tensor) -> Piece:
        """Each record's gradient at one model: computed alone in its batch.

        y: (d,). features: (n, *shape). targets: (n, ...).
        """
        one = y.new_ones(1)
        records = zip(torch.split(features, 1), torch.split(targets, 1), strict=True)
        return Rows(torch.stack([self._weighted(y, x, t, one) for x, t in records]))

    def _weighted(self, y: Tensor, features: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """The gradient of the records' weighted loss: (d,)."""
        if not len(weights):
            return torch.zeros_like(y)
        leaf = y.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(
            (self.network.losses(leaf, features, targets) * weights).sum(), leaf
        )
        return gradient

    def _pieces(self, y: Tensor, batch: Batch) -> Iterator[tuple[int, slice, Piece]]:
        """Every real record's gradient, as (client, the records' numbers, their gradients)."""
        size = max(1, CHUNK_NUMBERS // self.numbers(batch))
        for client, row in enumerate(y.detach()):
            features, targets, _ = batch.lot(client)
            for start in range(0, len(targets), size):
                records = slice(start, min(start + size, len(targets)))
                yield client, records, self.piece(row, features[records], targets[records])
