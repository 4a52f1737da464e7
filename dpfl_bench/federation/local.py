"""Local work: the gradients and steps that an algorithm's `client` may ask for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.doors.gradient import GradientPassage
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.problems.problem import Problem


@dataclass(frozen=True)
class Optimiser:
    """Settings of the clients' and the server's steps that the papers' pseudo-code leaves out."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    server_lr: float = 1.0
    server_momentum: float = 0.0
    # factor of old steps beside server_momentum: lr_decay, where they are to follow the learning
    # rate
    server_momentum_decay: float = 1.0


class LocalOracle:
    """`algorithms.base.Local` for one chunk of c clients in one round."""

    def __init__(
        self,
        problem: Problem,
        federation: Federation,
        optimiser: Optimiser,
        round: PlannedRound,
        seed: int,
        clients: np.ndarray,
        passage: GradientPassage | None = None,
    ):
        """clients: their indices, (c,). passage: at the gradient door; None: gradients pass
        freely.
        """
        self.round, self.steps, self.lr = round, round.steps, round.lr
        self._passage = passage
        self._problem, self._optimiser = problem, optimiser
        self._batches = federation.batches(seed, round.index, clients, round.steps)
        self._velocity: Tensor | None = None

    def gradient(self, y: Tensor) -> Tensor:
        """Each client's gradient on its next lot, at its own row of y: (c, d) -> (c, d). Raises
        RuntimeError after the round's last lot.
        """
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
        """y - lr * direction, with local momentum: (c, d), (c, d) -> (c, d)."""
        if self._optimiser.momentum:
            old = self._velocity
            direction = direction if old is None else self._optimiser.momentum * old + direction
            self._velocity = direction
        return torch.sub(y, direction, alpha=self.lr)
