"""The two doors: the only places where clipping, noise and the ledger exist.

At client level gradients pass freely, and what a client sends is bounded, noised and recorded (`SendDoor`). At record level each local
gradient is (`GradientDoor`), and what is sent passes as post-processing of it. `eps=inf` opens both.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from torch import Tensor

from dpfl_bench import device
from dpfl_bench.algorithms.base import Sent
from dpfl_bench.federation.schedule import Round
from dpfl_bench.privacy import bounding, mechanisms
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.privacy.privunit import PrivUnit
from dpfl_bench.problems.problem import Batch, Problem, lengths
from dpfl_bench.ranges import LEAST_CLIP

NEGLIGIBLE = 1e-25  # of a gradient, all of which is then left out: times a weight it would be too small to be rounded as others are


@dataclass(frozen=True)
class Quantile:
    """Adaptive clipping (Andrew et al. 2021): C follows a quantile of the norms by a noised share of the ones below it."""

    target: float
    lr: float
    std: float  # of the noise on a cohort's sum of (1[norm <= C] - 1/2), or on each client's term under local trust

    def next(self, clip: float, share: float) -> float:
        return float(clip * np.exp(-self.lr * (share - self.target)))


@dataclass(frozen=True)
class SendDoor:
    """Client level: what a client sends has norm at most C and carries noise before anybody else sees it.

    noise: standard deviation / C of each client's own noise under local trust, of the noise on the cohort's sum else. Unit: client.
    Sampling: any cohort.
    """

    bound: str | None  # clip | normalise | None (open)
    trust: str  # local | secagg | central
    noise: float
    memory: str  # what a client remembers as its own message: own_message (with its noise) | own_update (without)
    seed: int
    median: bool = False  # C is the median of the cohort's norms (leaks)
    quantile: Quantile | None = None
    privunit: PrivUnit | None = None  # for C = 1, in place of Gaussian noise
    norms: float | None = None  # uses_norms: noise on the sum of squared norms / C^2; 0: none is needed; None: not asked for

    @property
    def private(self) -> bool:
        return self.bound is not None and (self.noise > 0 or self.privunit is not None)

    @property
    def sums(self) -> Collection[str]:
        """What goes out with the messages, at a cost of its own."""
        named = {"norms": bool(self.norms), "bits": self.quantile is not None}
        return [name for name, there in named.items() if there and self.private]


@dataclass
class Sums:
    """Over clients of one round."""

    clip: float  # C of this round
    total: Tensor  # (d,): of the messages
    squares: Tensor | float = 0.0  # of |what the server's step may use of an update|^2
    naive: Tensor | float = 0.0  # of |message|^2
    below: Tensor | float = 0.0  # of (1[norm <= C] - 1/2)
    clients: int = 0
    norms: list[Tensor] = field(default_factory=list)  # before bounding


class Passage(Sums):
    """One round at the door: updates go in chunk by chunk, what the server may know comes out."""

    def __init__(self, door: SendDoor, round: Round, clip: float, total: Tensor):
        """total: zeros."""
        super().__init__(clip, total)
        self.door, self.round = door, round

    def send(self, updates: Tensor, clients: np.ndarray) -> Tensor:
        """updates: (c, d) -> what each client remembers of its message: (c, d)."""
        door = self.door
        if door.bound is None:
            self._count(updates, updates, lengths(updates).to(updates))
            return updates
        bounded, norms = getattr(bounding, door.bound)(updates, self.clip)
        messages = self._noised(bounded, clients)
        self._count(bounded, messages, norms)
        return messages if door.memory == "own_message" else bounded

    @property
    def sums(self) -> Sums:
        """So far."""
        return Sums(**{f.name: getattr(self, f.name) for f in fields(Sums)})

    def add(self, part: Sums) -> None:
        """What a group of the round's clients sent."""
        self.clip = part.clip
        self.total = self.total + part.total
        self.squares, self.naive, self.below = self.squares + part.squares, self.naive + part.naive, self.below + part.below
        self.clients += part.clients
        self.norms += part.norms

    def sent(self, ledger: Ledger) -> Sent:
        """The round's end: noise on the sums, the ledger, and what passed."""
        door, round = self.door, self.round
        total, squares = self.total, self.squares
        if door.private:
            if door.trust == "central":
                noise = mechanisms.server_gaussian(door.seed, round.index, len(total), door.noise * self.clip)
                total = total + torch.from_numpy(noise).to(total)
            squares = squares + self._square_noise(len(total))
            ledger.record(round.cohort)
            for name in door.sums:
                ledger.record_sum(name)
        wide = device.wide(total.device)
        scalars = [torch.as_tensor(value / round.divisor, dtype=wide, device=total.device).to(total) for value in (squares, self.naive)]
        return Sent(total / round.divisor, total.new_empty(0, len(total)), *scalars)

    def next_clip(self) -> float:
        """C of the next round."""
        door = self.door
        if door.quantile is None or door.bound is None:
            return self.clip
        std = door.quantile.std * (self.clients**0.5 if door.trust == "local" else 1.0)
        noise = mechanisms.server_scalar(door.seed, self.round.index, "bit-noise", std) if door.private else 0.0
        return door.quantile.next(self.clip, (float(self.below) + noise) / self.round.divisor + 0.5)

    def _noised(self, bounded: Tensor, clients: np.ndarray) -> Tensor:
        door = self.door
        if door.privunit is not None:
            units = bounded.double().cpu().numpy() / self.clip
            randomised = door.privunit.randomise(units, mechanisms.privunit_streams(door.seed, self.round.index, clients))
            return torch.from_numpy(randomised * self.clip).to(bounded)
        if door.trust == "central" or door.noise == 0:
            return bounded
        share = 1.0 if door.trust == "local" else len(self.round.cohort) ** -0.5
        noise = mechanisms.client_gaussian(door.seed, self.round.index, clients, bounded.shape[1], door.noise * self.clip * share)
        return bounded + torch.from_numpy(noise).to(bounded)

    def _count(self, bounded: Tensor, messages: Tensor, norms: Tensor) -> None:
        door = self.door
        self.total = self.total + messages.sum(0)
        self.clients += len(messages)
        self.norms.append(norms)
        if door.quantile is not None:
            self.below = self.below + (norms <= self.clip).sum() - 0.5 * len(norms)
        if door.norms is None:
            return
        if door.trust == "local" or door.bound is None:
            self.naive = self.naive + _square(messages)
        if door.privunit is not None:
            estimates = door.privunit.square_norms(messages.double().cpu().numpy() / self.clip)
            self.squares = self.squares + float(estimates.sum()) * self.clip**2
        else:
            seen = messages if door.trust == "local" else bounded
            self.squares = self.squares + _square(seen)

    def _square_noise(self, dimension: int) -> float:
        """Eq. (6): less the noise's own square norm under local trust. Eq. (7): noise on a sum of what the server cannot see."""
        door = self.door
        if door.norms is None or door.privunit is not None:
            return 0.0
        if door.trust == "local":
            return -self.clients * dimension * (door.noise * self.clip) ** 2
        return mechanisms.server_scalar(door.seed, self.round.index, "norm-noise", door.norms * self.clip**2)


