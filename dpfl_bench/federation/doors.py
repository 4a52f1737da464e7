"""The two doors: the only places where clipping, noise and the ledger exist.

At client level gradients pass freely, and what a client sends is bounded, noised and recorded
(`SendDoor`). At record level each local gradient is (`GradientDoor`), and what is sent passes as
post-processing of it. `eps=inf` opens both.

What comes to a closed door and is not finite counts as zero ("blanked"), before anything is summed:
else one client's or one record's data would decide whether the model overflows, and so how the run
ends, which no eps covers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Sent
from dpfl_bench.checks.ranges import LARGEST_CLIP, LEAST_CLIP
from dpfl_bench.federation.schedule import Round
from dpfl_bench.machine import device
from dpfl_bench.privacy import bounding, lattice, mechanisms
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.privacy.privunit import PrivUnit
from dpfl_bench.problems.problem import Batch, Problem, lengths

FORMATS: dict[torch.dtype, mechanisms.Format] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
}  # noise is as wide as its sum


@dataclass(frozen=True)
class Quantile:
    """Adaptive clipping (Andrew et al. 2021): C follows a quantile of the norms by a noised share
    of the ones below it.
    """

    target: float
    lr: float
    # of the noise on a cohort's sum of (1[norm <= C] - 1/2), or on each client's term under local
    # trust
    std: float

    def next(self, clip: float, share: float) -> float:
        return min(max(LEAST_CLIP, float(clip * np.exp(-self.lr * (share - self.target)))), LARGEST_CLIP)


@dataclass(frozen=True)
class SendDoor:
    """Client level: what a client sends has norm at most C and carries noise before anybody else
    sees it.

    noise: standard deviation / C of each client's own noise under local trust, of the noise on the
    cohort's sum else. Unit: client. Sampling: any cohort.
    """

    bound: str | None  # clip | normalise | None (open)
    trust: str  # local | secagg | central
    noise: float
    memory: (
        str  # what a client remembers as its own message: own_message (with its noise) | own_update (without)
    )
    seed: int
    median: bool = False  # C is the median of the cohort's norms (leaks)
    quantile: Quantile | None = None
    privunit: PrivUnit | None = None  # for C = 1, in place of Gaussian noise
    norms: float | None = (
        None  # uses_norms: noise on the sum of squared norms / C^2; 0: none is needed; None: not asked for
    )
    discrete: bool = False  # what is released lies on a grid (`lattice.py`)

    @property
    def private(self) -> bool:
        return self.bound is not None and (self.noise > 0 or self.privunit is not None)

    @property
    def sums(self) -> Collection[str]:
        """What goes out with the messages, at a cost of its own."""
        named = {"norms": bool(self.norms), "bits": self.quantile is not None}
        return [name for name, there in named.items() if there and self.private]

    def format(self, like: Tensor) -> torch.dtype:
        """Of sums of messages: whole multiples of a grid's spacing need all bits."""
        return device.wide(like.device) if self.discrete else like.dtype


@dataclass
class Sums:
    """Over clients of one round."""

    clip: float  # C of this round
    total: Tensor  # (d,): of the messages
    squares: Tensor | float = 0.0  # of |what the server's step may use of an update|^2
    naive: Tensor | float = 0.0  # of |message|^2
    below: Tensor | float = 0.0  # of (1[norm <= C] - 1/2)
    clients: int = 0
    blanked: int = 0  # updates that were not finite and count as zero
    norms: list[Tensor] = field(default_factory=list)  # before bounding


