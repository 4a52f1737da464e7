"""A crew of one: this process does everything that falls to its rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from dpfl_bench.algorithms.base import Sent, Server
from dpfl_bench.federation import dissimilarity, evaluation
from dpfl_bench.federation.crew import GradientSums, GroupResult
from dpfl_bench.federation.round_player import OwnMessages, RoundPlayer
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.problems.problem import Scored


class Alone:
    def __init__(self, player: RoundPlayer):
        self.player = player
        self._own: OwnMessages = []  # of the clients that this round's groups had so far

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *error: object) -> None:
        self._own = []

    def begin_round(self) -> None:
        self._own = []

    def play_groups(self, state: TrainingState, round: PlannedRound) -> Iterator[GroupResult]:
        self.begin_round()
        groups = self.player.groups(round.cohort)
        for number in self.player.own_groups(groups):
            yield self.play_group(state.server, state.memory, round, groups[number], state.clip)

    def play_group(
        self, server: Server, memory: Tensor | None, round: PlannedRound, clients: np.ndarray, clip: float
    ) -> GroupResult:
        """Like `RoundPlayer.play_group`; the clients' own messages are kept for
        `update_memories`.
        """
        result, own = self.player.play_group(server, memory, round, clients, clip)
        self._own += own
        return result

    def update_memories(self, state: TrainingState, sent: Sent, round: PlannedRound) -> None:
        assert state.memory is not None
        self.player.update_memories(state.server, state.memory, self._own, sent, round)

    def losses(self, x: Tensor, test: bool) -> Scored:
        problem, federation = self.player.problem, self.player.federation
        parts = evaluation.slices(problem, federation, test)
        return evaluation.together(
            evaluation.scored_slice(problem, federation, x, test, parts[number])
            for number in self.player.share.block(evaluation.sizes(problem, federation, test))
        )

    def gradients(self, x: Tensor) -> Iterator[GradientSums]:
        problem, federation = self.player.problem, self.player.federation
        groups = dissimilarity.groups(problem, federation)
        for number in self.player.own_groups(groups):
            yield dissimilarity.sums_of(problem, federation, x, groups[number])

    def memories(self, state: TrainingState) -> Tensor | None:
        return state.memory
