"""Who does the work of a round: this process (`alone.py`), several worker processes
(`workers.py`), or several ranks, each of which is one or the other (`ranks.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from dpfl_bench.algorithms.base import Sent
from dpfl_bench.federation.doors.gradient import RecordCounts
from dpfl_bench.federation.doors.send import Sums
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.problems.problem import Scored


class GradientSums(NamedTuple):
    """Over some clients, of their gradients at one model, in the device's widest format."""

    gradients: Tensor  # sum of grad F_i, (d,)
    squares: Tensor  # sum of |grad F_i|^2, ()


@dataclass
class GroupResult:
    """What one group of a round's clients left behind at the doors."""

    clients: np.ndarray  # indices, (c,)
    sums: Sums  # of their messages
    releases: np.ndarray  # how many the gradient door recorded for each of these clients, (c,)
    records: RecordCounts


class Crew(Protocol):
    def play_groups(self, state: TrainingState, round: PlannedRound) -> Iterable[GroupResult]:
        """The results of all groups of the round's cohort, in the groups' order."""
        ...

    def update_memories(self, state: TrainingState, sent: Sent, round: PlannedRound) -> None:
        """Update in place the memories of the clients whose groups were played last."""
        ...

    def losses(self, x: Tensor, test: bool) -> Scored:
        """Losses and scores of each training record, or of each test record, at the model x,
        (d,).
        """
        ...

    def gradients(self, x: Tensor) -> Iterable[GradientSums]:
        """Sums over the groups of all clients of their gradients at the model x, (d,)."""
        ...

    def memories(self, state: TrainingState) -> Tensor | None:
        """All clients' memories, (M, d), where the algorithm remembers. Of several ranks rank 0
        alone gets them.
        """
        ...