def _square(rows: Tensor) -> Tensor:
    """Summed in the widest format: what is left of it once the noise's share is subtracted may be small."""
    return rows.to(device.wide(rows.device)).square().sum()


@dataclass(frozen=True)
class GradientDoor:
    """Record level: each record's gradient has norm at most C, and the sum over a lot carries its client's noise.

    noise: standard deviation / C of the noise on a lot's sum. Unit: record. Sampling: full, fixed-size or Poisson lots.
    """

    clip: float | None  # None: the median of the lot's norms (leaks)
    noise: float
    seed: int

    def start(self, round: Round, clients: np.ndarray, weights: Tensor, ledger: Ledger) -> GradientPassage:
        """weights: what a record counts in each client's lots, (c,)."""
        return GradientPassage(self, clients, weights, mechanisms.RecordGaussian(self.seed, round.index, clients), ledger)


@dataclass
class GradientPassage:
    """One chunk of clients at the door, during one round."""

    door: GradientDoor
    clients: np.ndarray
    weights: Tensor
    stream: mechanisms.RecordGaussian
    ledger: Ledger
    clipped: Tensor | int = 0
    records: int = 0

    def gradient(self, problem: Problem, y: Tensor, batch: Batch) -> Tensor:
        """(c, d) -> (c, d): clipped, noised, divided by the lots' (expected) sizes; the ridge term, which is no secret, comes on top."""
        bound: Tensor | float = 0.0

        def factors(norms: Tensor, weights: Tensor) -> Tensor:
            nonlocal bound
            bound = medians(norms, weights) if self.door.clip is None else self.door.clip
            self.clipped = self.clipped + (norms > bound).sum()
            scales = bound / norms.clamp(min=bound)
            return scales.where(scales > NEGLIGIBLE, 0)  # nor is what has no length

        gradient, _ = problem.clipped_gradient(y, batch, factors)
        self.records += sum(batch.sizes)
        if self.door.noise == 0:
            return gradient
        self.ledger.record(self.clients)
        noise = torch.from_numpy(self.stream.draw(y.shape[1])).to(gradient)
        return gradient.addcmul_(noise, (self.door.noise * bound * self.weights.unsqueeze(1)).to(gradient))


def medians(norms: Tensor, weights: Tensor) -> Tensor:
    """C of each client, of what its lot's records would send: (c, b) -> (c, 1)."""
    found = [row[real].quantile(0.5) for row, real in zip(norms, weights > 0, strict=True)]
    return torch.stack(found).clamp(min=LEAST_CLIP).unsqueeze(1)
