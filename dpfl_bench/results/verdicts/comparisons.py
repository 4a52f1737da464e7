"""Claims that compare: better, alike, ordered, a trend, a growing gain, a bound, an equality."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dpfl_bench.results.select.cells import Cell, cells
from dpfl_bench.results.select.intervals import Interval, exactly, of_difference
from dpfl_bench.results.verdicts.group import (
    FAILS,
    HOLDS,
    UNDECIDED,
    GroupTest,
    Missing,
    Outcome,
    above,
    ascending,
    gain,
    said,
    same_digits,
    short,
    worst,
)


def better(test: GroupTest) -> Outcome:
    terms = test.terms
    margin = float(terms.get("by_at_least", 0))
    if "rounds" not in terms:
        difference = test.gain(test.side(terms["of"]), test.side(terms["than"]))
        beyond = f" against a margin of {margin:g}" if margin else ""
        return Outcome(above(difference, margin), f"better by {said(difference)}{beyond}")
    ends = [test.side(terms[side]) for side in ("of", "than")]
    ours, theirs = (_by_round(test, terms[side]) for side in ("of", "than"))
    common = [number for number in ours if number in theirs and number >= terms["rounds"].get("from", 0)]
    if not common:
        raise Missing(f"rounds from {terms['rounds']}")
    verdicts = [above(test.gain(ours[number], theirs[number]), margin) for number in common]
    if any(source.diverged for cell in ends for source in cell.sources):
        verdicts.append(above(test.gain(*ends), margin))  # what diverged lacks the later rounds
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in (HOLDS, FAILS, UNDECIDED))
    return Outcome(worst(verdicts), f"of {len(common)} evaluated rounds: {counts}")


def _by_round(test: GroupTest, where: Mapping[str, Any]) -> dict[float, Cell]:
    asked = test.question("round")
    found = cells(test.sources, replace(asked, where={**asked.where, **where}))
    return {cell.at["round"]: cell for cell in found}


def alike(test: GroupTest) -> Outcome:
    terms = test.terms
    within = float(terms["within"])
    difference = test.gain(test.side(terms["of"]), test.side(terms["than"]))
    inside = -within <= difference.low and difference.high <= within
    outside = difference.low > within or difference.high < -within
    verdict = HOLDS if inside else FAILS if outside else UNDECIDED
    return Outcome(verdict, f"difference {said(difference)} against +-{within:g}")


def ordered(test: GroupTest) -> Outcome:
    name, order = test.terms["along"], test.terms["order"]
    sides = [test.side({name: value}) for value in order]
    gains = [test.gain(*pair) for pair in pairwise(sides)]
    pairs = zip(order[:-1], order[1:], gains, strict=True)
    lines = [f"{short(a)} better than {short(b)} by {said(each)}" for a, b, each in pairs]
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
    for side in (terms["of"], terms["than"]):
        asked = test.question(terms["with"])
        found = cells(test.sources, replace(asked, where={**asked.where, **side}))
        sides.append({cell.at[terms["with"]]: cell for cell in found})
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
    interval = test.side(terms.get("of", {})).interval
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
    ours, wanted = test.side({}).mean, terms["to"]
    if isinstance(wanted, str):
        (theirs,) = cells(test.sources, replace(test.question(), y=wanted))
        wanted = theirs.mean
    if math.isnan(ours) or math.isnan(wanted):
        raise Missing(f"a number for {test.asked.y if math.isnan(ours) else terms['to']}")
    verdict = HOLDS if same_digits(ours, float(wanted), terms["digits"]) else FAILS
    return Outcome(verdict, f"{ours:.{terms['digits']}f}, expected {short(wanted)}")
