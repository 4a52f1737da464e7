"""Ranks: a round's groups of clients, shared out over processes of one machine or of many.

Every rank plays its block of the groups, by itself or with workers. All ranks get the sums of all
groups and add them in the groups' order, and each takes the server's step: no bit depends on how
many ranks there are. `share.py` says which groups and whose memories are a rank's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Sent
from dpfl_bench.federation import dissimilarity, evaluation
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.crew import GradientSums, GroupResult
from dpfl_bench.federation.messages import pickled, unpickled
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.schedule import PlannedRound, Schedule
from dpfl_bench.federation.share import Share, Travels, blocks
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.federation.workers import Workers
from dpfl_bench.machine import device
from dpfl_bench.machine.ranks import Group
from dpfl_bench.problems.problem import Scored

PIECE = 2**24  # numbers of memories that travel at once to rank 0


def with_share(player: RoundPlayer, schedule: Schedule, group: Group) -> RoundPlayer:
    """The player of one rank, which has its part of the work and of the memories."""
    if group.size == 1:
        return player
    if not player.algorithm.remembers:
        return replace(player, share=Share(group.rank, group.size))
    share = Share(group.rank, group.size, player.groups(np.arange(player.federation.clients)))
    if schedule.sampling != "full":
        share.make_room(player.groups(schedule.cohort(index)) for index in range(schedule.rounds))
    return replace(player, share=share)


class Ranks:
    """A crew of all ranks, seen by one of them."""

    def __init__(self, crew: Alone | Workers, group: Group):
        """crew: does what falls to this rank. group: the ranks."""
        self._crew, self._group = crew, group
        self._player = crew.player
        self._travels = Travels([], [], False)

    def __enter__(self) -> Ranks:
        self._crew.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.__exit__(kind, error, trace)

    def play_groups(self, state: TrainingState, round: PlannedRound) -> Iterator[GroupResult]:
        player, door = self._player, self._player.send_door
        groups = player.groups(round.cohort)
        if state.memory is not None:
            self._travels = player.share.expect(groups)
            self._travel(state.memory, self._travels.away, self._travels.visitors)
        x, counts = state.server.x, [len(b) for b in blocks([len(g) for g in groups], self._group.size)]
        mine = x.new_empty(counts[self._group.rank], door.vectors, len(x), dtype=door.format(x))
        results = list(self._crew.play_groups(state, round))
        for result, rows in zip(results, mine, strict=True):
            result.sums.leave(rows)
        everyones = [each for said in self._group.gathered(pickled(results)) for each in unpickled(said)]
        for result, rows in zip(everyones, self._group.rows(mine, counts), strict=True):
            result.sums.take(rows)
            yield result

    def update_memories(self, state: TrainingState, sent: Sent, round: PlannedRound) -> None:
        assert state.memory is not None
        self._crew.update_memories(state, sent, round)
        self._travel(state.memory, self._travels.visitors, self._travels.away)

    def losses(self, x: Tensor, test: bool) -> Scored:
        problem, federation = self._player.problem, self._player.federation
        sizes = evaluation.sizes(problem, federation, test)
        counts = [sum(sizes[k] for k in block) for block in blocks(sizes, self._group.size)]
        mine = x.new_empty(0, 3, dtype=device.wide(x.device))
        if counts[self._group.rank]:
            mine = torch.stack(self._crew.losses(x, test), dim=1)
        return Scored(*self._group.rows(mine, counts).T.contiguous())

    def gradients(self, x: Tensor) -> Iterator[GradientSums]:
        groups = dissimilarity.groups(self._player.problem, self._player.federation)
        counts = [len(b) for b in blocks([len(group) for group in groups], self._group.size)]
        mine = x.new_empty(counts[self._group.rank], len(x) + 1, dtype=device.wide(x.device))
        for rows, sums in zip(mine, self._crew.gradients(x), strict=True):
            rows[:-1], rows[-1] = sums
        for rows in self._group.rows(mine, counts):
            yield GradientSums(rows[:-1], rows[-1])

    def memories(self, state: TrainingState) -> Tensor | None:
        """All clients' memories, (M, d), on rank 0; None elsewhere."""
        return None if state.memory is None else gathered(state.memory, self._player.share, self._group)

    def _travel(self, memory: Tensor, away: list[np.ndarray], coming: list[np.ndarray]) -> None:
        """Send the memories of some clients to each rank, and put away those that come."""
        if self._travels.any:
            rows = self._rows(away, memory)
            counts = [len(clients) for clients in away], [len(clients) for clients in coming]
            come = self._group.exchanged(memory[rows], *counts)
            memory.index_copy_(0, self._rows(coming, memory), come)

    def _rows(self, clients: list[np.ndarray], memory: Tensor) -> Tensor:
        return device.placed(self._player.share.places(np.concatenate(clients)), memory)


def gathered(memory: Tensor, share: Share, group: Group) -> Tensor | None:
    """All clients' memories, on rank 0's CPU; None elsewhere. memory: of this rank's clients, as
    they lie there.
    """
    mine = memory[: len(share.kept(group.rank))].cpu()
    if not group.first:
        for piece in _pieces(mine):
            group.send(piece, 0)
        return None
    whole = mine.new_empty(sum(len(share.kept(rank)) for rank in range(group.size)), memory.shape[1])
    for rank in range(group.size):
        theirs = mine if rank == 0 else mine.new_empty(len(share.kept(rank)), memory.shape[1])
        for piece in _pieces(theirs) if rank else ():
            group.receive(piece, rank)
        whole[torch.from_numpy(share.kept(rank))] = theirs
    return whole


def handed_out(whole: Tensor | None, memory: Tensor, share: Share, group: Group) -> None:
    """Put all clients' memories, which rank 0 has on its CPU, into `memory` of the ranks that keep
    them.
    """
    mine = memory[: len(share.kept(group.rank))]
    if whole is None:
        theirs = torch.empty_like(mine, device="cpu")
        for piece in _pieces(theirs):
            group.receive(piece, 0)
        mine.copy_(theirs)
        return
    for rank in range(group.size):
        theirs = whole[torch.from_numpy(share.kept(rank))]
        if rank == 0:
            mine.copy_(theirs)
        for piece in _pieces(theirs) if rank else ():
            group.send(piece, rank)


def _pieces(rows: Tensor) -> list[Tensor]:
    """What travels at once."""
    count = max(1, PIECE // max(1, rows.shape[1]))
    return [rows[first : first + count] for first in range(0, len(rows), count)]
