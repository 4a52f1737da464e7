"""One round: the cohort's local work between the two doors, the server's step, the clients'
memories.

The clients of a cohort are cut into groups, and groups into chunks. A chunk is computed at once.
The sums of a group do not depend on who computes it, and groups' sums are added in the groups'
order: no bit depends on how many workers or ranks there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Algorithm, Sent, Server
from dpfl_bench.checks.ranges import LARGEST_CLIP, LEAST_CLIP
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.crew import Crew, GroupResult
from dpfl_bench.federation.diagnostics import Diagnostics, RoundNumbers, clipped_of, diagnose
from dpfl_bench.federation.doors.gradient import GradientDoor, GradientPassage, RecordCounts
from dpfl_bench.federation.doors.send import SendDoor
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.federation.local import LocalOracle, Optimiser
from dpfl_bench.federation.schedule import PlannedRound, Schedule
from dpfl_bench.federation.server_step import server_step, step_estimates, step_factor
from dpfl_bench.federation.share import Share
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.machine import device, mapped
from dpfl_bench.privacy import bounding
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.problems.problem import Problem

# (clients, (c,); the message of each as that client remembers it, (c, d)), chunk by chunk
OwnMessages = list[tuple[np.ndarray, Tensor]]


class Notes(NamedTuple):
    """What the gradient door writes down of one group's work."""

    passages: list[GradientPassage]  # chunk by chunk
    ledger: Ledger


