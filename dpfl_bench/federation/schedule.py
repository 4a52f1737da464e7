"""One schedule, drawn first: which clients take part in which round, with how many local steps, at which learning rate.

It never depends on data. The same object feeds the calibrator, the training loop and the accountant, so they cannot disagree.
Numpy only: `dpfl-bench plan` draws it without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpfl_bench import rng
from dpfl_bench.privacy.releases import Neighbours, Releases, Sampling, Trust


@dataclass(frozen=True)
class Round:
    """What round `index` (from 0) is to do; the same for every client of its cohort."""

    index: int
    steps: int
    lr: float
    p: float  # probability of a communication at one local step (ScaffNew's p): 1 / expected local steps
    cohort: np.ndarray  # indices of the clients that take part, ascending
    divisor: float  # what the cohort's sum is divided by: its size, or the expected one under Poisson sampling


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
        if self.sampling == "full":
            return np.arange(self.clients)
        draw = rng.generator(self.seed, "cohort", index)
        if self.sampling == "fixed":
            return np.sort(draw.choice(self.clients, self.cohort_size, replace=False))
        return np.flatnonzero(draw.random(self.clients) < self.cohort_size / self.clients)

    def round(self, index: int) -> Round:
        return Round(
            index=index,
            steps=self.steps[index],
            lr=self.lr * self.lr_decay**index,
            p=self.p,
            cohort=self.cohort(index),
            divisor=self.cohort_size,
        )

    def participation(self, rounds: int | None = None) -> np.ndarray:
        """How often each client takes part in the first `rounds` rounds (all of them by default): shape (clients,)."""
        count = self.rounds if rounds is None else rounds
        if self.sampling == "full":
            return np.full(self.clients, count)
        drawn = [self.cohort(index) for index in range(count)]
        return np.bincount(np.concatenate([np.empty(0, dtype=np.int64), *drawn]), minlength=self.clients)

    @cached_property
    def smallest_cohort(self) -> int:
        """The smallest cohort that is not empty (an empty one releases nothing)."""
        if self.sampling != "poisson":
            return self.cohort_size
        return min((size for t in range(self.rounds) if (size := len(self.cohort(t)))), default=self.cohort_size)


class Prefixes:
    """The first 1, 2, ... rounds of a schedule, drawn as far as is asked, beyond the schedule's own end too."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._taken = np.zeros(schedule.clients, dtype=np.int64)
        self._worst, self._smallest = [0], [schedule.clients]

    def worst(self, rounds: int) -> int:
        """How often the most frequent client takes part in the first `rounds` rounds."""
        return rounds if self._schedule.sampling == "full" else self._drawn(rounds)._worst[rounds]

    def smallest_cohort(self, rounds: int) -> int:
        """The smallest cohort of the first `rounds` rounds that is not empty."""
        if self._schedule.sampling != "poisson":
            return self._schedule.cohort_size
        return self._drawn(rounds)._smallest[rounds]

    def _drawn(self, rounds: int) -> Prefixes:
        for index in range(len(self._worst) - 1, rounds):
            cohort = self._schedule.cohort(index)
            self._taken[cohort] += 1
            self._worst.append(int(self._taken.max()))
            self._smallest.append(min(self._smallest[-1], len(cohort) or self._schedule.clients))
        return self


def constant_steps(rounds: int, local_steps: int) -> tuple[int, ...]:
    return (local_steps,) * rounds


def coin_steps(seed: int, total_steps: int, local_steps: int) -> tuple[int, ...]:
    """ScaffNew's coins: each of `total_steps` iterations communicates with probability 1 / local_steps.

    Returns the gaps between communications. Steps after the last one never reach the server and are left out.
    The guarantee needs this realised number of releases; only its expectation is total_steps / local_steps.
    """
    heads = np.flatnonzero(rng.generator(seed, "coins").random(total_steps) < 1 / local_steps)
    return tuple(int(gap) for gap in np.diff(heads, prepend=-1))


def releases(schedules: Sequence[Schedule], trust: Trust, neighbours: Neighbours, sums_only: bool, memoryless: bool) -> Releases:
    """What the worst of these seeds releases."""
    first = schedules[0]
    return Releases(
        rounds=max(s.rounds for s in schedules),
        clients=first.clients,
        cohort=first.cohort_size,
        sampling=first.sampling,
        trust=trust,
        neighbours=neighbours,
        worst=max(int(s.participation().max()) for s in schedules),
        smallest_cohort=min(s.smallest_cohort for s in schedules),
        sums_only=sums_only,
        memoryless=memoryless,
    )
