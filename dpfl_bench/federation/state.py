"""What crosses rounds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Server
from dpfl_bench.privacy.ledger import Ledger


@dataclass
class TrainingState:
    """Everything that crosses rounds. M clients, d parameters."""

    server: Server
    velocity: Tensor | None  # server momentum, (d,)
    memory: Tensor | None  # (M, d), where the algorithm remembers
    ledger: Ledger
    clip: float  # C of the next round (0: the median of its norms)
    earlier: Tensor  # (j, d): the iterates before the last one that are averaged into the output

    @property
    def output(self) -> Tensor:
        """The model that is evaluated and kept: the mean of the last iterates, (d,)."""
        return torch.cat([self.earlier, self.server.x[None]]).mean(0) if len(self.earlier) else self.server.x

    def with_this_iterate(self, average_last: int) -> Tensor:
        """`earlier` of the next state, where the output is the mean of `average_last` iterates."""
        if average_last == 1:
            return self.earlier
        return torch.cat([self.earlier, self.server.x[None]])[-(average_last - 1) :]
