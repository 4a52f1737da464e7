"""The send door's settings (client level), and the sums that one round leaves behind it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dpfl_bench.federation.doors.quantile import Quantile
from dpfl_bench.machine import device
from dpfl_bench.privacy.privunit import PrivUnit


@dataclass(frozen=True)
class SendDoor:
    """Client level: what a client sends has norm at most C and carries noise before anybody else
    sees it.

    Unit: client. Sampling: any cohort.
    """

    bound: str | None  # clip | normalise | None (open)
    trust: str  # local | secagg | central
    # standard deviation / C: under local trust of each client's own noise, else of the noise on the
    # cohort's sum
    noise: float
    # what a client remembers as its own message: own_message (with its noise) | own_update
    # (without)
    memory: str
    seed: int
    median: bool = False  # C is the median of the cohort's norms (leaks)
    quantile: Quantile | None = None  # C follows a quantile of the norms
    privunit: PrivUnit | None = None  # randomises messages of norm C, in place of Gaussian noise
    # for algorithms that use norms: standard deviation of the noise on the sum of squared norms,
    # over C^2. 0: no noise is needed. None: the algorithm does not use norms
    norm_noise: float | None = None
    discrete: bool = False  # every released number lies on a grid (`privacy/noise_grid.py`)

    @property
    def private(self) -> bool:
        return self.bound is not None and (self.noise > 0 or self.privunit is not None)

    @property
    def noisy_messages(self) -> bool:
        """Whether clients randomise what they send; else only the server adds noise, if anybody."""
        return self.private and (self.privunit is not None or self.trust != "central")

    @property
    def vectors(self) -> int:
        """How many sums of d numbers a round has: see `Sums.leave`."""
        return 2 if self.noisy_messages else 1

    @property
    def sums(self) -> Collection[str]:
        """Names of the sums that are released beside the messages' and cost eps of their own."""
        named = {"norms": bool(self.norm_noise), "bits": self.quantile is not None}
        return [name for name, there in named.items() if there and self.private]

    def format(self, like: Tensor) -> torch.dtype:
        """Number format of sums of messages: whole multiples of a grid's spacing need all bits."""
        return device.wide(like.device) if self.discrete else like.dtype


@dataclass
class Sums:
    """Sums over clients of one round, before the server's noise."""

    clip: float  # C of this round
    total: Tensor  # (d,): of the messages
    # (d,): of the bounded updates, where clients add noise; else nothing, for `total` is that sum
    signal: Tensor | float = 0.0
    squares: Tensor | float = 0.0  # of |update|^2 after bounding, as far as the server's step may use it
    naive: Tensor | float = 0.0  # of |message|^2
    below: Tensor | float = 0.0  # of (1[norm <= C] - 1/2)
    clients: int = 0
    blanked: Tensor | int = 0  # updates that were not finite and count as zero
    norms: list[Tensor] = field(default_factory=list)  # of the updates before bounding

    def leave(self, rows: Tensor) -> None:
        """Put the vectors into `rows`, (1 or 2, d), and keep none."""
        rows[0], self.total = self.total, self.total[:0].clone()
        if len(rows) > 1:
            rows[1], self.signal = self.signal, 0.0

    def take(self, rows: Tensor) -> None:
        """Have the vectors that were left there."""
        self.total = rows[0]
        if len(rows) > 1:
            self.signal = rows[1]