class Passage(Sums):
    """One round at the door: updates go in chunk by chunk, what the server may know comes out."""

    def __init__(self, door: SendDoor, round: Round, clip: float, total: Tensor):
        """total: zeros."""
        super().__init__(clip, total.to(door.format(total)))
        self.door, self.round, self.dtype = door, round, total.dtype

    def send(self, updates: Tensor, clients: np.ndarray) -> Tensor:
        """updates: (c, d) -> what each client remembers of its message: (c, d)."""
        door = self.door
        if door.bound is None:
            self._count(updates, updates, lengths(updates).to(updates))
            return updates
        found: bounding.Bounded = getattr(bounding, door.bound)(updates, self.clip)
        bounded = (
            lattice.towards_zero(found.rows, lattice.spacing(self._std)) if door.discrete else found.rows
        )
        messages = self._noised(bounded, clients)
        self._count(bounded, messages, found.norms)
        self.blanked += found.blanked
        return (messages if door.memory == "own_message" else bounded).to(updates)

    @property
    def sums(self) -> Sums:
        """So far."""
        return Sums(**{f.name: getattr(self, f.name) for f in fields(Sums)})

    def add(self, part: Sums) -> None:
        """What a group of the round's clients sent."""
        self.clip = part.clip
        self.total = self.total + part.total
        self.squares, self.naive, self.below = (
            self.squares + part.squares,
            self.naive + part.naive,
            self.below + part.below,
        )
        self.clients += part.clients
        self.blanked += part.blanked
        self.norms += part.norms

    def sent(self, ledger: Ledger) -> Sent:
        """The round's end: noise on the sums, the ledger, and what passed."""
        door, round = self.door, self.round
        total, squares = self.total, self.squares
        if door.private:
            if door.trust == "central":
                noise = mechanisms.server_gaussian(
                    door.seed, round.index, len(total), self._std, FORMATS[total.dtype]
                )
                total = total + self._on_grid(noise).to(total)
            squares = squares + self._square_noise(len(total))
            ledger.record(round.cohort)
            for name in door.sums:
                ledger.record_sum(name)
        wide = device.wide(total.device)
        scalars = [
            torch.as_tensor(value / round.divisor, dtype=wide, device=total.device).to(self.dtype)
            for value in (squares, self.naive)
        ]
        mean = (total / round.divisor).to(self.dtype)
        return Sent(mean, mean.new_empty(0, len(mean)), *scalars)

    def next_clip(self) -> float:
        """C of the next round."""
        door = self.door
        if door.quantile is None or door.bound is None:
            return self.clip
        std = door.quantile.std * (self.clients**0.5 if door.trust == "local" else 1.0)
        noise = self._scalar("bit-noise", std) if door.private else 0.0
        return door.quantile.next(self.clip, (float(self.below) + noise) / self.round.divisor + 0.5)

    def _noised(self, bounded: Tensor, clients: np.ndarray) -> Tensor:
        door = self.door
        if door.privunit is not None:
            units = bounded.double().cpu().numpy() / self.clip
            randomised = door.privunit.randomise(
                units, mechanisms.privunit_streams(door.seed, self.round.index, clients)
            )
            return torch.from_numpy(randomised * self.clip).to(bounded)
        if door.trust == "central" or door.noise == 0:
            return bounded
        noise = mechanisms.client_gaussian(
            door.seed, self.round.index, clients, bounded.shape[1], self._std, FORMATS[bounded.dtype]
        )
        return bounded + self._on_grid(noise).to(bounded)

    @property
    def _std(self) -> float:
        """Of one draw: a client's noise or its share of it, or the server's."""
        return (
            self.door.noise
            * self.clip
            * (len(self.round.cohort) ** -0.5 if self.door.trust == "secagg" else 1.0)
        )

    def _on_grid(self, noise: np.ndarray) -> Tensor:
        return torch.from_numpy(
            lattice.nearest(noise, lattice.spacing(self._std)) if self.door.discrete else noise
        )

    def _scalar(self, what: str, std: float) -> float:
        """Noise on a number beside the sum; where that lies on a grid of halves or finer, so does
        the noise.
        """
        drawn = mechanisms.server_scalar(self.door.seed, self.round.index, what, std)
        return (
            float(lattice.nearest(np.array(drawn), min(0.5, lattice.spacing(std))))
            if self.door.discrete
            else drawn
        )

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
            self.squares = self.squares + (
                _square(messages) if door.trust == "local" else self._squares_to_release(bounded)
            )

    def _square_noise(self, dimension: int) -> float:
        """Eq. (6): less the noise's own square norm under local trust. Eq. (7): noise on a sum of
        what the server cannot see.
        """
        door = self.door
        if door.norms is None or door.privunit is not None:
            return 0.0
        if door.trust == "local":
            return -self.clients * dimension * (door.noise * self.clip) ** 2
        return self._scalar("norm-noise", self._squares_std)

    @property
    def _squares_std(self) -> float:
        return (self.door.norms or 0.0) * self.clip**2

    def _squares_to_release(self, bounded: Tensor) -> Tensor:
        """Each client's apart where they have to lie on the grid of the noise on their sum."""
        if not (self.door.discrete and self.door.norms):
            return _square(bounded)
        return lattice.towards_zero(
            bounded.square().sum(1), min(0.5, lattice.spacing(self._squares_std))
        ).sum()


