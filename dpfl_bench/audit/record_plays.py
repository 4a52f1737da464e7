"""Lots of canaries: what the gradient door releases of them, with the noise and the lots of many
seeds.

A canary is a record whose gradient is far beyond C, along one axis. No two canaries of a client
share an axis. Each seed tosses a coin for each canary, as in `plays.py`. The other records have
gradients that the auditor knows, on the axes that are left. So no model has to be trained, and the
engine does all the rest: cohorts, lots, chunks, the door, its noise.

Unit: record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from dpfl_bench import rng
from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.plays import MOST_DRAWN, MOST_KEPT, MOST_PLAYS, Plays, spread
from dpfl_bench.audit.watched import Watched, played
from dpfl_bench.audit.watched_lots import Lot, MarkedBatch, MarkedFederation, Through, WatchedDoor
from dpfl_bench.audit.worlds import FAR
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.problems.problem import Batch, Factors, Problem

LEAST_NUMBERS = 50_000  # of noise: one that is 5 % too small is ten standard errors away
LEAST_LOTS = 4000
MOST_LOTS = 20_000  # whose records are compared
MOST_STEPS = 64  # of a round


@dataclass
class RecordPlays(Plays):
    """drawn: of each seed, in order, (round, step, client, records of the lot). farthest: the
    longest that a canary is in the exact sum of a lot, over C.
    """

    farthest: float = 0.0
    drawn: list[list[tuple[int, int, int, np.ndarray]]] = field(default_factory=list)


class Planted(Through):
    """Every record's gradient is planted: `sizes` times its axes' direction, by places in the
    store. l2 is left out.
    """

    def __init__(self, problem: Problem, axes: Tensor, sizes: Tensor, canary_axes: int):
        """axes, sizes: (records,). axes: -1 for a record that is no canary; its gradient is the
        same on all axes from `canary_axes` on.
        """
        super().__init__(problem)
        self.axes, self.sizes, self.canary_axes = axes, sizes, canary_axes

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        return self.clipped_gradient(y, batch, lambda norms, _: torch.ones_like(norms))[0]

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        rows = cast(MarkedBatch, batch).rows
        sizes, axes = self.sizes[rows].to(y), self.axes[rows]
        norms = sizes.abs().where(batch.weights > 0, 0)
        moved = factors(norms, batch.weights).to(y) * batch.weights * sizes
        gradient = torch.zeros_like(y)
        gradient.scatter_add_(1, axes.clamp(min=0), moved.where(axes >= 0, 0))
        rest = y.shape[1] - self.canary_axes
        if rest:
            gradient[:, self.canary_axes :] += moved.where(axes < 0, 0).sum(1, keepdim=True) / math.sqrt(rest)
        return gradient, norms


def plays(audited: Audited) -> RecordPlays:
    """Play the audited rounds with as many seeds as canaries, noise and lots ask for."""
    bench = _Bench(audited)
    shape = (bench.seeds, 0, bench.dimension)
    empty = Plays.empty(shape, bench.canaries * audited.schedule.clients)
    found = RecordPlays(empty.sums, empty.totals, empty.counts, empty.inside)
    for number in range(bench.seeds):
        bench.play_seed(number, found)
    return found


class _Bench:
    """Record level: one seed after the other."""

    def __init__(self, audited: Audited):
        self.audited, self.claim = audited, audited.claim
        self.federation = MarkedFederation(audited.player.federation, hollow=True)
        self.dimension = audited.job.problem.dimension
        self.rounds = [replace(r, steps=min(r.steps, MOST_STEPS)) for r in spread(audited.schedule)]
        self.canary_axes = max(1, self.dimension // 2)
        self.canaries = min(int(self.federation.sizes.max()), self.canary_axes)  # of one client
        self.lots = sum(len(r.cohort) * r.steps for r in self.rounds)
        self.seeds = self._seeds()
        # numbers of each lot's noise that are kept: of every seed
        self.width = max(16, MOST_KEPT // max(1, self.seeds * self.lots))

    def _seeds(self) -> int:
        lots = max(1, self.lots)
        wanted = max(
            math.ceil(self.audited.canaries / (self.canaries * self.audited.schedule.clients)),
            math.ceil(LEAST_NUMBERS / (lots * self.dimension)),
            1 if self.claim.main["lots"]["scheme"] == "full" else math.ceil(LEAST_LOTS / lots),
            2,
        )
        return max(2, min(wanted, MOST_PLAYS // len(self.rounds), MOST_DRAWN // (lots * self.dimension)))

    def play_seed(self, number: int, found: RecordPlays) -> None:
        """All rounds with the noise and the lots of one more seed. Number 0 is the run's own."""
        seed = self.audited.seed + number
        player = self.audited.player
        assert player.gradient_door is not None
        coins = np.asarray(rng.generator(seed, "audit-coins").random(found.inside.shape[1]) < 0.5)
        found.inside[number] = coins
        watched = Watched.of(
            player, federation=self.federation, problem=self._planted(seed, coins), seed=seed
        )
        state, drawn, full = watched.start(self.audited.x), [], sum(map(len, found.drawn)) >= MOST_LOTS
        for round in self.rounds:
            door = WatchedDoor.of(replace(player.gradient_door, seed=seed))
            after = played(replace(watched, gradient_door=door), state, round)
            state = replace(after, server=state.server)
            for lot in door.lots:
                self._keep(lot, round, number, coins, found)
                drawn += [] if full else self._drawn(lot, round)
        found.drawn.append(drawn)

    def _planted(self, seed: int, coins: np.ndarray) -> Planted:
        federation, clip = self.federation, self.claim.clip or 1.0
        count = int(federation.offsets[-1])
        local = np.arange(count) - np.repeat(federation.offsets[:-1], federation.sizes)
        owner = np.repeat(np.arange(federation.clients), federation.sizes)
        canary = local < self.canaries
        coin = coins[owner * self.canaries + np.where(canary, local, 0)]
        side = np.where(coin, 1.0, 0.0 if self.claim.adds else -1.0)
        known = clip * 2.0 ** (8 * rng.generator(seed, "audit-offers").random(count) - 6)
        if self.canary_axes == self.dimension:
            known[:] = 0.0  # no axis is left for it
        sizes = np.where(canary, side * FAR * clip, known)
        axes = np.where(canary, local, -1)
        return Planted(
            self.audited.job.problem, torch.from_numpy(axes), torch.from_numpy(sizes), self.canary_axes
        )

    def _keep(
        self, lot: Lot, round: PlannedRound, number: int, coins: np.ndarray, found: RecordPlays
    ) -> None:
        claim, federation = self.claim, self.federation
        weights = np.array([claim.weight(int(federation.sizes[i])) for i in lot.clients])[:, None]
        clip = np.asarray(lot.clip, np.float64) * np.ones((len(lot.clients), 1))
        std = claim.std_ratio * clip * weights
        released, sums = lot.released.double().cpu().numpy(), lot.exact.double().cpu().numpy()
        noise = ((released - sums) / std)[:, : self.width]
        found.keep((number, round.index * MOST_STEPS + lot.step), lot.clients, noise)
        seen = (released / std)[:, : self.canaries]  # others are not on these axes
        starts = federation.offsets[lot.clients][:, None]
        local = np.where(lot.rows >= 0, lot.rows - starts, self.canaries)
        inside = np.zeros((len(lot.clients), self.canaries + 1), bool)
        np.put_along_axis(inside, np.minimum(local, self.canaries), True, 1)
        inside = inside[:, :-1]
        ids = lot.clients[:, None] * self.canaries + np.arange(self.canaries)
        longest = np.abs(sums / (clip * weights))[:, : self.canaries].max(initial=0.0)
        found.farthest = max(found.farthest, float(longest)) if longest < math.inf else math.inf
        found.scores.append(seen[inside])
        found.coins.append(coins[ids[inside]])
        here = np.arange(self.canaries) < federation.sizes[lot.clients][:, None]
        there = here if claim.secret else inside
        found.totals[number, ids[there]] += seen[there]
        found.counts[number, ids[there]] += 1

    def _drawn(self, lot: Lot, round: PlannedRound) -> list[tuple[int, int, int, np.ndarray]]:
        starts = self.federation.offsets[lot.clients]
        return [
            (round.index, lot.step, int(client), row[row >= 0] - start)
            for client, row, start in zip(lot.clients, lot.rows, starts, strict=True)
        ]
