"""Replay: the run on D and on D', everything else frozen. How far does one unit move a release?

Both sides have the same seeds, cohorts, lots and noise, and the same past releases: the server's
state and C are those of D, and what clients remember is made of D's releases. So the noise cancels,
and the distance of the two releases is what the accountant calls sensitivity. One distance beyond
the declared one is a proof, without any chance in it. Only this sees a wrong unit, divisor or
weight.

Unit: client. `replace_one`: any two worlds are neighbours. `add_remove_one`: a world, and the one
in which the client contributes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from dpfl_bench import rng
from dpfl_bench.algorithms.base import Sent
from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.finding import Part, exact
from dpfl_bench.audit.watched import Watched, played
from dpfl_bench.audit.worlds import World, neighbours, offering
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.state import TrainingState

WORK = 2**26  # numbers that all local work may touch
MOST_ROUNDS = 8
ROUNDING = 1e-5  # of the sensitivity
COUNTED = 1e-3  # of the sensitivity, where other records may change how sums are rounded


@dataclass
class Moved:
    """The largest distances found, each divided by the declared sensitivity of its release."""

    far: dict[str, float] = field(default_factory=dict)  # release -> distance
    how: dict[str, str] = field(default_factory=dict)  # release -> the pair of worlds
    joint: dict[str, float] = field(default_factory=dict)  # distances of the pair that shows most
    memory: float = 0.0  # by how much the others' updates follow from noise that was not released
    rounds: int = 0
    worlds: int = 0

    def take(self, pair: Mapping[str, float], how: str, noise: Mapping[str, float]) -> None:
        """The distances of one pair of worlds. noise: the declared noise multipliers."""
        for release, distance in pair.items():
            self.note(release, distance, how)
        if not shift(pair, noise) <= shift(self.joint, noise):
            self.joint = dict(pair)

    def note(self, what: str, distance: float, how: str) -> None:
        """What is not a number is as far as can be."""
        far = math.inf if math.isnan(distance) else distance
        if far > self.far.get(what, -1.0):
            self.far[what], self.how[what] = far, how


def shift(distances: Mapping[str, float], noise: Mapping[str, float]) -> float:
    """In standard deviations, of a round's sums together. distances: over the sensitivities."""
    if any(not d < math.inf or (d > 0 and noise[name] == 0) for name, d in distances.items()):
        return math.inf
    return math.hypot(*(distance / noise[name] for name, distance in distances.items() if distance))


def moved(audited: Audited) -> Moved:
    """Play the first rounds of the run with its neighbours."""
    rounds, found = _rounds(audited), Moved()
    for target in _targets(audited, rounds):
        _Replay(audited, target, found).play(rounds)
    return found


def parts(audited: Audited, found: Moved) -> list[Part]:
    """What was found, against what was declared."""
    worst = max(found.far, key=lambda name: found.far[name])
    ratio = found.far[worst]
    says = (
        f"one client moves the {worst} by {ratio:.6g} of its declared sensitivity ({found.how[worst]};"
        f" {found.worlds} worlds, {found.rounds} rounds)"
    )
    p = exact(ratio, 1 + COUNTED)
    listed = [Part("replay", "holds" if p else "violated", says, ratio, p)]
    return listed + _of_memory(audited, found)


def _of_memory(audited: Audited, found: Moved) -> list[Part]:
    if not audited.job.algorithm.remembers:
        return []
    name = "replay: memory"
    if not audited.claim.by_sums:
        return [Part(name, "holds", "single messages are accounted: clients may remember them", None, 1.0)]
    p = exact(found.memory, ROUNDING)
    says = (
        "what clients remember follows from their data and from what was released"
        if p
        else f"the clients' updates follow from noise that was not released: by {found.memory:.3g} C, at"
        " equal releases; eps counts the sums alone"
    )
    return [Part(name, "holds" if p else "violated", says, found.memory, p)]


