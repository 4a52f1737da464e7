"""Local work: what an algorithm's `client` has at hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.doors import GradientPassage
from dpfl_bench.federation.schedule import Round
from dpfl_bench.problems.problem import Problem


@dataclass(frozen=True)
class Optimiser:
    """How clients descend and how the server steps; what the papers put beside their pseudo-code."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    server_lr: float = 1.0
    server_momentum: float = 0.0
    server_momentum_decay: float = (
        1.0  # by which old steps shrink beyond that: lr_decay, where they are to follow the learning rate
    )


class LocalOracle:
    """What `algorithms.base.Local` promises, for one chunk of clients in one round."""

    def __init__(
        self,
        problem: Problem,
        federation: Federation,
        optimiser: Optimiser,
        round: Round,
        seed: int,
        clients: np.ndarray,
        passage: GradientPassage | None = None,
    ):
        self.round, self.steps, self.lr = round, round.steps, round.lr
        self._passage = passage  # None: gradients pass freely
        self._problem, self._optimiser = problem, optimiser
        self._batches = federation.batches(seed, round.index, clients, round.steps)
        self._velocity: Tensor | None = None

    def gradient(self, y: Tensor) -> Tensor:
        batch = next(self._batches, None)
        if batch is None:
            raise RuntimeError(
                f"the algorithm asked for more than the {self.steps} gradients that this round's schedule"
                " allows"
            )
        gradient = (
            self._problem.gradient(y, batch)
            if self._passage is None
            else self._passage.gradient(self._problem, y, batch)
        )
        return gradient + self._optimiser.weight_decay * y if self._optimiser.weight_decay else gradient

    def step(self, y: Tensor, direction: Tensor) -> Tensor:
        if self._optimiser.momentum:
            old = self._velocity
            direction = direction if old is None else self._optimiser.momentum * old + direction
            self._velocity = direction
        return torch.sub(y, direction, alpha=self.lr)
