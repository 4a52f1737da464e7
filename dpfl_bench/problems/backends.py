"""How a network's gradients are computed. All backends compute the same numbers, up to rounding.

| engine.backend | a client's gradient | a record's |
|---|---|---|
| loop | autograd, one client at a time | autograd, one record at a time |
| flat | the same, into flat buffers that stay; channels-last on a CPU | book-keeping where every layer has a rule, else vmap's |
| vmap | one batched backward over a chunk of clients | one batched backward over a chunk of records |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from dpfl_bench import rng
from dpfl_bench.problems.bookkeeping import Layers, Tapped, layers_of, supported
from dpfl_bench.problems.network import Network
from dpfl_bench.problems.problem import Batch, Factors, lengths

ACTIVATIONS = 16  # numbers that book-keeping holds for each of a record's inputs: a guess
CHUNK_NUMBERS = 2**21  # of records' gradients that are computed at once: about a cache's size
HELD_NUMBERS = 2**26  # of those that are kept until they are summed: 256 MB in float32
UNBATCHED = (nn.RNNBase,)  # vmap refuses what recurrent layers do in place
MIXING = (nn.modules.batchnorm._BatchNorm,)  # what a padded record would change for the others


class Backend(Protocol):
    """`Problem.gradient` and `Problem.clipped_gradient` without l2."""

    def gradient(self, y: Tensor, batch: Batch) -> Tensor: ...
    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]: ...


class Piece(Protocol):
    """The gradients of some of a client's records, in one form or another."""

    norms: Tensor  # (n,)

    def add(self, scales: Tensor, out: Tensor) -> None:
        """out += sum_r scales_r gradient_r over the records with a finite norm. (n,), (d,)."""
        ...


class Rows:
    """As they are: (n, d)."""

    def __init__(self, gradients: Tensor):
        self.norms = lengths(gradients)
        measured = math.isfinite(self.norms.sum().item())
        self.gradients = gradients if measured else gradients.where(self.norms.isfinite().unsqueeze(1), 0)

    def add(self, scales: Tensor, out: Tensor) -> None:
        out.addmv_(self.gradients.t(), scales)


