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

PIECE = 2**20  # how many numbers of a row `lengths` squares at once
# The longest input of a layer whose record is measured. With a longer one, the gradient by the
# layer's output becomes one of the format's smallest numbers once it is scaled, and those round by
# half and more. The norm of such a record is NaN, so that the record is left out.
LONGEST = {torch.float32: 3e15, torch.float64: 1e150}
# (norms, weights) -> the factor of each record's gradient: (c, b) all three
Factors = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """One lot of each of c clients. Shorter lots are padded at their end: the client's first record
    with weight 0.
    """

    features: Tensor  # (c, b, *shape)
    targets: Tensor  # (c, b), or (c, b, *target)
    weights: Tensor  # (c, b): of each record's gradient
    # of each lot, without its padding, (c,); where it is not given, the weights tell
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.sizes:
            places = torch.arange(1, self.weights.shape[1] + 1, device=self.weights.device)
            object.__setattr__(self, "sizes", ((self.weights > 0) * places).amax(1).tolist())

    @property
    def rectangular(self) -> bool:
        """Whether no lot is padded."""
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
    """Losses and scores of n records, (n,) each."""

    losses: Tensor  # without l2
    scores: Tensor  # 1.0 for a hit, the number of hits, an overlap; the squared error in regression
    counts: Tensor  # the largest score that is possible: 1, or the number of tokens that could be hit


class Problem(Protocol):
    """A model with its losses. c clients, b records in the longest lot, d parameters."""

    @property
    def dimension(self) -> int:
        """d, the number of parameters."""
        ...

    @property
    def classes(self) -> int:
        """Number of classes or tokens; 0: regression."""
        ...

    @property
    def l2(self) -> float:
        """Weight of the ridge term l2/2 |x|^2 in each client's loss."""
        ...

    def start(self, seed: int, like: Tensor) -> Tensor:
        """Initial parameters (d,), with the device and number format of `like`."""
        ...

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        """sum_r weight_r grad loss_r(y_i) + l2 y_i for each client i, at its own row of y.

        y: (c, d). batch: one lot of each client. Returns (c, d).
        """
        ...

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        """sum_r weight_r factor_r grad loss_r(y_i) + l2 y_i for each client i, (c, d); and the norm
        of each record's gradient, (c, b).

        y: (c, d). batch: one lot of each client. factors(norms, weights): called once, with the
        norms of all records' gradients (without l2) and the records' weights, (c, b) each. It
        returns the factor of each record's gradient, (c, b), e.g. min(1, C / norm). A padded row
        has norm 0 and adds nothing.

        l2 y_i depends on no record: it is added once, unclipped. A record adds a vector of length
        at most weight_r factor_r norm_r, up to rounding (1e-6 of it in float32). A record whose
        norm is not finite adds nothing at all, not 0 times a NaN.
        """
        ...

    @property
    def metric(self) -> str:
        """What `Scored.scores` add up to: accuracy, r2, ..."""
        ...

    def losses(self, x: Tensor, features: Tensor, targets: Tensor) -> Scored:
        """Losses and scores of n records at one model.

        x: (d,). features: (n, *shape). targets: (n, ...).
        """
        ...


def lengths(rows: Tensor) -> Tensor:
    """Norms over the last axis: (..., n) -> (...). The squares are summed in the device's widest
    format, for a sum of a million float32 squares errs by 1e-5 and more.
    """
    if rows.shape[-1] <= PIECE:
        norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=device.wide(rows.device))
        return norms
    squares = rows.new_zeros(rows.shape[:-1], dtype=device.wide(rows.device))
    for start in range(0, rows.shape[-1], PIECE):  # one piece at a time is copied into the wide format
        squares += lengths(rows[..., start : start + PIECE]).square()
    return squares.sqrt()


def beyond(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """NaN where an input is longer than LONGEST of this format, or infinite; else 0.

    inputs: numbers or lengths, of any shape. Returns the same shape.
    """
    return inputs.to(dtype) * (torch.finfo(dtype).max / LONGEST[dtype]) * 0


def in_dtype(features: Tensor, dtype: torch.dtype) -> Tensor:
    """Features as a model takes them: uint8 images become numbers in [0, 1], tokens become int64;
    floating-point numbers stay.
    """
    if features.dtype == torch.uint8:
        return features.to(dtype) / 255
    return features if features.is_floating_point() else features.long()
