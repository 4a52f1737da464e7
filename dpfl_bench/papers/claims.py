"""Whether a claim holds: a test for each kind, over intervals that are paired by seed and split."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.papers.artefact import Claim
from dpfl_bench.results.select.cells import Cell, Question, cells
from dpfl_bench.results.select.intervals import Interval, exactly, of_difference
from dpfl_bench.results.select.sources import Source

HOLDS, FAILS, UNDECIDED, UNTESTED = (
    *("holds", "does not hold", "undecided"),
    "cannot be tested at this scale",
)
R2_APART = 0.05  # fits that are less apart in R^2 are not told apart


@dataclass(frozen=True)
class Outcome:
    verdict: str
    evidence: str


class _Missing(Exception):
    """The claim names values that no run has."""


@dataclass(frozen=True)
class _Test:
    """A claim on the sources of one group."""

    claim: Claim
    sources: Sequence[Source]

    def question(self, *names: str) -> Question:
        return self.claim.question(self.claim.y, *names)

    @property
    def sign(self) -> int:
        """Of a difference in which less is better, 1."""
        return 1 if self.question().better == "least" else -1

    def side(self, where: Mapping[str, Any]) -> Cell:
        asked = self.question()
        found = cells(self.sources, replace(asked, where={**asked.where, **where}))
        if not found:
            raise _Missing(", ".join(f"{key} {value}" for key, value in where.items()))
        return found[0]

    def along(self, name: str) -> dict[Any, Cell]:
        """A cell for each value of the field, sorted."""
        by_value = {cell.at[name]: cell for cell in cells(self.sources, self.question(name))}
        if len(by_value) < 2:
            raise _Missing(f"two values of {name}")
        return {value: by_value[value] for value in sorted(by_value)}

    def gain(self, ours: Cell, theirs: Cell) -> Interval:
        """By how much ours is better."""
        return _gain(ours, theirs, self.sign)

    def best(self, by_value: Mapping[Any, Cell]) -> Any:
        return min(by_value, key=lambda value: self.sign * _finite(by_value[value].mean, self.sign))


def test(claim: Claim, sources: Iterable[Source]) -> Outcome:
    """The claim in each of its groups, and together."""
    asked = claim.question(claim.y, *claim.each)
    groups: dict[tuple[Any, ...], list[Source]] = {}
    for source in sources:
        if all(source.field(k) in (v if isinstance(v, list) else [v]) for k, v in asked.where.items()):
            groups.setdefault(tuple(source.field(name) for name in claim.each), []).append(source)
    if not groups:
        return Outcome(UNDECIDED, "no finished run")
    outcomes = {}
    for at, members in groups.items():
        label = ", ".join(f"{name} {_short(v)}" for name, v in zip(claim.each, at, strict=True))
        try:
            outcomes[label] = _TESTS[claim.kind](_Test(claim, members))
        except _Missing as error:
            outcomes[label] = Outcome(UNDECIDED, f"no run has {error}")
    return _together(outcomes, claim.at_least)


def _together(outcomes: Mapping[str, Outcome], wanted: Any) -> Outcome:
    count, needed = len(outcomes), _needed(wanted, len(outcomes))
    holding = sum(outcome.verdict == HOLDS for outcome in outcomes.values())
    failing = sum(outcome.verdict == FAILS for outcome in outcomes.values())
    verdict = HOLDS if holding >= needed else FAILS if count - failing < needed else UNDECIDED
    parts = [
        f"{label}: {outcome.evidence} ({outcome.verdict})" if label else outcome.evidence
        for label, outcome in outcomes.items()
    ]
    head = [f"holds in {holding} of {count}, does not hold in {failing}"] if count > 1 else []
    return Outcome(verdict, "; ".join([*head, *parts]))


def _needed(wanted: Any, count: int) -> int:
    if wanted is None:
        return count
    if wanted == "most":
        return count // 2 + 1
    if isinstance(wanted, int):
        return wanted
    raise ConfigError(f"in: {wanted}: expected a number of groups, or most")


def _gain(ours: Cell, theirs: Cell, sign: int) -> Interval:
    if ours.exact and theirs.exact:
        return exactly(sign * (theirs.mean - ours.mean))
    gain = of_difference(theirs.values, ours.values)
    return gain if sign > 0 else Interval(-gain.mean, -gain.high, -gain.low, gain.count)


def _above(interval: Interval, margin: float = 0.0) -> str:
    if interval.low > margin:
        return HOLDS
    return FAILS if interval.high <= margin else UNDECIDED


def _worst(verdicts: Iterable[str]) -> str:
    given = set(verdicts)
    return FAILS if FAILS in given else UNDECIDED if UNDECIDED in given else HOLDS


def _said(interval: Interval) -> str:
    if interval.low == interval.high:
        return _short(interval.mean)
    if not interval.known:
        return f"{_short(interval.mean)} (n = {interval.count}: no interval)"
    return f"{_short(interval.mean)} [{_short(interval.low)}, {_short(interval.high)}], n = {interval.count}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _finite(value: float, sign: int) -> float:
    return sign * math.inf if math.isnan(value) else value


def _better(test: _Test) -> Outcome:
    terms = test.claim.terms
    margin = float(terms.get("by_at_least", 0))
    if "rounds" not in terms:
        gain = test.gain(test.side(terms["of"]), test.side(terms["than"]))
        beyond = f" against a margin of {margin:g}" if margin else ""
        return Outcome(_above(gain, margin), f"better by {_said(gain)}{beyond}")
    ours, theirs = (_by_round(test, terms[side]) for side in ("of", "than"))
    common = [number for number in ours if number in theirs and number >= terms["rounds"].get("from", 0)]
    if not common:
        raise _Missing(f"rounds from {terms['rounds']}")
    verdicts = [_above(test.gain(ours[number], theirs[number]), margin) for number in common]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in (HOLDS, FAILS, UNDECIDED))
    return Outcome(_worst(verdicts), f"of {len(common)} evaluated rounds: {counts}")


def _by_round(test: _Test, where: Mapping[str, Any]) -> dict[float, Cell]:
    asked = test.question("round")
    found = cells(test.sources, replace(asked, where={**asked.where, **where}))
    return {cell.at["round"]: cell for cell in found}


def _alike(test: _Test) -> Outcome:
    terms = test.claim.terms
    gain, within = test.gain(test.side(terms["of"]), test.side(terms["than"])), float(terms["within"])
    inside = -within <= gain.low and gain.high <= within
    outside = gain.low > within or gain.high < -within
    verdict = HOLDS if inside else FAILS if outside else UNDECIDED
    return Outcome(verdict, f"difference {_said(gain)} against +-{within:g}")


def _ordered(test: _Test) -> Outcome:
    name, order = test.claim.terms["along"], test.claim.terms["order"]
    sides = [test.side({name: value}) for value in order]
    gains = [test.gain(*pair) for pair in zip(sides, sides[1:], strict=False)]
    pairs = zip(order, order[1:], gains, strict=False)
    said = [f"{_short(a)} better than {_short(b)} by {_said(gain)}" for a, b, gain in pairs]
    return Outcome(_worst(map(_above, gains)), "; ".join(said))


def _trend(test: _Test, sign: int) -> Outcome:
    """sign 1: falls; -1: rises."""
    by_value = list(test.along(test.claim.terms["along"]).values())
    steps = [_gain(later, earlier, sign) for earlier, later in zip(by_value, by_value[1:], strict=False)]
    whole = _gain(by_value[-1], by_value[0], sign)
    against = sum(step.high < 0 for step in steps)
    verdict = FAILS if against else _above(whole)
    values = ", ".join(_short(cell.mean) for cell in by_value)
    return Outcome(verdict, f"{values}; {against} steps against it; in all {_said(whole)}")


def _interior(test: _Test) -> Outcome:
    by_value = test.along(test.claim.terms["along"])
    best, ends = test.best(by_value), (min(by_value), max(by_value))
    if best in ends:
        inner = {value: cell for value, cell in by_value.items() if value not in ends}
        if not inner:
            raise _Missing("a value between the ends")
        second = test.best(inner)
        gain = test.gain(by_value[best], inner[second])
        said = f"best at {_short(best)}, an end; better than {_short(second)} by {_said(gain)}"
        return Outcome(FAILS if gain.low > 0 else UNDECIDED, said)
    gains = [test.gain(by_value[best], by_value[end]) for end in ends]
    said = [f"than {_short(end)} by {_said(gain)}" for end, gain in zip(ends, gains, strict=True)]
    verdict = HOLDS if all(gain.low > 0 for gain in gains) else UNDECIDED
    return Outcome(verdict, f"best at {_short(best)}: better {', '.join(said)}")


def _best_at(test: _Test) -> Outcome:
    terms = test.claim.terms
    by_value, asked = test.along(terms["along"]), terms["at"]
    wanted = test.sources[0].field(asked) if isinstance(asked, str) else asked
    if not isinstance(wanted, int | float) or isinstance(wanted, bool):
        raise _Missing(f"a number for {asked}")
    best, values = test.best(by_value), list(by_value)
    nearest = min(
        values, key=lambda value: abs(math.log(max(value, 1e-300) / wanted)) if wanted > 0 else value
    )
    if terms.get("within", "one") == "one":
        close = abs(values.index(best) - values.index(nearest)) <= 1
    else:
        close = abs(best - wanted) <= float(terms["within"].removesuffix("%")) / 100 * wanted
    gain = test.gain(by_value[best], by_value[nearest])
    said = (
        f"best at {_short(best)}, expected {_short(wanted)}; better than {_short(nearest)} by {_said(gain)}"
    )
    if close and best in (values[0], values[-1]) and best != nearest:
        return Outcome(UNDECIDED, f"{said}; the best is at the end of the grid")
    return Outcome(HOLDS if close else FAILS if gain.low > 0 else UNDECIDED, said)


def _best_moves(test: _Test) -> Outcome:
    """A move counts where the seeds tell the two best values apart in the later one's runs."""
    terms, name = test.claim.terms, test.claim.terms["along"]
    together: dict[Any, dict[Any, Cell]] = {}
    for cell in cells(test.sources, test.question(terms["with"], name)):
        together.setdefault(cell.at[terms["with"]], {})[cell.at[name]] = cell
    if len(together) < 2:
        raise _Missing(f"two values of {terms['with']}")
    order = sorted(together)
    best = [test.best({v: together[at][v] for v in sorted(together[at])}) for at in order]
    sign = {"up": 1, "down": -1, "same": 0}.get(terms["direction"])
    if sign is None:
        raise ConfigError(f"direction: {terms['direction']}: expected up, down or same")

    def sure(first: int, last: int) -> bool:
        there = together[order[last]]
        return best[first] in there and test.gain(there[best[last]], there[best[first]]).low > 0

    steps = range(1, len(order))
    moves = [k for k in steps if best[k] != best[k - 1] and (best[k] > best[k - 1]) != (sign > 0)]
    moved = moves if sign else [k for k in steps if best[k] != best[k - 1]]
    said = f"best at {', '.join(map(_short, best))} for {terms['with']} {', '.join(map(_short, order))}"
    if any(sure(k - 1, k) for k in moved):
        return Outcome(FAILS, said)
    if moved:
        return Outcome(UNDECIDED, f"{said}; the seeds cannot tell the moves against it from chance")
    if not sign:
        return Outcome(HOLDS, said)
    if best[0] == best[-1]:
        return Outcome(UNDECIDED, f"{said}: no move on this grid")
    return Outcome(HOLDS if sure(0, len(order) - 1) else UNDECIDED, said)


