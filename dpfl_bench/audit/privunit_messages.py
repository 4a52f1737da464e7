"""PrivUnit's messages for two updates as far apart as can be: one of norm C along an axis (u), and
one of hardly any length the other way (-u). Where a message points, and which norm it tells.

The audit knows of the mechanism what the record tells: the three budgets and the pure eps of one
message. From these follow the probability of the cap, its share of the sphere, and so its height.
Unit: client, one message; any two updates are neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import betainc, betaincinv
from torch import Tensor

from dpfl_bench import rng
from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.claim import Claim
from dpfl_bench.audit.plays import MOST_PLAYS, MOST_ROUNDS, Plays
from dpfl_bench.audit.watched import Watched, played
from dpfl_bench.audit.worlds import FAR

DRAWS = 20_000  # messages, of both sides together
MOST_DRAWN = 2 * 10**8  # random numbers
SHORT = 1e-9  # of C: the length of the other update
SAME = 1e-3  # of the distance of two norms: a message tells one of them


@dataclass(frozen=True)
class Law:
    """What the record claims of one message."""

    eps: float
    eps0: float
    eps2: float
    dimension: int

    @staticmethod
    def of(claim: Claim, dimension: int) -> Law:
        eps0, _, eps2 = claim.main["epsilons"]
        return Law(float(claim.main["pure_eps"]), float(eps0), float(eps2), dimension)

    @property
    def rate(self) -> float:
        """How often a message's direction is in the cap."""
        return 1 / (1 + math.exp(-self.eps0))

    @property
    def cap(self) -> float:
        """The cap's share of the sphere: what is left of eps is log((1 - cap) / cap)."""
        return 1 / (1 + math.exp(self.eps - self.eps0 - self.eps2))

    @property
    def height(self) -> float:
        """The least <v, u> of the cap."""
        return float(1 - 2 * betaincinv(self._alpha, self._alpha, self.cap))

    def above(self, heights: np.ndarray) -> np.ndarray:
        """The share of the sphere above heights <v, u>: (n,) -> (n,)."""
        share: np.ndarray = betainc(self._alpha, self._alpha, np.clip((1 - heights) / 2, 0, 1))
        return share

    @property
    def norms(self) -> int:
        """k: how many norms there are beside 0."""
        return math.ceil(math.exp(self.eps2 / 3))

    @property
    def stays(self) -> float:
        """How often a norm is told as it is."""
        return 1 / (1 + self.norms * math.exp(-self.eps2))

    @property
    def _alpha(self) -> float:
        return (self.dimension - 1) / 2


@dataclass
class Messages:
    """n messages. heights: <direction, u>, (n,). told: the norm that a message tells, 0 to k, or
    -1 where it is none of them, (n,). inside: whether the update was u, (n,). index: the norm that
    the update has, (n,). plays: what is orthogonal to u, made normal numbers by lengths that the
    audit draws.
    """

    heights: np.ndarray
    told: np.ndarray
    inside: np.ndarray
    index: np.ndarray
    plays: Plays


def messages(audited: Audited) -> Messages:
    """Play the audited rounds, with many seeds."""
    bench = _Bench(audited)
    for number in range(bench.seeds):
        bench.play_seed(number)
    return bench.found


class _Bench:
    def __init__(self, audited: Audited):
        self.audited, self.player = audited, Watched.of(audited.player)
        self.start = self.player.start(audited.x)
        self.dimension = len(self.start.server.x)
        self.law = Law.of(audited.claim, self.dimension)
        schedule = audited.schedule
        picked = np.linspace(0, schedule.rounds - 1, min(MOST_ROUNDS, schedule.rounds)).round()
        self.rounds = [schedule.round(int(t)) for t in picked]
        of_one_seed = max(1, sum(len(r.cohort) for r in self.rounds))
        wanted = max(audited.canaries, min(DRAWS, MOST_DRAWN // self.dimension))
        self.seeds = max(2, min(math.ceil(wanted / of_one_seed), MOST_PLAYS // len(self.rounds)))
        none, plays = np.zeros(0), Plays.empty((self.seeds, 0, self.dimension), 0)
        self.found = Messages(none, none, none.astype(bool), none, plays)

    def play_seed(self, number: int) -> None:
        seed = self.audited.seed + number
        coins: np.ndarray = rng.generator(seed, "audit-coins").random(self.audited.schedule.clients) < 0.5
        player = replace(self.player.with_noise_of(seed), offer=lambda ids, _: self._offer(coins[ids]))
        state = player.start(self.audited.x)
        for index, round in enumerate(self.rounds):
            after = played(player, state, round)
            state = replace(after, server=state.server)
            diary = player.diary
            if diary.rows:
                self._keep(diary.bounded, diary.messages, diary.clients, coins, (number, index))

    def _offer(self, coins: np.ndarray) -> Tensor:
        rows = self.start.server.x.new_zeros(len(coins), self.dimension)
        sides = np.where(coins, FAR, -SHORT) * (self.audited.claim.clip or 1.0)
        rows[:, 0] = torch.from_numpy(sides).to(rows)
        return rows

    def _keep(
        self,
        bounded: np.ndarray,
        sent: np.ndarray,
        clients: np.ndarray,
        coins: np.ndarray,
        place: tuple[int, int],
    ) -> None:
        found, clip = self.found, self.audited.claim.clip or 1.0
        sizes = np.linalg.norm(sent, axis=1)
        told, sign = self._told(sizes / clip)
        found.told = np.append(found.told, told)
        found.heights = np.append(found.heights, sign * sent[:, 0] / sizes)
        found.inside = np.append(found.inside, coins[clients])
        found.index = np.append(
            found.index, (np.linalg.norm(bounded, axis=1) / clip * self.law.norms).round()
        )
        rest = sent[:, 1:]
        draw = rng.generator(self.audited.seed, "audit-lengths", *place)
        lengths = np.sqrt(draw.chisquare(self.dimension - 1, len(rest)))
        normal = rest / np.linalg.norm(rest, axis=1, keepdims=True) * lengths[:, None]
        found.plays.keep(place, clients, normal)

    def _told(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the norm that is told, 0 to k, or -1; its sign), of messages' lengths over C."""
        mechanism = self.player.send_door.privunit
        assert mechanism is not None
        values = mechanism.scalar.value(np.arange(mechanism.scalar.k + 1)) / mechanism.m
        gaps = np.abs(np.abs(values) - sizes[:, None])
        nearest = gaps.argmin(1)
        right = gaps.min(1) < SAME * mechanism.scalar.a / mechanism.m
        return np.where(right, nearest, -1), np.sign(values[nearest])
