"""Whether a claim holds: a test for each kind, over intervals that are paired by seed and split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dpfl_bench.papers import comparisons, optima
from dpfl_bench.papers.artefact import Claim
from dpfl_bench.papers.evidence import FAILS, HOLDS, UNDECIDED, GroupTest, Missing, Outcome, short
from dpfl_bench.results.select.sources import Source


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
        label = ", ".join(f"{name} {short(v)}" for name, v in zip(claim.each, at, strict=True))
        try:
            outcomes[label] = _TESTS[claim.kind](GroupTest(claim, members))
        except Missing as error:
            outcomes[label] = Outcome(UNDECIDED, f"no run has {error}")
    return _together(outcomes, claim.at_least)


def _together(outcomes: Mapping[str, Outcome], wanted: Any) -> Outcome:
    count, needed = len(outcomes), _needed(wanted, len(outcomes))
    holding = sum(outcome.verdict == HOLDS for outcome in outcomes.values())
    failing = sum(outcome.verdict == FAILS for outcome in outcomes.values())
    fails = failing > 0 and count - failing < needed
    verdict = HOLDS if holding >= needed else FAILS if fails and needed <= count else UNDECIDED
    parts = [
        f"{label}: {outcome.evidence} ({outcome.verdict})" if label else outcome.evidence
        for label, outcome in outcomes.items()
    ]
    head = [f"holds in {holding} of {count}, does not hold in {failing}"] if count > 1 else []
    head += [f"only {count} of the {needed} groups are here"] if needed > count else []
    return Outcome(verdict, "; ".join([*head, *parts]))


def _needed(wanted: Any, count: int) -> int:
    if wanted is None:
        return count
    return count // 2 + 1 if wanted == "most" else int(wanted)


_TESTS: dict[str, Callable[[GroupTest], Outcome]] = {
    "better": comparisons.better,
    "alike": comparisons.alike,
    "ordered": comparisons.ordered,
    "falls": lambda test: comparisons.trend(test, 1),
    "rises": lambda test: comparisons.trend(test, -1),
    "gain_grows": comparisons.gain_grows,
    "reaches": comparisons.reaches,
    "equal": comparisons.equal,
    "interior": optima.interior,
    "best_at": optima.best_at,
    "best_moves": optima.best_moves,
    "fits": optima.fits,
}
