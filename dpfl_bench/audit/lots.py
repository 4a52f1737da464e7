"""Lots that were really drawn: their sizes, how often each record is in one, and how many records
two lots have in common, against the sampling that was accounted.

Every lot is to be drawn afresh: in the next step, in the next round, by another client, with
another seed. Unit: record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from dpfl_bench.audit import statistics
from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.cohorts import drawn as drawn_cohorts
from dpfl_bench.audit.finding import Part, exact, with_test
from dpfl_bench.audit.record_plays import RecordPlays

NAME = "lots and cohorts"
RARE = 50  # records in common, for which a normal law is too thin
APART = 4  # steps between which overlaps are counted

Place = tuple[int, int, int, int]  # seed, round, step, client


def parts(audited: Audited, found: RecordPlays) -> list[Part]:
    claim, main = audited.claim, audited.claim.main
    taken, worst = participations(audited), int(main["times_of_worst_record"])
    tests = {"worst record": exact(taken, worst)}
    says = f"the worst record is in the lots' draw of {taken} steps, {worst} were accounted"
    sampling = main["sampling"]
    if sampling["scheme"] != "full":
        fixed = sampling["scheme"] == "fixed"
        p, of = drawn_cohorts(audited, int(sampling["clients"]), int(sampling["cohort"]), fixed)
        tests["cohorts"], says = p, f"{says}; cohorts: {of}"
    each, of = drawn(found, audited.job.data.federation.sizes, main["lots"])
    tests |= each
    if claim.secret:
        tests["rate"] = exact(rate_of(audited), claim.seen.rate * (1 + 1e-9))
    p = statistics.joint_p(tests.values())
    return [with_test(NAME, p, audited.confidence, f"{says}; {of}", float(taken))]


def participations(audited: Audited) -> int:
    """The noised gradients of the clients that hold the most exposed record, of any seed."""
    data, rounds = audited.job.data, int(audited.claim.main["rounds"])
    store, worst = np.concatenate(data.parts), 0
    for schedule in audited.job.schedules:
        taken = np.repeat(schedule.first(rounds).gradients, [len(part) for part in data.parts])
        worst = max(worst, int(np.bincount(store, taken).max()))
    return worst


def rate_of(audited: Audited) -> float:
    """The largest share of a client's records that a lot has, by the record of lots."""
    lots = audited.claim.main["lots"]
    if "sample_rate" in lots:
        return float(lots["sample_rate"])
    return float(lots["batch_size"]) / int(audited.job.data.federation.sizes.min())


def rate_at_least(audited: Audited, found: RecordPlays, confidence: float) -> float:
    """Lower bound on the share of records that are in a lot, of those of the smallest client where
    lots have a fixed size.
    """
    sizes = audited.job.data.federation.sizes
    fixed = "batch_size" in audited.claim.main["lots"]
    smallest = int(np.argmin(sizes)) if fixed else None
    hits = trials = 0
    for drawn in found.drawn:
        for _, _, client, rows in drawn:
            if smallest is None or sizes[client] == sizes[smallest]:
                hits, trials = hits + len(rows), trials + int(sizes[client])
    if fixed:
        return hits / max(1, trials)  # nothing random is in it
    return statistics.share_at_least(hits, trials, confidence) if trials else 0.0


def drawn(found: RecordPlays, sizes: np.ndarray, lots: dict[str, object]) -> tuple[dict[str, float], str]:
    """(p of each test, what was seen)."""
    places = {
        (seed, round, step, client): rows
        for seed, drawn in enumerate(found.drawn)
        for round, step, client, rows in drawn
    }
    rates = {int(n): _rate(lots, int(n)) for n in np.unique(sizes)}
    counted = np.array([len(rows) for rows in places.values()])
    if not places:
        return {}, "no lot was drawn"
    seen = f"{len(places)} lots of {counted.min()} to {counted.max()} records"
    if all(rate == 1 for rate in rates.values()):
        whole = all(len(rows) == sizes[place[3]] for place, rows in places.items())
        return {"sizes": float(whole)}, f"{seen}: every record is in every lot"
    fixed = lots["scheme"] == "fixed"
    tests = {
        "sizes": _sizes_p(places, sizes, rates, fixed),
        "frequencies": _frequencies_p(places, sizes, rates, fixed),
        **_overlaps(places, sizes, rates, fixed),
    }
    worst = min(tests, key=lambda name: tests[name])
    return tests, f"{seen}, least p {tests[worst]:.2g} of their {worst}"


