"""One schedule, drawn first: which clients take part in which round, with how many local steps, at
which learning rate.

It never depends on data. The same object feeds the calibrator, the training loop and the
accountant, so they cannot disagree. Numpy only: `dpfl-bench plan` draws it without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from dpfl_bench import rng
from dpfl_bench.privacy.released.clients import Sampling

COINS = 10**7  # thrown at a time: they need not all be in memory


@dataclass(frozen=True)
class PlannedRound:
    """The plan of round `index` (from 0), the same for every client of its cohort."""

    index: int
    steps: int
    lr: float
    p: float  # ScaffNew's p, the probability that a local step communicates: 1 / expected local steps
    cohort: np.ndarray  # indices of the clients that take part, ascending
    divisor: float  # of the cohort's sum: the cohort's size, under Poisson sampling the expected one
    share: float = 1.0  # of the clients that takes part, under Poisson sampling in expectation


@dataclass(frozen=True)
class Schedule:
    """The rounds of one seed."""

    seed: int
    clients: int
    cohort_size: int
    sampling: Sampling  # of clients
    steps: tuple[int, ...]  # local steps of each round
    p: float
    lr: float
    lr_decay: float = 1.0  # factor of the learning rate from one round to the next

    @property
    def rounds(self) -> int:
        return len(self.steps)

    def cohort(self, index: int) -> np.ndarray:
        """Indices of the clients that take part in round `index`, ascending."""
        if self.sampling == "full":
            return np.arange(self.clients)
        draw = rng.generator(self.seed, "cohort", index)
        if self.sampling == "fixed":
            return np.sort(draw.choice(self.clients, self.cohort_size, replace=False))
        return np.flatnonzero(draw.random(self.clients) < self.cohort_size / self.clients)

    def round(self, index: int) -> PlannedRound:
        return PlannedRound(
            index=index,
            steps=self.steps[index],
            lr=self.lr * self.lr_decay**index,
            p=self.p,
            cohort=self.cohort(index),
            divisor=self.cohort_size,
            share=self.share,
        )

    @property
    def share(self) -> float:
        """Of the clients that takes part in a round."""
        return self.cohort_size / self.clients

    def first(self, rounds: int) -> Schedule:
        """The schedule of the first `rounds` rounds alone."""
        return replace(self, steps=self.steps[:rounds])

    @cached_property
    def participation(self) -> np.ndarray:
        """In how many rounds each client takes part: shape (clients,)."""
        return self._drawn[0]

    @cached_property
    def gradients(self) -> np.ndarray:
        """How many local steps each client does: shape (clients,)."""
        return _taken(self._plain(self.steps))[0]

    @property
    def _drawn(self) -> tuple[np.ndarray, int]:
        """Facts about the cohorts alone, whatever the steps."""
        return _taken(self._plain((1,) * self.rounds))

    def _plain(self, steps: tuple[int, ...]) -> Schedule:
        """With other steps, and without what no cohort depends on."""
        return replace(self, steps=steps, p=1.0, lr=0.0, lr_decay=1.0)

    @cached_property
    def smallest_cohort(self) -> int:
        """Size of the smallest cohort that is not empty (an empty one releases nothing)."""
        return self._drawn[1] if self.sampling == "poisson" else self.cohort_size


@lru_cache(maxsize=16)  # jobs of a sweep share their rounds
def _taken(schedule: Schedule) -> tuple[np.ndarray, int]:
    """The steps of the rounds that each client takes part in: (clients,). The size of the smallest
    cohort that is not empty, the expected one if all are.
    """
    sizes = []
    if schedule.sampling == "full":
        taken = np.full(schedule.clients, sum(schedule.steps), dtype=np.int64)
    else:
        taken = np.zeros(schedule.clients, dtype=np.int64)
        for index, count in enumerate(schedule.steps):
            cohort = schedule.cohort(index)
            taken[cohort] += count
            sizes.append(len(cohort))
    taken.flags.writeable = False
    return taken, min(filter(None, sizes), default=schedule.cohort_size)


def max_of(taken: np.ndarray) -> int:
    """The largest count, 0 if there is none."""
    return int(taken.max(initial=0))


class Prefixes:
    """Facts about the first 1, 2, ... rounds of a schedule. Rounds are drawn when they are asked
    for, also beyond the schedule's last round.
    """

    def __init__(self, schedule: Schedule, exposure: Callable[[np.ndarray], int] = max_of) -> None:
        """exposure: turns the numbers of rounds that each client took part in, (clients,), into the
        number that `worst` returns.
        """
        self._schedule, self._exposure = schedule, exposure
        self._taken = np.zeros(schedule.clients, dtype=np.int64)
        self._worst, self._smallest = [0], [schedule.clients]

    def worst(self, rounds: int) -> int:
        """`exposure` after the first `rounds` rounds; by default, in how many of them the most
        frequent client takes part.
        """
        if self._schedule.sampling == "full":
            return rounds * self._exposure(np.ones(self._schedule.clients, dtype=np.int64))
        return self._drawn(rounds)._worst[rounds]

    def smallest_cohort(self, rounds: int) -> int:
        """Size of the smallest cohort of the first `rounds` rounds that is not empty."""
        if self._schedule.sampling != "poisson":
            return self._schedule.cohort_size
        return self._drawn(rounds)._smallest[rounds]

    def _drawn(self, rounds: int) -> Prefixes:
        for index in range(len(self._worst) - 1, rounds):
            cohort = self._schedule.cohort(index)
            self._taken[cohort] += 1
            self._worst.append(self._exposure(self._taken))
            self._smallest.append(min(self._smallest[-1], len(cohort) or self._schedule.clients))
        return self


def constant_steps(rounds: int, local_steps: int) -> tuple[int, ...]:
    """The same number of local steps in each round."""
    return (local_steps,) * rounds


def coin_steps(seed: int, total_steps: int, local_steps: int) -> tuple[int, ...]:
    """ScaffNew's coins: each of `total_steps` iterations communicates with probability 1 /
    local_steps.

    Returns the local steps of each round: the gaps between communications. Steps after the last
    communication never reach the server and are left out. The number of rounds is random, with mean
    total_steps / local_steps; the guarantee is for the number that was drawn.
    """
    draw = rng.generator(seed, "coins")
    pieces = [
        first + np.flatnonzero(draw.random(min(COINS, total_steps - first)) < 1 / local_steps)
        for first in range(0, total_steps, COINS)
    ]
    heads = np.concatenate(pieces)
    return tuple(int(gap) for gap in np.diff(heads, prepend=-1))
