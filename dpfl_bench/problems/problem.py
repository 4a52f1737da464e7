"""What is learnt: one flat vector per model, gradients for many clients at once, losses and scores.

Loss of client i: the mean over its records + l2/2 |x|^2 over all parameters. Objective: the mean over clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """One lot of each of c clients. Padded rows repeat the client's first record with weight 0."""

    features: Tensor  # (c, b, *shape)
    targets: Tensor  # (c, b)
    weights: Tensor  # (c, b): what each record's gradient counts


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
        """sum_r weight_r grad loss_r(y_i) + l2 y_i for each client i at its own row: (c, d) -> (c, d)."""
        ...

    def losses(self, x: Tensor, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Per record: the loss without l2, and 1.0 for a hit (classification) or the squared error (regression); (n,) each."""
        ...


def in_dtype(features: Tensor, dtype: torch.dtype) -> Tensor:
    """uint8 images become numbers in [0, 1]; everything else is already what the model takes."""
    return features.to(dtype) / 255 if features.dtype == torch.uint8 else features