def _gain_grows(test: _Test) -> Outcome:
    terms = test.claim.terms
    sides = []
    for side in (terms["of"], terms["than"]):
        asked = test.question(terms["with"])
        found = cells(test.sources, replace(asked, where={**asked.where, **side}))
        sides.append({cell.at[terms["with"]]: cell for cell in found})
    order = sorted(value for value in sides[0] if value in sides[1])
    if len(order) < 2:
        raise _Missing(f"two values of {terms['with']}")
    gains = [_paired(sides[0][value], sides[1][value], test.sign) for value in order]
    steps = [of_difference(later, earlier) for earlier, later in zip(gains, gains[1:], strict=False)]
    whole = of_difference(gains[-1], gains[0])
    verdict = FAILS if any(step.high < 0 for step in steps) else _above(whole)
    means = ", ".join(_short(sum(gain.values()) / max(1, len(gain))) for gain in gains)
    return Outcome(verdict, f"gains {means} for {terms['with']} {order}; the last more by {_said(whole)}")


def _paired(ours: Cell, theirs: Cell, sign: int) -> dict[Any, float]:
    both = [key for key in ours.values if key in theirs.values]
    return {key: sign * (theirs.values[key] - ours.values[key]) for key in both}


def _reaches(test: _Test) -> Outcome:
    terms = test.claim.terms
    interval = test.side(terms.get("of", {})).interval
    if "most" in terms:
        flipped = Interval(-interval.mean, -interval.high, -interval.low, interval.count)
        return Outcome(_above(flipped, -float(terms["most"])), f"{_said(interval)}, at most {terms['most']}")
    return Outcome(_above(interval, float(terms["least"])), f"{_said(interval)}, at least {terms['least']}")


