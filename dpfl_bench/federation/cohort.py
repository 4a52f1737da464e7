"""One round: the cohort's local work between the two doors, the server step, the clients' memories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Algorithm, Sent, Server
from dpfl_bench.checks.ranges import LARGEST_CLIP, LEAST_CLIP
from dpfl_bench.federation import evaluation
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.doors import GradientDoor, GradientPassage, Passage, RecordCounts, SendDoor, Sums
from dpfl_bench.federation.local import LocalOracle, Optimiser
from dpfl_bench.federation.schedule import Round, Schedule
from dpfl_bench.privacy import bounding
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.problems.problem import Problem, Scored

NAN = float("nan")


@dataclass
class State:
    """Everything that crosses rounds."""

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


@dataclass(frozen=True)
class Diagnostics:
    """Of one round, before bounding. They leak: for simulation only."""

    update_norm: float  # mean over the cohort
    clipped_fraction: float  # of the updates, or at record level of the records' gradients
    server_step: float  # server_lr times the algorithm's own factor
    clip: float  # C
    blanked: int | None = (
        # updates (record level: records' gradients) that were not finite and counted as zero; None:
        # open doors
        None
    )
    all_blanked: bool = False  # and there were no others


@dataclass
class Worked:
    """What became of one group of a round's clients at the doors."""

    clients: np.ndarray
    sums: Sums
    taken: np.ndarray  # releases of each of these clients, as the doors recorded them
    records: RecordCounts


Kept = list[tuple[np.ndarray, Tensor]]  # (clients, what each remembers of its message)


