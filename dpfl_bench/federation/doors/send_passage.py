"""One round at the send door: each client's update is clipped to norm C, noised, summed and
recorded.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Sent
from dpfl_bench.federation.doors.send import SendDoor, Sums
from dpfl_bench.federation.doors.send_noise import SendNoise
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.machine import device
from dpfl_bench.privacy import bounding, noise_grid
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.problems.problem import lengths


class SendPassage(Sums):
    """Updates go in chunk by chunk (`send`); what the server may know comes out (`sent`)."""

    def __init__(self, door: SendDoor, round: PlannedRound, clip: float, total: Tensor):
        """clip: C of this round. total: zeros, (d,)."""
        super().__init__(clip, total.to(door.format(total)))
        self.door, self.round, self.dtype = door, round, total.dtype
        self.released = self.total  # the sum with all noise in it, once the round has ended

    @property
    def noise(self) -> SendNoise:
        return SendNoise(self.door, self.round, self.clip)

    def send(self, updates: Tensor, clients: np.ndarray) -> Tensor:
        """Bound and noise the updates of some clients, and add them to the sums.

        updates: (c, d). clients: their indices, (c,). Returns what each client remembers of its own
        message: (c, d).
        """
        door = self.door
        if door.bound is None:
            self._count(updates, updates, lengths(updates).to(updates))
            return updates
        result: bounding.Bounded = getattr(bounding, door.bound)(updates, self.clip)
        noise, bounded = self.noise, result.rows
        if door.discrete:
            bounded = noise_grid.towards_zero(bounded, noise_grid.spacing(noise.std))
        drawn = noise.on_messages(bounded, clients)
        messages = drawn if door.privunit is None else device.placed(drawn, bounded)
        self._count(bounded, messages, result.norms)
        if door.privunit is not None and door.norm_noise is not None:
            estimates = door.privunit.square_norms(drawn.double().numpy() / self.clip)
            self.squares = self.squares + float(estimates.sum()) * self.clip**2
        self.blanked = self.blanked + result.blanked
        return (messages if door.memory == "own_message" else bounded).to(updates)

    @property
    def sums(self) -> Sums:
        """The sums so far."""
        return Sums(**{f.name: getattr(self, f.name) for f in fields(Sums)})

    def add(self, part: Sums) -> None:
        """Add the sums of one group of the round's clients."""
        self.clip = part.clip
        self.total = self.total + part.total
        self.signal = self.signal + part.signal
        self.squares = self.squares + part.squares
        self.naive = self.naive + part.naive
        self.below = self.below + part.below
        self.clients += part.clients
        self.blanked = self.blanked + part.blanked
        self.norms += part.norms

    def sent(self, ledger: Ledger) -> Sent:
        """The round's end: add the server's noise to the sums, record the release in the ledger,
        and return what the server may know.
        """
        door, divisor = self.door, self.round.divisor
        total, squares = self.total, self.squares
        if door.private:
            total = self.noise.on_total(total)
            squares = squares + self.noise.on_squares(self.clients, len(total))
            ledger.record(self.round.cohort)
            for name in door.sums:
                ledger.record_sum(name)
        self.released = total
        zero = total.new_zeros((), dtype=device.wide(total.device))
        scalars = [(zero + value / divisor).to(self.dtype) for value in (squares, self.naive)]
        mean = (total / divisor).to(self.dtype)
        return Sent(mean, None, *scalars)

    def signal_and_noise(self) -> tuple[Tensor, Tensor]:
        """What the released mean is made of: the mean of the bounded updates, and its noise, (d,)
        each. The noise is what the release differs by, so it is exact to the rounding of the sum.
        """
        wide, divisor = device.wide(self.released.device), self.round.divisor
        kept = self.signal if self.door.noisy_messages else self.total
        signal = torch.as_tensor(kept, device=self.released.device).to(wide).expand_as(self.released)
        return signal / divisor, (self.released.to(wide) - signal) / divisor

    def next_clip(self, below: float | None = None) -> float:
        """C of the next round. below: the sum of that name, where it is read already."""
        door = self.door
        if door.quantile is None or door.bound is None:
            return self.clip
        std = door.quantile.std * (self.clients**0.5 if door.trust == "local" else 1.0)
        noise = self.noise.on_bits(std) if door.private else 0.0
        below = float(self.below) if below is None else below
        return door.quantile.next(self.clip, (below + noise) / self.round.divisor + 0.5)

    def _count(self, bounded: Tensor, messages: Tensor, norms: Tensor) -> None:
        """Add to the sums. bounded, messages: (c, d). norms: of the updates before bounding,
        (c,).
        """
        door = self.door
        self.total = self.total + messages.sum(0)
        if door.noisy_messages:
            self.signal = self.signal + bounded.sum(0)
        self.clients += len(messages)
        self.norms.append(norms)
        if door.quantile is not None:
            self.below = self.below + (norms <= self.clip).sum() - 0.5 * len(norms)
        if door.norm_noise is None:
            return
        if door.trust == "local" or door.bound is None:
            self.naive = self.naive + _square(messages)
        if door.privunit is None:
            self.squares = self.squares + (
                _square(messages) if door.trust == "local" else self._squares_to_release(bounded)
            )

    def _squares_to_release(self, bounded: Tensor) -> Tensor:
        """The sum of the bounded updates' squared norms; each one is rounded to the grid of the
        noise on their sum, where there is a grid.
        """
        if not (self.door.discrete and self.door.norm_noise):
            return _square(bounded)
        spacing = min(0.5, noise_grid.spacing(self.noise.squares_std))
        return noise_grid.towards_zero(bounded.square().sum(1), spacing).sum()


def _square(rows: Tensor) -> Tensor:
    """|rows|^2 in the widest format: little may be left of it once the noise's share is
    subtracted.
    """
    return rows.to(device.wide(rows.device)).square().sum()