def _fits(test: _Test) -> Outcome:
    terms = test.claim.terms
    points = [(cell.at[terms["x"]], cell.mean) for cell in cells(test.sources, test.question(terms["x"]))]
    if len(points) < 3:
        raise _Missing(f"three values of {terms['x']}")
    x, y = np.array(points, dtype=float).T
    if y.std() == 0:
        return Outcome(UNDECIDED, f"the same value {y[0]:.4g} at all {len(x)} points")
    shares = {name: float(np.corrcoef(x**power, y)[0, 1] ** 2) for name, power in terms["forms"].items()}
    ours = shares[terms["for"]]
    others = max(share for name, share in shares.items() if name != terms["for"])
    verdict = UNDECIDED if abs(ours - others) < R2_APART else HOLDS if ours > others else FAILS
    said = ", ".join(f"R^2 {share:.3f} {name}" for name, share in shares.items())
    return Outcome(verdict, f"{said}, of {len(x)} points")


def _equal(test: _Test) -> Outcome:
    terms = test.claim.terms
    ours, wanted = test.side({}), terms["to"]
    if isinstance(wanted, str):
        (theirs,) = cells(test.sources, replace(test.question(), y=wanted))
        wanted = theirs.mean
    same = round(ours.mean, terms["digits"]) == round(float(wanted), terms["digits"])
    return Outcome(HOLDS if same else FAILS, f"{ours.mean:.{terms['digits']}f}, expected {_short(wanted)}")


_TESTS: dict[str, Callable[[_Test], Outcome]] = {
    "better": _better,
    "alike": _alike,
    "ordered": _ordered,
    "falls": lambda test: _trend(test, 1),
    "rises": lambda test: _trend(test, -1),
    "interior": _interior,
    "best_at": _best_at,
    "best_moves": _best_moves,
    "gain_grows": _gain_grows,
    "reaches": _reaches,
    "fits": _fits,
    "equal": _equal,
}