@dataclass(frozen=True)
class Loop:
    network: Network

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        """A lot that is empty (Poisson) gives 0."""
        return torch.stack([self._weighted(row, *batch.lot(i)) for i, row in enumerate(y)])

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        """The records' gradients are measured, then summed; where they exceed HELD_NUMBERS, they
        are computed once more for the sum.

        A backward pass of the reweighted loss would be cheaper than that, but rounds otherwise than
        what was measured, and a record on the kink of a ReLU may get another gradient there, of any
        length.
        """
        fits = sum(batch.sizes) * self.numbers(batch) <= HELD_NUMBERS
        held = list(self._pieces(y, batch)) if fits else None
        norms = torch.zeros_like(batch.weights)
        for client, records, piece in held or self._pieces(y, batch):
            norms[client, records] = piece.norms.to(norms)
        found = factors(norms, batch.weights)
        scales = batch.weights * found
        if not found.min().item() > 0:
            scales = scales.where(norms.isfinite(), 0)
        total = torch.zeros_like(y, memory_format=torch.contiguous_format)  # y may be one row for all
        for client, records, piece in held or self._pieces(y, batch):
            scale = scales[client, records]
            if (
                held is None
            ):  # a second computation may differ (Dropout, some GPU operations): no longer than measured
                measured = norms[client, records].clamp(min=torch.finfo(norms.dtype).tiny)
                longer = (piece.norms.to(norms) / measured).clamp(min=1)
                scale = (scale / longer).where(longer.isfinite(), 0)
            piece.add(scale, total[client])
        return total, norms

    def numbers(self, batch: Batch) -> int:
        """That a record's gradient takes."""
        return self.network.dimension

    def piece(self, y: Tensor, features: Tensor, targets: Tensor) -> Piece:
        """Each record's gradient, alone in its batch."""
        one = y.new_ones(1)
        records = zip(torch.split(features, 1), torch.split(targets, 1), strict=True)
        return Rows(torch.stack([self._weighted(y, x, t, one) for x, t in records]))

    def _weighted(self, y: Tensor, features: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
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


@dataclass(frozen=True)
class Vmap(Loop):
    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        if self.network.has(*UNBATCHED) or (self.network.has(*MIXING) and not batch.rectangular):
            return super().gradient(y, batch)
        gradients: Tensor = vmap(grad(self._of_client), randomness="different")(
            y.detach(), batch.features, batch.targets, batch.weights
        )
        return gradients

    def piece(self, y: Tensor, features: Tensor, targets: Tensor) -> Piece:
        if self.network.has(
            *UNBATCHED
        ):  # asking also makes the module, whose initialisation vmap would refuse
            return super().piece(y, features, targets)
        try:
            return Rows(
                vmap(grad(self._of_record), (None, 0, 0), randomness="different")(y, features, targets)
            )
        except RuntimeError:  # an operation that vmap cannot do; any other error comes again here
            return super().piece(y, features, targets)

    def _of_client(self, y: Tensor, features: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        return (self.network.losses(y, features, targets) * weights).sum()

    def _of_record(self, y: Tensor, record: Tensor, target: Tensor) -> Tensor:
        return self.network.losses(y, record[None], target[None])[0]


@dataclass
class _Buffers:
    """A module whose parameters and gradients are views of these."""

    parameters: Tensor
    gradients: Tensor
    module: nn.Module
    rules: bool | None = None  # whether book-keeping knows every layer

    @cached_property
    def layers(self) -> Layers:
        return layers_of(self.module)


@dataclass(frozen=True)
class Flat(Loop):
    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        buffers = self._buffers(y)
        gradients = torch.empty_like(y, memory_format=torch.contiguous_format)  # y may be one row for all
        for i, row in enumerate(y):
            features, targets, weights = batch.lot(i)
            buffers.gradients.zero_()
            if len(weights):
                buffers.parameters.copy_(row)
                outputs = buffers.module(self.network.laid_out(features))
                torch.autograd.backward(self.network.task.losses(outputs, targets) @ weights)
            gradients[i] = buffers.gradients
        return gradients

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        if not self._has_rules(y, batch):
            return Vmap(self.network).clipped_gradient(y, batch, factors)
        return super().clipped_gradient(y, batch, factors)

    def numbers(self, batch: Batch) -> int:
        """What the layers took in and gave out."""
        return ACTIVATIONS * math.prod(batch.features.shape[2:])

    def piece(self, y: Tensor, features: Tensor, targets: Tensor) -> Piece:
        buffers = self._buffers(y)
        buffers.parameters.copy_(y)
        return Tapped(
            buffers.module, self.network.task.losses, self.network.laid_out(features), targets, buffers.layers
        )

    def _has_rules(self, y: Tensor, batch: Batch) -> bool:
        """Tried once in each process, at a model without zeros that could hide something."""
        buffers = self._buffers(y)
        if buffers.rules is None:
            buffers.parameters.copy_(torch.from_numpy(rng.generator(0, "probe").normal(0, 0.1, y.shape[-1])))
            buffers.rules = supported(buffers.module, self.network.laid_out(batch.features[0, :2]))
        return buffers.rules

    def _buffers(self, like: Tensor) -> _Buffers:
        """Made once in each process."""
        kind = (like.dtype, like.device)
        if kind not in self._made:
            parameters, gradients = like.new_zeros(like.shape[-1]), like.new_zeros(like.shape[-1])
            self._made[kind] = _Buffers(parameters, gradients, self.network.bound(parameters, gradients))
        return self._made[kind]

    @cached_property
    def _made(self) -> dict[tuple[torch.dtype, torch.device], _Buffers]:
        return {}