def _square(rows: Tensor) -> Tensor:
    """Summed in the widest format: what is left of it once the noise's share is subtracted may be
    small.
    """
    return rows.to(device.wide(rows.device)).square().sum()


@dataclass(frozen=True)
class RecordCounts:
    """Records' gradients at the door."""

    clipped: Tensor | int = 0
    blanked: int = 0  # not finite, or with a norm that is not: they count as zero
    all: int = 0

    def __add__(self, other: RecordCounts) -> RecordCounts:
        return RecordCounts(self.clipped + other.clipped, self.blanked + other.blanked, self.all + other.all)


@dataclass(frozen=True)
class GradientDoor:
    """Record level: each record's gradient has norm at most C, and the sum over a lot carries its
    client's noise.

    noise: standard deviation / C of the noise on a lot's sum. Unit: record. Sampling: full,
    fixed-size or Poisson lots.
    """

    clip: float | None  # None: the median of the lot's norms (leaks)
    noise: float
    seed: int

    def start(self, round: Round, clients: np.ndarray, weights: Tensor, ledger: Ledger) -> GradientPassage:
        """weights: what a record counts in each client's lots, (c,)."""
        return GradientPassage(
            self, clients, weights, mechanisms.RecordGaussian(self.seed, round.index, clients), ledger
        )


@dataclass
class GradientPassage:
    """One chunk of clients at the door, during one round."""

    door: GradientDoor
    clients: np.ndarray
    weights: Tensor
    stream: mechanisms.RecordGaussian
    ledger: Ledger
    clipped: Tensor | int = 0
    blanked: int = 0
    records: int = 0

    @property
    def counts(self) -> RecordCounts:
        return RecordCounts(self.clipped, self.blanked, self.records)

    def gradient(self, problem: Problem, y: Tensor, batch: Batch) -> Tensor:
        """(c, d) -> (c, d): clipped, noised, divided by the lots' (expected) sizes; the ridge term,
        which is no secret, comes on top.
        """
        bound: Tensor | float = 0.0

        def factors(norms: Tensor, weights: Tensor) -> Tensor:
            nonlocal bound
            bound = medians(norms, weights) if self.door.clip is None else self.door.clip
            scales = bounding.scales(norms, bound)
            self.clipped = self.clipped + (norms > bound).sum()
            if not scales.min().item() > 0:
                self.blanked += int((~norms.isfinite()).sum())
            return scales

        gradient, _ = problem.clipped_gradient(y, batch, factors)
        self.records += sum(batch.sizes)
        if self.door.noise == 0:
            return gradient
        self.ledger.record(self.clients)
        noise = torch.from_numpy(self.stream.draw(y.shape[1], FORMATS[y.dtype])).to(gradient)
        return gradient.addcmul_(noise, (self.door.noise * bound * self.weights.unsqueeze(1)).to(gradient))


def medians(norms: Tensor, weights: Tensor) -> Tensor:
    """C of each client, of what its lot's records would send: (c, b) -> (c, 1)."""
    norms = norms.where(norms.isfinite(), 0)
    found = [row[real].quantile(0.5) for row, real in zip(norms, weights > 0, strict=True)]
    return torch.stack(found).clamp(LEAST_CLIP, LARGEST_CLIP).unsqueeze(1)