def _rate(lots: dict[str, object], records: int) -> float:
    rate = lots["sample_rate"] if "sample_rate" in lots else float(str(lots["batch_size"])) / records
    return float(str(rate))


Lots = dict[Place, np.ndarray]


def _sizes_p(places: Lots, sizes: np.ndarray, rates: dict[int, float], fixed: bool) -> float:
    owners = np.array([sizes[place[3]] for place in places])
    rate = np.array([rates[int(n)] for n in owners])
    gaps = np.array([len(rows) for rows in places.values()]) - rate * owners
    if fixed:
        return exact(float(np.abs(gaps).max()), 1e-9)
    scores = gaps / np.sqrt(owners * rate * (1 - rate))
    # the fourth moment of a binomial number: its square varies by more than that of a normal one
    spread = (2 + (1 - 6 * rate * (1 - rate)) / (owners * rate * (1 - rate))).sum()
    return statistics.joint_p(
        [statistics.mean_p(scores, 0.0, 1.0), _two_sided((scores**2 - 1).sum() / math.sqrt(spread))]
    )


def _frequencies_p(places: Lots, sizes: np.ndarray, rates: dict[int, float], fixed: bool) -> float:
    """Whether all records of a client are drawn equally often."""
    counts: dict[int, np.ndarray] = {}
    draws: dict[int, int] = {}
    for (_, _, _, client), rows in places.items():
        counts.setdefault(client, np.zeros(int(sizes[client])))[rows] += 1
        draws[client] = draws.get(client, 0) + 1
    total = mean = spread = 0.0
    for client, seen in counts.items():
        n, rate = len(seen), rates[len(seen)]
        variance = draws[client] * rate * (1 - rate)
        if variance == 0 or n < 2:
            continue
        total += float(((seen - draws[client] * rate) ** 2).sum()) / variance
        mean += n
        spread += n * (2 + (1 - 6 * rate * (1 - rate)) / variance)
        if fixed:
            spread += 2 * n / (n - 1)  # the counts of a client sum to a constant
    return _two_sided((total - mean) / math.sqrt(spread)) if spread else 1.0


def _overlaps(places: Lots, sizes: np.ndarray, rates: dict[int, float], fixed: bool) -> dict[str, float]:
    """How many records lots have in common that are neighbours in step, round, seed or client."""
    found = {}
    for name, axis in {"step": 2, "round": 1, "seed": 0, "client": 3}.items():
        for apart in range(1, APART + 1 if axis == 2 else 2):
            tests = list(_pairs(places, axis, apart, sizes))
            if tests:
                label = f"overlaps with the lot {apart} {name}s on"
                found[label] = _overlaps_p(tests, rates, fixed)
    return found


def _pairs(places: Lots, axis: int, apart: int, sizes: np.ndarray) -> Iterable[tuple[int, int]]:
    """(records of the client, records in common) of two lots `apart` along one axis."""
    values = sorted({place[axis] for place in places})
    later = dict(zip(values, values[apart:], strict=False))
    for place, rows in places.items():
        if place[axis] not in later:
            continue
        there: Place = (*place[:axis], later[place[axis]], *place[axis + 1 :])  # type: ignore[assignment]
        other = places.get(there)
        if other is not None and sizes[there[3]] == sizes[place[3]]:
            yield int(sizes[place[3]]), len(np.intersect1d(rows, other, assume_unique=True))


def _overlaps_p(pairs: Sequence[tuple[int, int]], rates: dict[int, float], fixed: bool) -> float:
    """Given the sizes, an overlap is hypergeometric, else binomial. Two pairs that share a lot are
    uncorrelated under fixed sizes; else they add to the variance.
    """
    expected = sum(n * rates[n] ** 2 for n, _ in pairs)
    if expected < RARE:
        seen = sum(common for _, common in pairs)
        tails = stats.poisson.cdf(seen, expected), stats.poisson.sf(seen - 1, expected)
        return min(1.0, 2 * float(min(tails)))
    score = variance = 0.0
    for n, common in pairs:
        rate = rates[n]
        score += common - n * rate**2
        if fixed:
            variance += n * rate**2 * (1 - rate) ** 2 * n / max(1, n - 1)
        else:
            variance += n * rate**2 * (1 - rate**2) * (1 + 2 * rate / (1 + rate))
    return _two_sided(score / math.sqrt(variance)) if variance else float(score == 0)


def _two_sided(z: float) -> float:
    return min(1.0, 2 * float(stats.norm.sf(abs(z))))
