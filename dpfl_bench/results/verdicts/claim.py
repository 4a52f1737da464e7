"""Whether a claim holds: a test for each kind, over intervals that are paired by seed and split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.select.cells import is_where
from dpfl_bench.results.select.selection import Selection
from dpfl_bench.results.select.sources import Source
from dpfl_bench.results.verdicts import kinds
from dpfl_bench.results.verdicts.group import FAILS, HOLDS, UNDECIDED, GroupTest, Missing, Outcome, short


@dataclass(frozen=True)
class Claim(Selection):
    """A statement about numbers of runs."""

    kind: str = ""
    each: list[str] = field(default_factory=list)  # a group for each combination of these fields' values
    at_least: Any = field(default=None, metadata={"key": "in"})  # of the groups; or most; none: every one
    terms: dict[str, Any] = field(default_factory=dict, metadata={"rest": True})  # the kind's own keys

    @property
    def groups(self) -> Sequence[str]:
        sides = [key for side in ("of", "than") for key in self.terms.get(side, {})]
        return [*self.each, *(self.terms[key] for key in ("along", "with", "x") if key in self.terms), *sides]

    def check(self, where: str) -> None:
        super().check(where)
        kinds.check(self.kind, self.terms, where)
        wanted = self.at_least
        if wanted not in (None, "most") and (type(wanted) is not int or wanted < 1):
            raise ConfigError(f"{where}: in={wanted}: expected a number of groups, or most")


def test(claim: Claim, sources: Iterable[Source]) -> Outcome:
    """The claim in each of its groups, and together."""
    asked = claim.question()
    groups: dict[tuple[Any, ...], list[Source]] = {}
    for source in sources:
        if is_where(source, asked.where):
            groups.setdefault(tuple(source.field(name) for name in claim.each), []).append(source)
    if not groups:
        return Outcome(UNDECIDED, "no finished run")
    outcomes = {}
    for at, members in groups.items():
        label = ", ".join(f"{name} {short(v)}" for name, v in zip(claim.each, at, strict=True))
        try:
            outcomes[label] = kinds.KINDS[claim.kind].test(GroupTest(asked, claim.terms, members))
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
