"""One round: the cohort's local work between the two doors, the server step, the clients' memories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Algorithm, Sent, Server
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.doors import GradientDoor, GradientPassage, Passage, SendDoor
from dpfl_bench.federation.schedule import Round, Schedule
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.problems.problem import Problem


@dataclass(frozen=True)
class Optimiser:
    """How clients descend and how the server steps; what the papers put beside their pseudo-code."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    server_lr: float = 1.0
    server_momentum: float = 0.0


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
            raise RuntimeError(f"the algorithm asked for more than the {self.steps} gradients that this round's schedule allows")
        gradient = self._problem.gradient(y, batch) if self._passage is None else self._passage.gradient(self._problem, y, batch)
        return gradient + self._optimiser.weight_decay * y if self._optimiser.weight_decay else gradient

    def step(self, y: Tensor, direction: Tensor) -> Tensor:
        if self._optimiser.momentum:
            old = self._velocity
            direction = direction if old is None else self._optimiser.momentum * old + direction
            self._velocity = direction
        return y - self.lr * direction


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


@dataclass(frozen=True)
class Cohort:
    """Plays rounds: who works, in which chunks, through which door."""

    algorithm: Algorithm
    problem: Problem
    federation: Federation
    optimiser: Optimiser
    door: SendDoor
    chunk: int
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
        return State(self.algorithm.start(x), velocity, memory, Ledger(clients), self.clip, x.new_empty(0, len(x)))

    def play(self, state: State, round: Round) -> tuple[State, Diagnostics]:
        """One round. The state given is not changed, except that the clients' memories and the ledger are updated in place."""
        passages: list[GradientPassage] = []
        worked: Iterable[tuple[np.ndarray, Tensor]] = (
            (clients, self._work(state, round, clients, passages)) for clients in self._chunks(round.cohort)
        )
        clip = state.clip
        if self.door.median and self.door.bound is not None and len(round.cohort):
            worked = list(worked)  # every update before any is clipped
            clip = max(1e-12, torch.cat([updates.norm(dim=1) for _, updates in worked]).quantile(0.5).item())
        passage = Passage(self.door, round, clip, torch.zeros_like(state.server.x))
        kept = []
        for clients, updates in worked:
            own = passage.send(updates, clients)
            if self.algorithm.remembers:
                kept.append((clients, own))
        sent = passage.sent(state.ledger)
        if self.private:
            state.ledger.end_round()
        for clients, own in kept:
            self._remember(state, clients, Sent(sent.mean, own, sent.mean_square_norm, sent.naive_square_norm), round)
        server, velocity = self._server_step(state, sent, round)
        earlier = torch.cat([state.earlier, state.server.x[None]])[-(self.average_last - 1) :] if self.average_last > 1 else state.earlier
        fresh = State(server, velocity, state.memory, state.ledger, passage.next_clip(), earlier)
        return fresh, self._diagnose(passage, passages, sent)

    def _chunks(self, cohort: np.ndarray) -> Iterator[np.ndarray]:
        for start in range(0, len(cohort), self.chunk):
            yield cohort[start : start + self.chunk]

    def _work(self, state: State, round: Round, clients: np.ndarray, passages: list[GradientPassage]) -> Tensor:
        """Local work of one chunk: what it offers to the door, (c, d)."""
        x = state.server.x
        passage = None
        if self.records is not None:
            passage = self.records.start(round, clients, self.federation.lot_weights(clients), state.ledger)
            passages.append(passage)
        local = LocalOracle(self.problem, self.federation, self.optimiser, round, self.seed, clients, passage)
        if state.memory is None:
            memory = x.new_zeros(()).expand(len(clients), len(x))
        else:
            memory = state.memory[torch.from_numpy(clients).to(x.device)]
        return self.algorithm.client(state.server, memory, local)

    def _remember(self, state: State, clients: np.ndarray, sent: Sent, round: Round) -> None:
        assert state.memory is not None
        rows = torch.from_numpy(clients).to(state.memory.device)
        fresh = self.algorithm.remember(state.server, state.memory[rows], sent, round)
        state.memory.index_copy_(0, rows, fresh)  # in place: (M, d) may be most of the memory there is

    def _server_step(self, state: State, sent: Sent, round: Round) -> tuple[Server, Tensor | None]:
        """The algorithm proposes the next model; server_lr and server_momentum act on the step that it proposes."""
        proposed = self.algorithm.server(state.server, sent, round)
        velocity = state.velocity
        if velocity is not None or self.optimiser.server_lr != 1:
            direction = proposed.x - state.server.x
            if velocity is not None:
                velocity = direction = self.optimiser.server_momentum * velocity + direction
            proposed = proposed._replace(x=state.server.x + self.optimiser.server_lr * direction)
        return proposed, velocity

    def _diagnose(self, passage: Passage, passages: list[GradientPassage], sent: Sent) -> Diagnostics:
        step = getattr(self.algorithm, "step", None)
        factor = self.optimiser.server_lr * (float(step(sent)) if step is not None else 1.0)
        if not passage.norms:
            return Diagnostics(float("nan"), float("nan"), factor, passage.clip)
        every = torch.cat(passage.norms)
        if self.records is not None:
            clipped = float(sum(p.clipped for p in passages)) / max(1.0, float(sum(p.records for p in passages)))
            return Diagnostics(every.mean().item(), clipped, factor, self.records.clip or float("nan"))
        clipped = (every > passage.clip).double().mean().item() if self.door.bound else 0.0
        return Diagnostics(every.mean().item(), clipped, factor, passage.clip if self.door.bound else float("nan"))
