"""Whether a claim holds: a test for each kind, over intervals that are paired by seed and split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.select.cells import BEST, is_where
from dpfl_bench.results.select.selection import Selection
from dpfl_bench.results.select.sources import Source
from dpfl_bench.results.verdicts import kinds
from dpfl_bench.results.verdicts.group import FAILS, HOLDS, UNDECIDED, GroupTest, Missing, Outcome, short
from dpfl_bench.results.verdicts.taken import Taken

DIGITS = (6, 9)  # of the numbers in claims.csv, where they tell as much as all digits


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

    @property
    def definition(self) -> dict[str, Any]:
        """What is tested, with what is not said but follows; without what does not matter here."""
        asked = self.question()
        by, by_better = asked.judged
        tuned = {"best_over": self.best_over, "by": by, "by_better": by_better}
        is_tuned = self.best_over or self.y.startswith(BEST)
        told = {
            **{"kind": self.kind, "y": self.y, "better": asked.better},
            **kinds.resolved(self.kind, self.terms),
            **{"from": self.sweeps, "where": self.where, "spread": self.spread},
            "last": None if self.last == 1 else self.last,
            **(tuned if is_tuned else {}),
            **({"each": self.each, "in": self.at_least or "every"} if self.each else {}),
        }
        return {key: value for key, value in told.items() if value not in ([], {}, None)}


def test(claim: Claim, sources: Iterable[Source], digits: Sequence[int]) -> Outcome:
    """The claim in each of its groups, and together. digits: of the numbers that it took; the
    fewest that say the same.
    """
    asked = claim.question()
    groups: dict[tuple[Any, ...], list[Source]] = {}
    for source in sources:
        if is_where(source, asked.where):
            groups.setdefault(tuple(source.field(name) for name in claim.each), []).append(source)
    if not groups:
        return Outcome(UNDECIDED, "no finished run")
    outcomes, terms = {}, kinds.resolved(claim.kind, claim.terms)
    for at, members in groups.items():
        label = ", ".join(f"{name} {short(v)}" for name, v in zip(claim.each, at, strict=True))
        given = GroupTest(asked, terms, members)
        try:
            outcomes[label] = _tested(claim.kind, given, digits)
        except Missing as error:
            outcomes[label] = Outcome(UNDECIDED, f"no run has {error}", taken=[Taken()])
    return _together(outcomes, claim.at_least)


def _tested(kind: str, given: GroupTest, digits: Sequence[int]) -> Outcome:
    """With the numbers that it took."""
    outcome = kinds.KINDS[kind].test(given)
    fewer = (replace(given, digits=count, taken=[]) for count in digits)
    taken = (each.taken for each in fewer if kinds.KINDS[kind].test(each) == outcome)
    return replace(outcome, taken=next(taken, given.taken))


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
    return Outcome(verdict, "; ".join([*head, *parts]), cells=outcomes)


def _needed(wanted: Any, count: int) -> int:
    if wanted is None:
        return count
    return count // 2 + 1 if wanted == "most" else int(wanted)
