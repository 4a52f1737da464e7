"""Replay at record level: the run on D and on D', which differ in one record. How far does that
record move the sum of a lot?

Both sides have the same seeds, cohorts, lots and noise. After each local step the clients of D' go
on from what was released in D, as an accountant has it: the past is given. So every lot is compared
at the same models, and the distance is what the accountant calls sensitivity. What clients send,
and the server's next model, are made of released gradients alone: they have to be the same bits.

Unit: record, wherever it is held. `replace_one`: any two worlds are neighbours. `add_remove_one`: a
world, and the one in which the record's gradient counts as zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.finding import Part, exact
from dpfl_bench.audit.record_worlds import OneCanary, RecordWorld, holders_of, neighbours
from dpfl_bench.audit.replay import COUNTED, Moved, direction, with_memory
from dpfl_bench.audit.watched import Diary, Watched, played
from dpfl_bench.audit.watched_lots import Lot, MarkedFederation, WatchedDoor, rows_of_lots
from dpfl_bench.federation.schedule import PlannedRound

WORK = 2**28  # numbers that all local work may touch
MOST_ROUNDS, MOST_STEPS = 3, 8
OTHERS = "other clients' lots"
SENT = "what is sent"


def moved(audited: Audited) -> Moved:
    """Play some rounds with one record's neighbours, for some records."""
    found, rounds = Moved(), _rounds(audited)
    for record in _records(audited, rounds):
        _Replay(audited, record, found).play(rounds)
    return found


def parts(audited: Audited, found: Moved) -> list[Part]:
    ratio = found.far.get("gradient", 0.0)
    says = (
        f"one record moves a lot's sum by {ratio:.6g} of its declared sensitivity"
        f" ({found.how.get('gradient', 'no lot had it')}; {found.worlds} worlds, {found.rounds} rounds)"
    )
    p = exact(ratio, 1 + COUNTED)
    listed = [Part("replay", "holds" if p else "violated", says, ratio, p)]
    stray = {name: found.far.get(name, 0.0) for name in (OTHERS, SENT)}
    worst = max(stray, key=lambda name: stray[name])
    p = exact(stray[worst], COUNTED)
    says = (
        "clients that do not hold the record, and all that is made of released gradients, do not move"
        if p
        else f"{worst}: moved by {stray[worst]:.4g} of the sensitivity ({found.how[worst]})"
    )
    return [*listed, Part("replay: the rest", "holds" if p else "violated", says, stray[worst], p)]


