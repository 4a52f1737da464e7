"""Rounds of canaries: what the doors release of them, with the noise of many seeds.

A canary is a client that offers an update of its own to the door in place of its local work, along
one axis, so that no two canaries of a cohort disturb each other. Each seed tosses a coin for each
canary. `replace_one`: it pulls to the one side or to the other. `add_remove_one`: it is there, or
it offers nothing. The other clients offer updates that the auditor knows. The engine does all the
rest: cohorts, chunks, doors, noise, the server's step, memories.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from dpfl_bench import rng
from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.watched import Diary, Watched, played
from dpfl_bench.audit.worlds import FAR
from dpfl_bench.federation.schedule import PlannedRound, Schedule

MOST_ROUNDS = 24  # of one seed
MOST_PLAYS = 6000  # rounds of all seeds
MOST_DRAWN = 3 * 10**8  # random numbers
LEAST_SUMS = 20_000  # numbers of released sums: a noise 5 % too small is ten standard errors away
LEAST_SUMS_ALONE = 50_000  # where there are no messages to look at beside them
MOST_KEPT = 2**22  # numbers of messages that are kept


@dataclass
class Plays:
    """What came out, standardised by the declared noise.

    sums: the noise of the released sums, (seeds, rounds, d); empty where there are none. messages:
    that of single messages (record level: of lots), a list over (seed, round) of (clients, (m, d));
    empty under central trust. scores: how far each canary's axis was seen to move where it took
    part, round by round; coins: whether it was in. totals, counts: sum and number of what an
    observer who does not know secret draws sees of each canary, (seeds, canaries); inside: its
    coin.
    """

    sums: np.ndarray
    totals: np.ndarray
    counts: np.ndarray
    inside: np.ndarray
    messages: list[tuple[int, int, np.ndarray, np.ndarray]] = field(default_factory=list)
    scores: list[np.ndarray] = field(default_factory=list)
    coins: list[np.ndarray] = field(default_factory=list)
    room: int = MOST_KEPT  # numbers of messages that may still be kept

    @staticmethod
    def empty(sums: tuple[int, int, int], canaries: int) -> Plays:
        """sums: the shape of `sums`."""
        shape = (sums[0], canaries)
        totals, counts = np.zeros(shape), np.zeros(shape)
        return Plays(np.zeros(sums, np.float32), totals, counts, np.zeros(shape, bool))

    @property
    def scored(self) -> tuple[np.ndarray, np.ndarray]:
        """(scores, coins), of all rounds, one after the other."""
        return np.concatenate(self.scores), np.concatenate(self.coins)

    def keep(self, place: tuple[int, int], clients: np.ndarray, rows: np.ndarray) -> None:
        """The noise of messages, as far as there is room."""
        if rows.size <= self.room or not self.messages:
            self.messages.append((*place, clients, rows.astype(np.float32)))
            self.room -= rows.size


def plays(audited: Audited) -> Plays:
    """Play the audited rounds with as many seeds as the canaries ask for."""
    bench = _Bench(audited)
    found = Plays.empty((bench.seeds, len(bench.rounds), bench.dimension), bench.canaries)
    for number in range(bench.seeds):
        bench.play_seed(number, found)
    return found


def spread(schedule: Schedule) -> list[PlannedRound]:
    """Some of the schedule's rounds, from the first to the last."""
    picked = np.linspace(0, schedule.rounds - 1, min(MOST_ROUNDS, schedule.rounds)).round()
    return [schedule.round(int(t)) for t in picked]


