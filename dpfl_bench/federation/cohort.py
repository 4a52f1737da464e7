"""One round: the cohort's local work between the two doors, the server step, the clients' memories.

The doors are the only places where clipping, noise and the ledger exist. At client level gradients pass freely and what a client sends is
bounded, noised and recorded; `eps=inf` opens that door too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Algorithm, Sent, Server
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.schedule import Round
from dpfl_bench.privacy import bounding, mechanisms
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.problems.problem import Problem


@dataclass(frozen=True)
class Optimiser:
    """How clients descend and how the server steps; what the papers put beside their pseudo-code."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    server_lr: float = 1.0
    server_momentum: float = 0.0


@dataclass(frozen=True)
class SendDoor:
    """Client level: what a client sends has norm at most `clip` and carries noise before anybody else sees it.

    noise_std: local: of each client's own noise; secagg, central: of the noise on the cohort's sum. Unit: client. Sampling: any cohort.
    """

    bound: str | None  # clip | normalise | None (open)
    clip: float
    trust: str  # local | secagg | central
    noise_std: float
    memory: str  # what a client remembers as its own message: own_message (with its noise) | own_update (without)
    seed: int

    def messages(self, updates: Tensor, clients: np.ndarray, round: Round) -> tuple[Tensor, Tensor, Tensor]:
        """updates: (c, d) -> what goes out (bounded, and noised unless the server is trusted), what each client remembers of it,
        (c, d) both, and the norms before bounding, (c,)."""
        if self.bound is None:
            return updates, updates, updates.norm(dim=1)
        bounded, norms = getattr(bounding, self.bound)(updates, self.clip)
        if self.trust == "central" or self.noise_std == 0:
            return bounded, bounded, norms
        std = self.noise_std if self.trust == "local" else self.noise_std / len(round.cohort) ** 0.5  # a share of the sum's noise
        noise = mechanisms.client_gaussian(self.seed, round.index, clients, updates.shape[1], std)
        messages = bounded + torch.from_numpy(noise).to(updates)
        return messages, messages if self.memory == "own_message" else bounded, norms

    def mean(self, total: Tensor, round: Round) -> Tensor:
        """The cohort's sum, noised here if the server is trusted, over the public divisor."""
        if self.trust == "central" and self.bound is not None and self.noise_std > 0:
            noise = mechanisms.server_gaussian(self.seed, round.index, len(total), self.noise_std)
            total = total + torch.from_numpy(noise).to(total)
        return total / round.divisor

    @property
    def private(self) -> bool:
        return self.bound is not None and self.noise_std > 0


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
    ):
        self.steps, self.lr = round.steps, round.lr
        self._problem, self._optimiser = problem, optimiser
        self._batches = federation.batches(seed, round.index, clients, round.steps)
        self._velocity: Tensor | None = None

    def gradient(self, y: Tensor) -> Tensor:
        batch = next(self._batches, None)
        if batch is None:
            raise RuntimeError(f"the algorithm asked for more than the {self.steps} gradients that this round's schedule allows")
        gradient = self._problem.gradient(y, batch)
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


@dataclass(frozen=True)
class Diagnostics:
    """Of one round, before bounding. They leak: for simulation only."""

    update_norm: float  # mean over the cohort
    clipped_fraction: float


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

    def start(self, x: Tensor) -> State:
        """Round 0: the server has x, every client's memory is zero, the ledger is empty."""
        clients = self.federation.clients
        memory = x.new_zeros(clients, len(x)) if self.algorithm.remembers else None
        velocity = torch.zeros_like(x) if self.optimiser.server_momentum else None
        return State(self.algorithm.start(x), velocity, memory, Ledger(clients))

    def play(self, state: State, round: Round) -> tuple[State, Diagnostics]:
        """One round. The state given is not changed, except that the clients' memories are updated in place."""
        total = torch.zeros_like(state.server.x)
        kept: list[tuple[np.ndarray, Tensor]] = []
        norms: list[Tensor] = []
        for clients in self._chunks(round.cohort):
            messages, own, norm = self._work(state, round, clients)
            total = total + messages.sum(0)
            norms.append(norm)
            if self.algorithm.remembers:
                kept.append((clients, own))
        mean = self.door.mean(total, round)
        if self.door.private:
            state.ledger.record(round.cohort)
        server = self._server_step(state, Sent(mean, total.new_empty(0, len(total))), round)
        for clients, own in kept:
            assert state.memory is not None
            rows = torch.from_numpy(clients).to(state.memory.device)
            fresh = self.algorithm.remember(state.memory[rows], Sent(mean, own), round)
            state.memory.index_copy_(0, rows, fresh)  # in place: (M, d) may be most of the memory there is
        return server, self._diagnose(norms)

    def _chunks(self, cohort: np.ndarray) -> Iterator[np.ndarray]:
        for start in range(0, len(cohort), self.chunk):
            yield cohort[start : start + self.chunk]

    def _work(self, state: State, round: Round, clients: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Local work of one chunk, through the door: messages and own copies, (c, d), and norms before bounding, (c,)."""
        local = LocalOracle(self.problem, self.federation, self.optimiser, round, self.seed, clients)
        x = state.server.x
        if state.memory is None:
            memory = x.new_zeros(()).expand(len(clients), len(x))
        else:
            memory = state.memory[torch.from_numpy(clients).to(x.device)]
        update = self.algorithm.client(state.server, memory, local)
        return self.door.messages(update, clients, round)

    def _server_step(self, state: State, sent: Sent, round: Round) -> State:
        """The algorithm proposes the next model; server_lr and server_momentum act on the step that it proposes."""
        proposed = self.algorithm.server(state.server, sent, round)
        velocity = state.velocity
        if velocity is not None or self.optimiser.server_lr != 1:
            direction = proposed.x - state.server.x
            if velocity is not None:
                velocity = direction = self.optimiser.server_momentum * velocity + direction
            proposed = proposed._replace(x=state.server.x + self.optimiser.server_lr * direction)
        return State(proposed, velocity, state.memory, state.ledger)

    def _diagnose(self, norms: list[Tensor]) -> Diagnostics:
        if not norms:
            return Diagnostics(float("nan"), float("nan"))
        every = torch.cat(norms)
        clipped = (every > self.door.clip).double().mean().item() if self.door.bound else 0.0
        return Diagnostics(every.mean().item(), clipped)