@dataclass(frozen=True)
class Cohort:
    """What happens in a round: who works, in which groups and chunks, through which door.

    A cohort is cut into groups, whose sums are added in their order whoever computed them: no bit
    depends on how many workers there are.
    """

    algorithm: Algorithm
    problem: Problem
    federation: Federation
    optimiser: Optimiser
    door: SendDoor
    chunk: int  # clients at a time
    seed: int
    clip: float = 0.0  # C of the first round's messages
    records: GradientDoor | None = None  # record level
    average_last: int = 1

    @property
    def private(self) -> bool:
        return self.door.private or (self.records is not None and self.records.noise > 0)

    def releases(self, schedule: Schedule) -> np.ndarray:
        """How many releases the schedule plans for each client: (M,)."""
        planned = schedule.participation if self.records is None else schedule.gradients
        return planned.copy() if self.private else np.zeros_like(planned)

    def releases_of(self, round: Round) -> int:
        """How many each client of a round's cohort makes."""
        return (1 if self.records is None else round.steps) if self.private else 0

    def start(self, x: Tensor) -> State:
        """Round 0: the server has x, every client's memory is zero, the ledger is empty."""
        clients = self.federation.clients
        memory = x.new_zeros(clients, len(x)) if self.algorithm.remembers else None
        velocity = torch.zeros_like(x) if self.optimiser.server_momentum else None
        return State(
            self.algorithm.start(x), velocity, memory, Ledger(clients), self.clip, x.new_empty(0, len(x))
        )

    def groups(self, cohort: np.ndarray) -> list[np.ndarray]:
        """Of whole chunks, as many as can be summed apart; if several, an even number, so that two
        workers get equally many.
        """
        if not len(cohort):
            return []
        chunks = 1 if self.door.median else -(-len(cohort) // self.chunk)  # the median is of all
        chunks += chunks % 2 if chunks > 1 else 0
        return np.array_split(cohort, min(chunks, len(cohort), most_groups(self.problem.dimension)))

    @np.errstate(all="ignore")  # who diverges is told elsewhere
    def work(
        self, server: Server, memory: Tensor | None, round: Round, clients: np.ndarray, clip: float
    ) -> tuple[Worked, Kept]:
        """A group's part of a round, up to the doors."""
        passages: list[GradientPassage] = []
        ledger = Ledger(self.federation.clients)
        offered: Iterable[tuple[np.ndarray, Tensor]] = (
            (chunk, self._offered(server, memory, round, chunk, passages, ledger))
            for chunk in np.array_split(clients, -(-len(clients) // self.chunk))
        )
        if self.door.median and self.door.bound is not None:
            offered = list(offered)  # every update before any is clipped
            norms = torch.cat([bounding.measured(updates).norms for _, updates in offered])
            clip = norms.quantile(0.5).clamp(LEAST_CLIP, LARGEST_CLIP).item()
        passage = Passage(self.door, round, clip, torch.zeros_like(server.x))
        kept = []
        for chunk, updates in offered:
            own = passage.send(updates, chunk)
            if self.algorithm.remembers:
                kept.append((chunk, own))
        records = sum((passage.counts for passage in passages), RecordCounts())
        return Worked(clients, passage.sums, ledger.taken[clients], records), kept

    def remember(self, server: Server, memory: Tensor, kept: Kept, sent: Sent, round: Round) -> None:
        """In place: the clients' memories may be most of the memory there is."""
        for clients, own in kept:
            rows = torch.from_numpy(clients).to(memory.device)
            fresh = self.algorithm.remember(server, memory[rows], replace(sent, each=own), round)
            memory.index_copy_(0, rows, fresh)

    def play(self, state: State, round: Round, crew: Crew | None = None) -> tuple[State, Diagnostics]:
        """One round. The state given is not changed, except that the clients' memories and the
        ledger are updated in place.
        """
        crew = crew or Alone(self)
        passage, ledger = (
            Passage(self.door, round, state.clip, torch.zeros_like(state.server.x)),
            state.ledger,
        )
        records = RecordCounts()
        for worked in crew.work(state, round):
            passage.add(worked.sums)
            ledger.taken[worked.clients] += worked.taken
            records = records + worked.records
        sent = passage.sent(ledger)
        if self.private:
            ledger.end_round()
        if state.memory is not None:
            crew.remember(state, sent, round)
        server, velocity = self._server_step(state, sent, round)
        earlier = (
            torch.cat([state.earlier, state.server.x[None]])[-(self.average_last - 1) :]
            if self.average_last > 1
            else state.earlier
        )
        fresh = State(server, velocity, state.memory, ledger, passage.next_clip(), earlier)
        return fresh, self._diagnose(passage, sent, records)

    def _offered(
        self,
        server: Server,
        memory: Tensor | None,
        round: Round,
        clients: np.ndarray,
        passages: list[GradientPassage],
        ledger: Ledger,
    ) -> Tensor:
        """Local work of one chunk: what it offers to the door, (c, d)."""
        passage = None
        if self.records is not None:
            passage = self.records.start(round, clients, self.federation.lot_weights(clients), ledger)
            passages.append(passage)
        local = LocalOracle(self.problem, self.federation, self.optimiser, round, self.seed, clients, passage)
        if memory is None:
            own = server.x.new_zeros(()).expand(len(clients), len(server.x))
        else:
            own = memory[torch.from_numpy(clients).to(server.x.device)]
        return self.algorithm.client(server, own, local)

    def _server_step(self, state: State, sent: Sent, round: Round) -> tuple[Server, Tensor | None]:
        """The algorithm proposes the next model; server_lr and server_momentum act on the step that
        it proposes.
        """
        proposed = self.algorithm.server(state.server, sent, round)
        velocity = state.velocity
        if velocity is not None or self.optimiser.server_lr != 1:
            direction = proposed.x - state.server.x
            if velocity is not None:
                velocity = direction = (
                    self.optimiser.server_momentum * self.optimiser.server_momentum_decay * velocity
                    + direction
                )
            proposed = proposed._replace(x=state.server.x + self.optimiser.server_lr * direction)
        return proposed, velocity

    def _diagnose(self, passage: Passage, sent: Sent, records: RecordCounts) -> Diagnostics:
        step = getattr(self.algorithm, "step", None)
        factor = self.optimiser.server_lr * (float(step(sent)) if step is not None else 1.0)
        closed = self.records is not None or self.door.bound is not None
        blanked, units = (
            (records.blanked, records.all) if self.records is not None else (passage.blanked, passage.clients)
        )
        counted = blanked if closed else None, 0 < units == blanked
        if not passage.norms:
            return Diagnostics(NAN, NAN, factor, passage.clip, *counted)
        every = torch.cat(passage.norms)
        norm = every.mean().item()
        if self.records is not None:
            return Diagnostics(
                norm, float(records.clipped) / max(1, units), factor, self.records.clip or NAN, *counted
            )
        share = (every > passage.clip).double().mean().item() if self.door.bound else 0.0
        return Diagnostics(norm, share, factor, passage.clip if self.door.bound else NAN, *counted)


def most_groups(dimension: int) -> int:
    """Whose sums are kept apart: 256 MB of them at most."""
    return max(1, min(64, 2**26 // dimension))


class Crew(Protocol):
    """Who does the work of a round."""

    def work(self, state: State, round: Round) -> Iterable[Worked]:
        """Every group's, in order."""
        ...

    def remember(self, state: State, sent: Sent, round: Round) -> None:
        """The cohort's memories after the round that was worked last."""
        ...

    def losses(self, x: Tensor, test: bool) -> Scored:
        """Of each training or test record."""
        ...


class Alone:
    """This process does everything."""

    def __init__(self, cohort: Cohort):
        self.cohort = cohort
        self._kept: Kept = []

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *error: object) -> None:
        self._kept = []

    def begin(self) -> None:
        """A round."""
        self._kept = []

    def work(self, state: State, round: Round) -> Iterator[Worked]:
        self.begin()
        for clients in self.cohort.groups(round.cohort):
            yield self.group(state.server, state.memory, round, clients, state.clip)

    def group(
        self, server: Server, memory: Tensor | None, round: Round, clients: np.ndarray, clip: float
    ) -> Worked:
        worked, kept = self.cohort.work(server, memory, round, clients, clip)
        self._kept += kept
        return worked

    def remember(self, state: State, sent: Sent, round: Round) -> None:
        assert state.memory is not None
        self.cohort.remember(state.server, state.memory, self._kept, sent, round)

    def losses(self, x: Tensor, test: bool) -> Scored:
        problem, federation = self.cohort.problem, self.cohort.federation
        return evaluation.scored(problem, federation, x, test)
