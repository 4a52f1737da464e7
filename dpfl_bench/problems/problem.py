"""What is learnt: one flat vector per model, gradients for many clients at once, losses and scores.

Loss of client i: the mean over its records + l2/2 |x|^2 over all parameters. Objective: the mean
over clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from dpfl_bench.machine import device

PIECE = 2**20  # numbers of a row, at a time
# What comes into a layer, at most: times more, the gradient by what goes out has scales that make
# it one of the format's last numbers, which round by half and more. A record of which more comes in
# is not measured
LONGEST = {torch.float32: 3e15, torch.float64: 1e150}
Factors = Callable[
    [Tensor, Tensor], Tensor
]  # (norms, weights) -> what each record's gradient is scaled by: (c, b) all three


@dataclass(frozen=True)
class Batch:
    """One lot of each of c clients. Shorter lots are padded at their end: the client's first record
    with weight 0.
    """

    features: Tensor  # (c, b, *shape)
    targets: Tensor  # (c, b), or (c, b, *target)
    weights: Tensor  # (c, b): what each record's gradient counts
    sizes: list[int] = field(
        default_factory=list
    )  # of each lot, without its padding; found in the weights if not given

    def __post_init__(self) -> None:
        if not self.sizes:
            places = torch.arange(1, self.weights.shape[1] + 1, device=self.weights.device)
            object.__setattr__(self, "sizes", ((self.weights > 0) * places).amax(1).tolist())

    @property
    def rectangular(self) -> bool:
        return min(self.sizes) == self.weights.shape[1]

    def lot(self, client: int) -> tuple[Tensor, Tensor, Tensor]:
        """One client's features, targets and weights, without padding."""
        size = self.sizes[client]
        features, targets, weights = self.features[client], self.targets[client], self.weights[client]
        return (
            (features, targets, weights)
            if size == len(weights)
            else (features[:size], targets[:size], weights[:size])
        )


class Scored(NamedTuple):
    """Of n records, (n,) each."""

    losses: Tensor  # without l2
    scores: Tensor  # 1.0 for a hit, the number of hits, an overlap; the squared error in regression
    counts: Tensor  # out of how much: 1, or the number of tokens that could be hit


class Problem(Protocol):
    @property
    def dimension(self) -> int: ...
    @property
    def classes(self) -> int:
        """0: regression."""
        ...

    @property
    def l2(self) -> float: ...

    def start(self, seed: int, like: Tensor) -> Tensor:
        """Initial parameters (d,), with the device and number format of `like`."""
        ...

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        """sum_r weight_r grad loss_r(y_i) + l2 y_i for each client i at its own row: (c, d) -> (c,
        d).
        """
        ...

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        """sum_r weight_r factor_r grad loss_r(y_i) + l2 y_i for each client i: (c, d); and each
        record's gradient norm, (c, b).

        factors(norms, weights) -> (c, b) turns the norms of the records' gradients (without l2)
        into what each is scaled by, e.g. min(1, C / norm). It is called once, with whole lots;
        padded rows have norm 0 there and count nothing. l2 y_i depends on no record: it is added
        once, unclipped. What a record adds, over its weight, is at most factor_r norm_r long up to
        rounding, 1e-6 of it in float32. A record whose norm is not finite adds nothing at all, not
        0 times a NaN.
        """
        ...

    @property
    def metric(self) -> str:
        """What `Scored.scores` add up to: accuracy, r2, ..."""
        ...

    def losses(self, x: Tensor, features: Tensor, targets: Tensor) -> Scored: ...


def lengths(rows: Tensor) -> Tensor:
    """Norms over the last axis, of the squares' sum in the device's widest format: a million
    float32 squares err by 1e-5 and more.
    """
    if rows.shape[-1] <= PIECE:
        found: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=device.wide(rows.device))
        return found
    squares = rows.new_zeros(rows.shape[:-1], dtype=device.wide(rows.device))
    for start in range(0, rows.shape[-1], PIECE):  # a piece at a time is copied into that format
        squares += lengths(rows[..., start : start + PIECE]).square()
    return squares.sqrt()


def beyond(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """0, and NaN where the inputs are infinite or longer than LONGEST in this format. inputs:
    numbers or lengths, of any shape.
    """
    return inputs.to(dtype) * (torch.finfo(dtype).max / LONGEST[dtype]) * 0


def in_dtype(features: Tensor, dtype: torch.dtype) -> Tensor:
    """uint8 images become numbers in [0, 1], tokens int64; everything else is already what the
    model takes.
    """
    if features.dtype == torch.uint8:
        return features.to(dtype) / 255
    return features if features.is_floating_point() else features.long()