@dataclass(frozen=True)
class RoundPlayer:
    """Plays the rounds of one seed. M clients, d parameters."""

    algorithm: Algorithm
    problem: Problem
    federation: Federation
    optimiser: Optimiser
    send_door: SendDoor
    chunk: int  # clients that are computed at once
    seed: int
    clip: float = 0.0  # C of the first round's messages
    gradient_door: GradientDoor | None = None  # at record level
    average_last: int = 1
    share: Share = field(default_factory=Share)  # of the work and of the memories that this rank has

    @property
    def private(self) -> bool:
        return self.send_door.private or (self.gradient_door is not None and self.gradient_door.noise > 0)

    def releases(self, schedule: Schedule) -> np.ndarray:
        """How many releases the schedule plans for each client: (M,)."""
        planned = schedule.participation if self.gradient_door is None else schedule.gradients
        return planned.copy() if self.private else np.zeros_like(planned)

    def releases_of(self, round: PlannedRound) -> int:
        """How many releases each client of the round's cohort makes."""
        return (1 if self.gradient_door is None else round.steps) if self.private else 0

    def start(self, x: Tensor, memory: Tensor | None = None) -> TrainingState:
        """Round 0: the server has x, (d,); every client's memory is zero; the ledger is empty.

        memory: zeros, (M, d), for an algorithm that remembers; None: they are made here.
        """
        clients = self.federation.clients
        if memory is None and self.algorithm.remembers:
            memory = x.new_zeros(self.share.room(clients), len(x))
        velocity = torch.zeros_like(x) if self.optimiser.server_momentum else None
        server, earlier = self.algorithm.start(x), x.new_empty(0, len(x))
        return TrainingState(server, velocity, memory, Ledger(clients), self.clip, earlier)

    def play(
        self, state: TrainingState, round: PlannedRound, crew: Crew
    ) -> tuple[TrainingState, Diagnostics]:
        """Play one round: the next state, and facts about the round.

        The given state is not changed, except for the clients' memories and the ledger, which are
        updated in place. crew: does the clients' work.
        """
        passage = self.passage(round, state.clip, state.server.x)
        ledger, records = state.ledger, RecordCounts()
        for result in crew.play_groups(state, round):
            passage.add(result.sums)
            ledger.taken[result.clients] += result.releases
            records = records + result.records
        sent = passage.sent(ledger)
        if self.private:
            ledger.end_round()
        if state.memory is not None:
            crew.update_memories(state, sent, round)
        server, velocity = server_step(self.algorithm, self.optimiser, state, sent, round)
        earlier = state.with_this_iterate(self.average_last)
        numbers = self._numbers(server, passage, sent, records)
        clip = passage.next_clip(numbers.below)
        after = TrainingState(server, velocity, state.memory, ledger, clip, earlier)
        facts = diagnose(passage, self.gradient_door, records, numbers, self.optimiser.server_lr)
        return after, facts

    def passage(self, round: PlannedRound, clip: float, x: Tensor) -> SendPassage:
        """One round at the send door. clip: C. x: the model, (d,)."""
        return SendPassage(self.send_door, round, clip, torch.zeros_like(x))

    def own_groups(self, groups: Sequence[np.ndarray]) -> range:
        """Which of a cohort's groups this rank plays."""
        return self.share.block([len(group) for group in groups])

    def groups(self, cohort: np.ndarray) -> list[np.ndarray]:
        """Cut a cohort's indices into groups of about equally many clients, in order.

        There are as many groups as there are chunks, or as sums that can be kept apart. If there
        are several, their number is even, so that two workers get equally many.
        """
        if not len(cohort):
            return []
        chunks = 1 if self.send_door.median else -(-len(cohort) // self.chunk)  # the median is of all
        chunks += chunks % 2 if chunks > 1 else 0
        return np.array_split(cohort, min(chunks, len(cohort), most_groups(self.problem.dimension)))

    @np.errstate(all="ignore")  # `experiment.train` reports a model that diverges
    def play_group(
        self, server: Server, memory: Tensor | None, round: PlannedRound, clients: np.ndarray, clip: float
    ) -> tuple[GroupResult, OwnMessages]:
        """One group's part of a round: its local work, and its updates through the doors.

        server: the server's state. memory: of the clients that this rank has, where `share` puts
        them, (M, d) if there are no other ranks; or None. clients: the group's
        indices, (c,). clip: C.
        """
        notes = Notes([], Ledger(self.federation.clients))
        offered: Iterable[tuple[np.ndarray, Tensor]] = (
            (chunk, self._offered(server, memory, round, chunk, notes))
            for chunk in np.array_split(clients, -(-len(clients) // self.chunk))
        )
        if self.send_door.median and self.send_door.bound is not None:
            offered = list(offered)  # every update before any is clipped
            norms = torch.cat([bounding.measured(updates).norms for _, updates in offered])
            clip = norms.quantile(0.5).clamp(LEAST_CLIP, LARGEST_CLIP).item()
        passage = self.passage(round, clip, server.x)
        own: OwnMessages = []
        for chunk, updates in offered:
            messages = passage.send(updates, chunk)
            if self.algorithm.remembers:
                own.append((chunk, messages))
        mapped.release(memory)
        records = sum((passage.counts for passage in notes.passages), RecordCounts())
        return GroupResult(clients, passage.sums, notes.ledger.taken[clients], records), own

    def update_memories(
        self, server: Server, memory: Tensor, own: OwnMessages, sent: Sent, round: PlannedRound
    ) -> None:
        """Update `memory` in place: the clients' memories may fill most of the machine's.

        server: the server's state at the round's beginning. own: the messages of the clients whose
        memories change. sent: what passed the doors.
        """
        for clients, messages in own:
            rows = device.placed(self.share.places(clients), memory)
            updated = self.algorithm.remember(server, memory[rows], replace(sent, messages=messages), round)
            memory.index_copy_(0, rows, updated)
            mapped.release(memory)

    def _offered(
        self, server: Server, memory: Tensor | None, round: PlannedRound, clients: np.ndarray, notes: Notes
    ) -> Tensor:
        """The local work of one chunk: what its clients offer to the send door, (c, d)."""
        passage = None
        if self.gradient_door is not None:
            weights = self.federation.lot_weights(clients)
            passage = self.gradient_door.start(round, clients, weights, notes.ledger)
            notes.passages.append(passage)
        local = LocalOracle(self.problem, self.federation, self.optimiser, round, self.seed, clients, passage)
        if memory is None:
            own = server.x.new_zeros(()).expand(len(clients), len(server.x))
        else:
            own = memory[device.placed(self.share.places(clients), memory)]
        return self.algorithm.client(server, own, local)

    def _numbers(
        self, server: Server, passage: SendPassage, sent: Sent, records: RecordCounts
    ) -> RoundNumbers:
        """Read what a round leaves behind. server: the next state."""
        norm, clipped = clipped_of(passage, None if self.gradient_door is None else records)
        blanked = passage.blanked if self.gradient_door is None else records.blanked
        target, estimate = step_estimates(self.algorithm, passage, sent)
        return RoundNumbers.read(
            server.x.device,
            largest=server.x.abs().max(),
            norm=norm,
            clipped=clipped,
            blanked=blanked,
            below=passage.below,
            step=step_factor(self.algorithm, sent),
            target=target,
            estimate=estimate,
        )


def most_groups(dimension: int) -> int:
    """How many groups' sums are kept apart at most: 256 MB of sums with `dimension` numbers
    each.
    """
    return max(1, min(64, 2**26 // dimension))
