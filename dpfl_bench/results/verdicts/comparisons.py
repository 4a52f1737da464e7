"""Claims that compare: better, alike, ordered, a trend, a growing gain, a bound, an equality."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from dpfl_bench.results.select.cells import Cell
from dpfl_bench.results.select.intervals import Interval, exactly, of_difference
from dpfl_bench.results.verdicts.group import (
    FAILS,
    HOLDS,
    UNDECIDED,
    GroupTest,
    Missing,
    Outcome,
    above,
    are_same,
    ascending,
    gain,
    said,
    same_digits,
    short,
    worst,
)


def better(test: GroupTest) -> Outcome:
    terms = test.terms
    margin = float(terms["by_at_least"])
    if "rounds" in terms:
        return _in_every_round(test, margin)
    difference = test.gain(test.side("of"), test.side("than"))
    beyond = f" against a margin of {margin:g}" if margin else ""
    return Outcome(above(difference, margin), f"{_told('better by', difference)}{beyond}")


def _in_every_round(test: GroupTest, margin: float) -> Outcome:
    first, sides = test.terms["rounds"]["from"], ("of", "than")
    found = [
        {cell.at["round"]: cell for cell in test.cells("round", where=test.terms[side])} for side in sides
    ]
    common = [number for number in found[0] if number in found[1] and number >= first]
    if not common:
        raise Missing(f"rounds from {first} on")
    pairs = [
        [
            test.note(by_round[number], side=side, along=number)
            for side, by_round in zip(sides, found, strict=True)
        ]
        for number in common
    ]
    if any(source.diverged for cell in pairs[-1] for source in cell.sources):
        pairs.append([test.side(side, along="end") for side in sides])  # what diverged lacks later rounds
    gains = [test.gain(*pair) for pair in pairs]
    verdicts = [above(gain, margin) for gain in gains]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in (HOLDS, FAILS, UNDECIDED))
    same = f"; the same in {count}" if (count := sum(map(are_same, gains))) else ""
    return Outcome(worst(verdicts), f"of {len(common)} evaluated rounds: {counts}{same}")


def _told(words: str, difference: Interval) -> str:
    return "the same" if are_same(difference) else f"{words} {said(difference)}"


def alike(test: GroupTest) -> Outcome:
    terms = test.terms
    within = float(terms["within"])
    difference = test.gain(test.side("of"), test.side("than"))
    inside = -within <= difference.low and difference.high <= within
    outside = difference.low > within or difference.high < -within
    verdict = HOLDS if inside else FAILS if outside else UNDECIDED
    return Outcome(verdict, f"{_told('difference', difference)} against +-{within:g}")


def ordered(test: GroupTest) -> Outcome:
    name, order = test.terms["along"], test.terms["order"]
    found = {cell.at[name]: cell for cell in test.cells(name, where={name: order})}
    if absent := [value for value in order if value not in found]:
        raise Missing(f"{name} {absent[0]}")
    sides = [test.note(found[value], along=value) for value in order]
    gains = [test.gain(*pair) for pair in pairwise(sides)]
    pairs = zip(order[:-1], order[1:], gains, strict=True)
    lines = [
        f"{short(a)} the same as {short(b)}"
        if are_same(each)
        else f"{short(a)} better than {short(b)} by {said(each)}"
        for a, b, each in pairs
    ]
    return Outcome(worst(map(above, gains)), "; ".join(lines))


def trend(test: GroupTest, sign: int) -> Outcome:
    """sign 1: falls; -1: rises."""
    by_value = list(test.along(test.terms["along"]).values())
    steps = [gain(later, earlier, sign) for earlier, later in pairwise(by_value)]
    whole = gain(by_value[-1], by_value[0], sign)
    against = sum(step.high < 0 for step in steps)
    verdict = FAILS if against else above(whole)
    values = ", ".join(short(cell.mean) for cell in by_value)
    return Outcome(verdict, f"{values}; {against} steps against it; in all {said(whole)}")


def gain_grows(test: GroupTest) -> Outcome:
    terms = test.terms
    sides = []
    for side in ("of", "than"):
        every = {cell.at[terms["with"]]: cell for cell in test.cells(terms["with"], where=terms[side])}
        sides.append({at: test.note(cell, side=side, across=at) for at, cell in every.items()})
    order = ascending((value for value in sides[0] if value in sides[1]), terms["with"])
    if len(order) < 2:
        raise Missing(f"two values of {terms['with']}")
    gains = [_paired(sides[0][value], sides[1][value], test.sign) for value in order]
    exact = all(cell.exact for side in sides for cell in side.values())
    steps = [_more(later, earlier, exact) for earlier, later in pairwise(gains)]
    whole = _more(gains[-1], gains[0], exact)
    verdict = FAILS if any(step.high < 0 for step in steps) else above(whole)
    means = ", ".join(short(sum(gain.values()) / max(1, len(gain))) for gain in gains)
    return Outcome(verdict, f"gains {means} for {terms['with']} {order}; the last more by {said(whole)}")


def _paired(ours: Cell, theirs: Cell, sign: int) -> dict[Any, float]:
    both = [key for key in ours.values if key in theirs.values]
    return {key: sign * (theirs.values[key] - ours.values[key]) for key in both}


def _more(later: Mapping[Any, float], earlier: Mapping[Any, float], exact: bool) -> Interval:
    difference = of_difference(later, earlier)
    return exactly(difference.mean) if exact else difference


def reaches(test: GroupTest) -> Outcome:
    terms = test.terms
    interval = test.side("of").interval
    verdicts, words = [], []
    if "most" in terms:
        most = float(terms["most"])
        verdicts.append(HOLDS if interval.high <= most else FAILS if interval.low > most else UNDECIDED)
        words.append(f"at most {most:g}")
    if "least" in terms:
        least = float(terms["least"])
        verdicts.append(HOLDS if interval.low >= least else FAILS if interval.high < least else UNDECIDED)
        words.append(f"at least {least:g}")
    return Outcome(worst(verdicts), f"{said(interval)}, {', '.join(words)}")


def equal(test: GroupTest) -> Outcome:
    """Up to half a unit of the last digit, as with printed numbers."""
    terms = test.terms
    ours, wanted = test.side("").mean, terms["to"]
    if isinstance(wanted, str):
        (theirs,) = test.cells(y=wanted)
        wanted = test.note(theirs, side="to").mean
    if math.isnan(ours) or math.isnan(wanted):
        raise Missing(f"a number for {test.asked.y if math.isnan(ours) else terms['to']}")
    verdict = HOLDS if same_digits(ours, float(wanted), terms["digits"]) else FAILS
    return Outcome(verdict, f"{ours:.{terms['digits']}f}, expected {short(wanted)}")