class _Bench:
    """Client level: one seed after the other."""

    def __init__(self, audited: Audited):
        self.audited, self.claim = audited, audited.claim
        self.player = Watched.of(audited.player)
        self.start = self.player.start(audited.x)
        self.dimension = len(self.start.server.x)
        schedule = audited.schedule
        self.rounds = spread(schedule)
        alone = self.claim.trust == "local" and not self.claim.of_local_sums
        self.canaries = schedule.clients if alone else min(schedule.clients, self.dimension)
        self.seeds = self._seeds(schedule.cohort_size)
        self.known = self._known(schedule.clients)

    def _seeds(self, cohort: int) -> int:
        """Enough for the canaries and for the sums, as far as time allows."""
        rounds = len(self.rounds)
        sums = LEAST_SUMS_ALONE if self.claim.trust == "central" else LEAST_SUMS
        wanted = max(
            math.ceil(self.audited.canaries / self.canaries),
            math.ceil(sums / (rounds * self.dimension)),
            2,
        )
        drawn = rounds * self.dimension * (1 if self.claim.trust == "central" else cohort)
        return max(2, min(wanted, MOST_PLAYS // rounds, MOST_DRAWN // drawn))

    def _known(self, clients: int) -> Tensor:
        """What a client that is no canary offers, (clients, 1): a constant, short or long."""
        draw = rng.generator(self.audited.seed, "audit-offers").random((clients, 1))
        scale = (self.start.clip or 1.0) * 2.0 ** (8 * draw - 6) / math.sqrt(self.dimension)
        return torch.from_numpy(scale).to(self.start.server.x)

    def play_seed(self, number: int, found: Plays) -> None:
        """All rounds with the noise of one more seed. Its number 0 is the run's own."""
        seed = self.audited.seed + number
        coins = found.inside[number] = rng.generator(seed, "audit-coins").random(self.canaries) < 0.5
        player = replace(self.player.with_noise_of(seed), offer=lambda ids, _: self._offer(ids, coins))
        state = player.start(self.audited.x)
        for index, round in enumerate(self.rounds):
            after = played(player, state, round)
            state = replace(after, server=state.server)  # noise alone would carry the model away
            self._keep(player.diary, round, coins, (number, index), found)

    def _offer(self, ids: np.ndarray, coins: np.ndarray) -> Tensor:
        rows = self.known[torch.from_numpy(ids)].expand(-1, self.dimension).clone()
        size = FAR * max(1.0, float(self.known.abs().max()))
        for row, client in zip(rows, ids, strict=True):
            if client < self.canaries:
                row.zero_()
                side = 1.0 if coins[client] else (0.0 if self.claim.adds else -1.0)
                row[int(client) % self.dimension] = side * size
        return rows

    def _keep(
        self,
        diary: Diary,
        round: PlannedRound,
        coins: np.ndarray,
        place: tuple[int, int],
        found: Plays,
    ) -> None:
        assert diary.sent is not None
        clients, bounded, count = diary.clients, diary.bounded, len(round.cohort)
        if not count and self.claim.trust != "central":
            return
        alone = self.claim.std_ratio * diary.clip  # of a message under local trust, else of the sum
        std = alone * (math.sqrt(count) if self.claim.trust == "local" else 1.0)
        total = diary.sent.mean.double().cpu().numpy() * round.divisor
        noise = total - (bounded.sum(0) if count else 0.0)
        found.sums[place] = noise / std
        if not count:
            return
        canary = np.flatnonzero(clients < self.canaries)
        ids, axes = clients[canary], clients[canary] % self.dimension
        own = np.zeros(len(canary)) if not len(canary) else bounded[canary, axes]
        if self.claim.adds:
            own = own * coins[ids]  # one that is absent offers nothing
        share = noise[axes]
        if self.claim.trust != "central":
            each = alone * (count**-0.5 if self.claim.trust == "secagg" else 1.0)
            residuals = (diary.messages - bounded) / each
            if self.claim.trust == "local":
                share = residuals[canary, axes] * each
            found.keep(place, clients, residuals)
        scores = (own + share) / alone
        found.scores.append(scores)
        found.coins.append(coins[ids])
        self._add_up(found, place[0], ids, scores, own / std, noise[: self.canaries] / std)

    def _add_up(
        self, found: Plays, seed: int, ids: np.ndarray, scores: np.ndarray, own: np.ndarray, noise: np.ndarray
    ) -> None:
        """What the observer adds up. Who does not know the cohort counts every round."""
        if self.claim.secret:
            found.totals[seed] += noise
            found.totals[seed, ids] += own
            found.counts[seed] += 1
        else:
            found.totals[seed, ids] += own + noise[ids] if self.claim.of_local_sums else scores
            found.counts[seed, ids] += 1