def _rounds(audited: Audited) -> list[PlannedRound]:
    """Rounds from the first to the last; shorter ones, of fewer clients, where local work is
    heavy.
    """
    schedule, problem = audited.schedule, audited.job.problem
    federation = audited.job.data.federation
    inputs = federation.features[:1].numel() * math.ceil(_lot_size(audited, int(federation.sizes.max())))
    lots = max(4, WORK // (64 * (inputs + problem.dimension)))  # of all rounds of one world
    steps = max(1, min(MOST_STEPS, max(schedule.steps), lots))
    size = max(1, min(schedule.cohort_size, lots // steps))
    count = max(1, min(schedule.rounds, MOST_ROUNDS, lots // (steps * size)))
    picked = np.linspace(0, schedule.rounds - 1, count).round()
    rounds = [schedule.round(int(t)) for t in picked]
    return [replace(r, steps=min(r.steps, steps), cohort=r.cohort[:size]) for r in rounds]


def _lot_size(audited: Audited, records: int) -> float:
    return 1 / audited.claim.weight(records)


def _records(audited: Audited, rounds: list[PlannedRound]) -> list[int]:
    """The record that is in most lots; such a one of the largest and of the smallest client."""
    data, federation = audited.job.data, audited.job.data.federation
    store = np.concatenate(data.parts)
    counts = np.zeros(len(store), np.int64)
    for round in rounds:
        if len(round.cohort):
            counts += rows_of_lots(federation, audited.seed, round, round.cohort)
    of_records = np.bincount(store, counts)
    chosen = [int(of_records.argmax())]
    seen = [c for c in range(federation.clients) if counts[_rows(audited, c)].any()]
    for client in (max, min):
        if seen:
            rows = _rows(audited, client(seen, key=lambda c: federation.sizes[c]))
            chosen.append(int(store[rows][counts[rows].argmax()]))
    return list(dict.fromkeys(chosen))


def _rows(audited: Audited, client: int) -> slice:
    offsets = audited.job.data.federation.offsets
    return slice(int(offsets[client]), int(offsets[client + 1]))


@dataclass
class _Replay:
    """One record's neighbours, round by round."""

    audited: Audited
    record: int
    found: Moved

    def play(self, rounds: list[PlannedRound]) -> None:
        player, federation = self.audited.player, self.audited.job.data.federation
        assert player.gradient_door is not None
        self.rows = holders_of(self.audited.job.data.parts, self.record)
        self.holders = np.searchsorted(federation.offsets, self.rows, side="right") - 1
        state = player.start(self.audited.x)
        toward, clip = direction(self.audited, len(state.server.x)), self.audited.claim.clip or 1.0
        worlds = neighbours(federation, self.rows, toward, clip)
        own = Watched.of(player, federation=MarkedFederation(federation))
        for round in rounds:
            before, door = with_memory(state), WatchedDoor.of(player.gradient_door)
            own = replace(own, gradient_door=door)
            state = played(own, state, round)
            shifts = {"as it is": self._shifts(door.lots, door.lots, round, "as it is")}
            for world in worlds:
                there = WatchedDoor.of(player.gradient_door, door.lots)
                other = self._in(world, own, there)
                end = played(other, with_memory(before), round)
                shifts[world.name] = self._shifts(door.lots, there.lots, round, world.name)
                gap = max(_gap(own.diary, other.diary), _largest(end.server.x - state.server.x))
                self._take(SENT, gap / clip, round, world.name)
            self._compare(shifts, round)
        self.found.rounds, self.found.worlds = len(rounds), len(worlds) + 1

    def _in(self, world: RecordWorld, own: Watched, door: WatchedDoor) -> Watched:
        problem = self.audited.job.problem
        if world.gradient is not None:
            problem = OneCanary(problem, self.rows, world.gradient)
        return Watched.of(own, gradient_door=door, federation=world.federation, problem=problem)

    def _shifts(self, here: list[Lot], there: list[Lot], round: PlannedRound, name: str) -> np.ndarray:
        """By how many C the sum of each of the record's lots differs, (lots, d)."""
        claim, moved = self.audited.claim, []
        sizes = self.audited.job.data.federation.sizes
        for one, other in zip(here, there, strict=True):
            weights = np.array([claim.weight(int(sizes[i])) for i in one.clients])[:, None]
            gap = (other.released.double() - one.released.double()).cpu().numpy()
            gap = gap / (weights * np.asarray(one.clip))
            rounding = 4 * torch.finfo(one.released.dtype).eps * _norms(one.released) / weights[:, 0]
            gap = gap * np.maximum(0, 1 - rounding / np.maximum(np.linalg.norm(gap, axis=1), 1e-300))[:, None]
            holds = np.isin(one.rows, self.rows).any(1)
            moved.append(gap[holds])
            if not holds.all():
                stray = float(np.linalg.norm(gap[~holds], axis=1).max()) / claim.factor
                self._take(OTHERS, stray, round, name)
        return np.concatenate(moved) if moved else np.zeros((0, 1))  # nobody took part

    def _compare(self, shifts: dict[str, np.ndarray], round: PlannedRound) -> None:
        claim = self.audited.claim
        pairs = [(a, b) for a in shifts for b in shifts if a < b]
        if claim.adds:
            pairs = [(a, "zero") for a in shifts if a != "zero"]
        for a, b in pairs:
            if len(shifts[a]):
                far = float(np.linalg.norm(shifts[a] - shifts[b], axis=1).max()) / claim.factor
                how = f"record {self.record}, round {round.index}: {a} | {b}"
                self.found.take({"gradient": far}, how, claim.noise)

    def _take(self, name: str, far: float, round: PlannedRound, world: str) -> None:
        self.found.note(name, far, f"record {self.record}, round {round.index}: {world}")


def _norms(rows: Tensor) -> np.ndarray:
    norms: np.ndarray = torch.linalg.vector_norm(rows.double(), dim=1).cpu().numpy()
    return norms


def _gap(one: Diary, other: Diary) -> float:
    """The largest difference of two rounds' offers, 0 where they are the same bits."""
    offers = zip(one.offered, other.offered, strict=True)
    return max((_largest(a - b) for (_, a), (_, b) in offers), default=0.0)


def _largest(difference: Tensor) -> float:
    return float(difference.abs().nan_to_num(math.inf).max()) if difference.numel() else 0.0