def _rounds(audited: Audited) -> list[PlannedRound]:
    """The first rounds, fewer where local work is heavy."""
    schedule, problem = audited.schedule, audited.job.problem
    federation = audited.job.data.federation
    inputs = federation.features[:1].numel() * math.ceil(float(federation.sizes.mean()))
    cost = schedule.cohort_size * max(schedule.steps[:MOST_ROUNDS]) * (inputs + problem.dimension)
    count = min(schedule.rounds, max(2, min(MOST_ROUNDS, WORK // (4 * cost))))
    return [schedule.round(t) for t in range(count)]


def _targets(audited: Audited, rounds: list[PlannedRound]) -> list[int]:
    """The client that takes part most often, and the largest and the smallest one that do."""
    taken = Counter(int(i) for round in rounds for i in round.cohort)
    sizes = audited.job.data.federation.sizes
    if not taken:
        return []
    chosen = [taken.most_common(1)[0][0], max(taken, key=lambda i: sizes[i])]
    if len(rounds) > 2:
        chosen.append(min(taken, key=lambda i: sizes[i]))
    return list(dict.fromkeys(chosen))


@dataclass
class _Replay:
    """One client's neighbours, round by round."""

    audited: Audited
    target: int
    found: Moved

    def play(self, rounds: list[PlannedRound]) -> None:
        player = Watched.of(self.audited.player)
        start = player.start(self.audited.x)
        self.direction = direction(self.audited, len(start.server.x))
        state, worlds = start, self._worlds(start.clip)
        others = {w.name: with_memory(start) for w in worlds if w.update is None}
        shares, own = player.with_noise_of(self.audited.seed + 1), with_memory(start)
        for round in rounds:
            after = played(player, state, round)
            diary, clip = player.diary, player.diary.clip
            assert diary.sent is not None
            if len(round.cohort) > 1 and state.memory is not None:
                own = _past(played(shares, own, round, diary.sent), after)
                self._compare_memory(diary.bounded, shares.diary.bounded, clip)
            seen = {"as it is": _Release.of(self, diary.sent, round, state, after)}
            rows = {int(i): row for ids, chunk in diary.offered for i, row in zip(ids, chunk, strict=True)}
            absent = None
            for world in worlds:
                other = self._in(world, player, rows, clip)
                before = others.get(world.name, replace(state, memory=None))
                end = played(other, before, round, diary.sent)
                assert other.diary.sent is not None
                seen[world.name] = _Release.of(self, other.diary.sent, round, state, end)
                if world.name == "zero":
                    absent = seen[world.name].without(_row(other, self.target))
                if world.update is None:
                    others[world.name] = _past(end, after)
            self._compare(seen, absent, round, clip)
            state = after
        self.found.rounds, self.found.worlds = len(rounds), len(worlds) + 1

    def _worlds(self, clip: float) -> list[World]:
        federation = self.audited.job.data.federation
        return neighbours(federation, self.target, self.direction, clip or 1.0)

    def _in(self, world: World, player: Watched, rows: Mapping[int, Tensor], clip: float) -> Watched:
        offer = None if world.update is None else offering(rows, self.target, world.update)
        other = Watched.of(player, offer, federation=world.federation)
        return replace(other, given=clip) if self.audited.claim.median else other

    def _compare(
        self, seen: Mapping[str, _Release], absent: _Release | None, round: PlannedRound, clip: float
    ) -> None:
        """Distances of all neighbours. Of a round without the client all have to be the same."""
        claim = self.audited.claim
        pairs = [(a, b) for a in seen for b in seen if a < b]
        if claim.adds and absent is not None and self.target in round.cohort:
            pairs = [(a, "absent") for a in seen]
            seen = {**seen, "absent": absent}
        for a, b in pairs:
            one, other = seen[a], seen[b]
            rounding = 4 * one.eps * max(one.size, other.size)
            distance = float(np.linalg.norm(one.total - other.total)) - rounding
            pair = {claim.release: max(0.0, distance) / (claim.factor * clip)}
            for name in claim.further:
                gap = abs(one.further[name] - other.further[name]) - 64 * one.eps * one.scale_of(name)
                pair[name] = max(0.0, gap) / claim.sensitivity_of(name, clip)
            how = f"client {self.target}, round {round.index}: {a} | {b}"
            self.found.take(pair, how, claim.noise)

    def _compare_memory(self, one: np.ndarray, other: np.ndarray, clip: float) -> None:
        self.found.memory = max(self.found.memory, float(np.abs(one - other).max()) / clip)


@dataclass(frozen=True)
class _Release:
    """What one round gives away, in sums: means times the divisor."""

    total: np.ndarray  # (d,)
    further: Mapping[str, float]
    eps: float  # of the number format

    @property
    def size(self) -> float:
        return float(np.linalg.norm(self.total))

    def scale_of(self, name: str) -> float:
        return abs(self.further[name])

    @staticmethod
    def of(
        replay: _Replay, sent: Sent, round: PlannedRound, before: TrainingState, after: TrainingState
    ) -> _Release:
        further = {}
        if "norms" in replay.audited.claim.further:
            further["norms"] = float(sent.mean_square_norm) * round.divisor
        if "bits" in replay.audited.claim.further:
            quantile = replay.audited.player.send_door.quantile
            assert quantile is not None
            share = quantile.target - math.log(after.clip / before.clip) / quantile.lr
            further["bits"] = (share - 0.5) * round.divisor
        total = sent.mean.double().cpu().numpy() * round.divisor
        return _Release(total, further, torch.finfo(sent.mean.dtype).eps)

    def without(self, row: np.ndarray | None) -> _Release:
        """The same, the client with this bounded zero update being absent. Its bit was +1/2."""
        if row is None:
            return self
        gone = {"norms": float(row @ row), "bits": 0.5}
        further = {name: value - gone[name] for name, value in self.further.items()}
        return _Release(self.total - row, further, self.eps)


def _row(player: Watched, client: int) -> np.ndarray | None:
    places = np.flatnonzero(player.diary.clients == client)
    row: np.ndarray | None = player.diary.bounded[places[0]] if len(places) else None
    return row


def with_memory(state: TrainingState) -> TrainingState:
    return replace(state, memory=None if state.memory is None else state.memory.clone())


def _past(own: TrainingState, seen: TrainingState) -> TrainingState:
    """What everybody sees is of the one, what clients remember of the other."""
    return replace(seen, memory=own.memory)


def direction(audited: Audited, dimension: int) -> Tensor:
    """A unit vector, (d,)."""
    drawn = rng.generator(audited.seed, "audit").standard_normal(dimension)
    like = audited.x
    return torch.from_numpy(drawn / np.linalg.norm(drawn)).to(like)
