"""Autograd into flat buffers that stay; records' gradients by book-keeping (`bookkeeping/`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from dpfl_bench import rng
from dpfl_bench.problems.backends.loop import Loop, Piece
from dpfl_bench.problems.backends.vmap import Vmap
from dpfl_bench.problems.bookkeeping import Layers, Tapped, layers_of, supported
from dpfl_bench.problems.problem import Batch, Factors

ACTIVATIONS = 16  # numbers that book-keeping holds for each number of a record's features: a guess


@dataclass
class _Buffers:
    """A module whose parameters and gradients are views of two flat vectors, (d,) each."""

    parameters: Tensor
    gradients: Tensor
    module: nn.Module
    has_rules: bool | None = None  # whether book-keeping knows every layer; None: not tried yet

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
        """How many numbers book-keeping keeps for one record: the layers' inputs and outputs."""
        return ACTIVATIONS * math.prod(batch.features.shape[2:])

    def piece(self, y: Tensor, features: Tensor, targets: Tensor) -> Piece:
        buffers = self._buffers(y)
        buffers.parameters.copy_(y)
        return Tapped(
            buffers.module, self.network.task.losses, self.network.laid_out(features), targets, buffers.layers
        )

    def _has_rules(self, y: Tensor, batch: Batch) -> bool:
        """Tried once in each process, at a model without zeros, which could hide something."""
        buffers = self._buffers(y)
        if buffers.has_rules is None:
            buffers.parameters.copy_(torch.from_numpy(rng.generator(0, "probe").normal(0, 0.1, y.shape[-1])))
            buffers.has_rules = supported(buffers.module, self.network.laid_out(batch.features[0, :2]))
        return buffers.has_rules

    def _buffers(self, like: Tensor) -> _Buffers:
        """Made once in each process, for each number format and device."""
        kind = (like.dtype, like.device)
        if kind not in self._by_kind:
            parameters, gradients = like.new_zeros(like.shape[-1]), like.new_zeros(like.shape[-1])
            self._by_kind[kind] = _Buffers(parameters, gradients, self.network.bound(parameters, gradients))
        return self._by_kind[kind]

    @cached_property
    def _by_kind(self) -> dict[tuple[torch.dtype, torch.device], _Buffers]:
        return {}
