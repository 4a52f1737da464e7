"""Residuals: the release less the exact sum, divided by the declared standard deviation, is
standard normal and independent: in its scale, in its shape, across rounds, clients, coordinates and
seeds.

Unit: client. A noise that is too small breaks eps. One that is too large, or shared, breaks what
the accountant assumes: whoever knows one share of it knows the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpfl_bench.audit import statistics
from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.finding import Part, unable, with_test
from dpfl_bench.audit.plays import Plays

TESTED = 64  # vectors of which all pairs are compared
SHAPED = 2**20  # numbers whose shape is tested


@dataclass(frozen=True)
class Spread:
    """Standardised noise of one kind of release."""

    name: str
    squares: float
    count: int

    @staticmethod
    def of(name: str, values: np.ndarray) -> Spread:
        wide = values.astype(np.float64).ravel()
        return Spread(name, float(wide @ wide), wide.size)

    @property
    def std(self) -> float:
        return math.sqrt(self.squares / self.count)

    def at_most(self, confidence: float) -> float:
        return statistics.scale_at_most(self.squares, self.count, confidence)


def main_noise(audited: Audited, found: Plays) -> Spread:
    """The noise that hides a unit: of messages under local trust, of lots, else of sums."""
    claim = audited.claim
    if claim.trust == "local" or not found.sums.size:
        return Spread.of(claim.release, np.concatenate([rows.ravel() for *_, rows in found.messages]))
    return Spread.of(claim.release, found.sums)


def parts(audited: Audited, found: Plays, scalars: Sequence[Spread]) -> list[Part]:
    spreads = [*([Spread.of("sum", found.sums)] if found.sums.size else []), *scalars]
    if found.messages:
        rows = [rows.ravel() for *_, rows in found.messages]
        spreads.append(Spread.of(_single(audited), np.concatenate(rows)))
    return [_scale(audited, spreads), *law(audited, found)]


def law(audited: Audited, found: Plays) -> list[Part]:
    """Shape and independence alone."""
    return [_shape(audited, found), _independence(audited, found)]


def _scale(audited: Audited, spreads: Sequence[Spread]) -> Part:
    each = {s.name: statistics.scale_p(s.squares, s.count) for s in spreads}
    worst = min(spreads, key=lambda s: each[s.name])
    says = ", ".join(f"{s.name} {s.std:.5g} ({s.count})" for s in spreads)
    return with_test(
        "residuals",
        statistics.joint_p(each.values()),
        audited.confidence,
        f"standard deviation over the declared one (numbers): {says}",
        worst.std,
    )


def _single(audited: Audited) -> str:
    return "message" if audited.claim.unit == "client" else "lot"


def _shape(audited: Audited, found: Plays) -> Part:
    kinds = {"sum": found.sums.ravel()} if found.sums.size else {}
    if found.messages:
        kinds[_single(audited)] = np.concatenate([rows.ravel() for *_, rows in found.messages])
    tests = {name: statistics.shape(values[:SHAPED].astype(np.float64)) for name, values in kinds.items()}
    worst = min(tests, key=lambda name: tests[name][1])
    p = statistics.joint_p(p for _, p in tests.values())
    says = f"largest distance from a normal law: {tests[worst][0]:.2g}, of the {worst}"
    return with_test("residuals: shape", p, audited.confidence, says, tests[worst][0])


def _independence(audited: Audited, found: Plays) -> Part:
    tests = {name: test for name, test in _correlations(found) if test is not None}
    if not tests:
        return unable("residuals: independence", "one number alone: nothing to compare")
    worst = min(tests, key=lambda name: tests[name][1])
    says = "largest |z| (repeated: how many) across " + ", ".join(
        f"{name} {z:.3g}" for name, (z, _) in tests.items()
    )
    p = statistics.joint_p(p for _, p in tests.values())
    return with_test("residuals: independence", p, audited.confidence, says, tests[worst][0])


Test = tuple[float, float]


def _correlations(found: Plays) -> list[tuple[str, Test | None]]:
    seeds, rounds, d = found.sums.shape
    listed: list[tuple[str, Test | None]] = []
    if found.sums.size:
        listed += [
            ("seeds", _pairs([*found.sums[:TESTED].reshape(-1, rounds * d)])),
            ("rounds", _pairs([*found.sums.transpose(1, 0, 2)[:TESTED].reshape(-1, seeds * d)])),
            ("coordinates", statistics.lagged(found.sums.reshape(-1, d)) if d > 1 else None),
        ]
    if found.messages:
        whole = _whole(found.messages)
        listed += [
            ("seeds of messages", _pairs(_along(whole, 0))),
            ("rounds of messages", _pairs(_along(whole, 1))),
            ("clients", _pairs(_along(whole, 2))),
        ]
        rows = np.concatenate([rows for *_, rows in found.messages])
        listed.append(("repeated messages", statistics.repeated(rows)))
        if d > 1:
            listed.append(("coordinates of messages", statistics.lagged(rows)))
    return listed


def _pairs(rows: list[np.ndarray]) -> Test | None:
    return statistics.alike(rows, TESTED) if len(rows) > 1 else None


Whole = dict[tuple[int, int, int], np.ndarray]


def _whole(messages: Sequence[tuple[int, int, np.ndarray, np.ndarray]]) -> Whole:
    """(seed, round, client) -> the noise of its message, (d,)."""
    return {
        (seed, round, int(client)): row
        for seed, round, clients, rows in messages
        for client, row in zip(clients, rows, strict=True)
    }


def _along(whole: Whole, axis: int) -> list[np.ndarray]:
    """One vector for each seed, round or client (axis 0, 1, 2), what is left in the same order; 0
    where a client was not there. (A product with 0 tells nothing, and the test stays valid.)
    """
    values = sorted({place[axis] for place in whole})[:TESTED]
    rest: dict[tuple[int, ...], int] = {}
    for place in whole:
        rest.setdefault(place[:axis] + place[axis + 1 :], len(rest))
    d = len(next(iter(whole.values())))
    rows = {value: np.zeros((len(rest), d), np.float32) for value in values}
    for place, row in whole.items():
        if place[axis] in rows:
            rows[place[axis]][rest[place[:axis] + place[axis + 1 :]]] = row
    return [row.ravel() for row in rows.values()]
