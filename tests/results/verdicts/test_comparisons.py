"""Statements that compare: true, false and open ones, and against a plain loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers.sources import facts, grid, lost, run
from helpers.statements import NO, OPEN, YES, outcome, verdict
from scipy import stats

from dpfl_bench.checks.errors import ConfigError

A, B = {"algo": "a"}, {"algo": "b"}
SIDES: dict[str, Any] = {"of": A, "than": B}


def pair(ours: tuple[float, ...], theirs: tuple[float, ...], **more: Any) -> list[Any]:
    return [run({"algo.name": "a", **more}, *ours), run({"algo.name": "b", **more}, *theirs)]


LOW, HIGH = (1.0, 1.1, 0.9, 1.05), (2.0, 2.1, 1.9, 2.1)


@pytest.mark.parametrize(
    ("ours", "theirs", "margin", "expected"),
    [
        (LOW, HIGH, 0, YES),
        (HIGH, LOW, 0, NO),
        (LOW, HIGH, 0.9, YES),
        (LOW, HIGH, 1.2, NO),
        (LOW, HIGH, 1.0, OPEN),
        ((1.0, 2.0, 3.0), (1.1, 1.9, 3.2), 0, OPEN),
        (LOW[:2], HIGH[:2], 0, OPEN),  # two seeds
        (LOW, LOW, 0, NO),  # equal is not better
        (LOW, LOW, -0.01, YES),  # "never worse by more than"
    ],
)
def test_better(ours: Any, theirs: Any, margin: float, expected: str) -> None:
    assert verdict("better", pair(ours, theirs), {**SIDES, "by_at_least": margin}) == expected
    negated = [tuple(-value for value in side) for side in (ours, theirs)]
    terms = {**SIDES, "by_at_least": margin}
    assert verdict("better", pair(*negated), terms, better="most") == expected


def test_what_is_equal_in_every_seed_is_the_same_and_neither_better_nor_worse() -> None:
    same, worse = pair(LOW, LOW), pair(LOW, tuple(y + 1e-9 for y in LOW))
    for terms in (SIDES, {"of": B, "than": A}):
        found = outcome("better", same, terms)
        assert (found.verdict, found.evidence) == (NO, "the same")
    assert outcome("better", worse, SIDES).evidence.startswith("better by 1e-09 [")
    assert outcome("alike", same, {**SIDES, "within": 0}).evidence == "the same against +-0"
    assert outcome("ordered", same, {"along": "algo", "order": ["a", "b"]}).evidence == "a the same as b"
    assert outcome("better", pair((1.0, 2.0), (1.0, 2.0)), SIDES).verdict == OPEN  # two seeds tell nothing
    rounds = [over_rounds("a", {1: LOW, 5: LOW}), over_rounds("b", {1: HIGH, 5: LOW})]
    found = outcome("better", rounds, {**SIDES, "rounds": {"from": 1}})
    assert found.evidence == "of 2 evaluated rounds: 1 holds, 1 does not hold, 0 undecided; the same in 1"


def plain_better(ours: np.ndarray, theirs: np.ndarray, margin: float) -> str:
    both = stats.ttest_rel(theirs, ours).confidence_interval(0.95)
    return YES if both.low > margin else NO if both.high <= margin else OPEN


def test_better_and_alike_against_a_plain_loop() -> None:
    rng = np.random.default_rng(2)
    seen = set()
    for _ in range(150):
        ours, theirs = rng.normal(0, 1, 5), rng.normal(rng.normal(0, 2), 1, 5)
        margin = float(rng.choice([0, 0.5]))
        found = verdict("better", pair(tuple(ours), tuple(theirs)), {**SIDES, "by_at_least": margin})
        assert found == plain_better(ours, theirs, margin)
        both = stats.ttest_rel(theirs, ours).confidence_interval(0.95)
        inside = both.low >= -1 and both.high <= 1
        outside = both.low > 1 or both.high < -1
        same = verdict("alike", pair(tuple(ours), tuple(theirs)), {**SIDES, "within": 1.0})
        assert same == (YES if inside else NO if outside else OPEN)
        seen |= {found, same + " alike"}
    assert len(seen) >= 5


def test_pairs_are_by_seed_whatever_the_order() -> None:
    """Noise that both share does not count; unpaired, it hides the difference."""
    shared = np.array([5.0, 50.0, 500.0])
    ours, theirs = tuple(shared + np.array([0.0, 0.1, 0.0])), tuple(shared + 1)
    assert verdict("better", pair(ours, theirs), SIDES) == YES
    there = [
        run({"algo.name": "a"}, *ours),
        *(run({"algo.name": "b", "seed": s}, theirs[s]) for s in (2, 0, 1)),
    ]
    assert verdict("better", there, SIDES) == YES
    apart = [run({"algo.name": "a"}, *ours), run({"algo.name": "b", "seed": 9}, *theirs)]
    assert verdict("better", apart, SIDES) == OPEN


def test_several_splits_count_as_splits() -> None:
    runs = [r for split in range(2) for r in pair(LOW, HIGH, **{"partition.seed": split})]
    assert verdict("better", runs, SIDES) == OPEN  # eight pairs, two splits
    runs += pair(LOW, HIGH, **{"partition.seed": 2})
    assert verdict("better", runs, SIDES) == YES


def test_what_diverged_is_worse_than_any_number() -> None:
    fine, broken = run({"algo.name": "a"}, *LOW[:3]), lost({"algo.name": "b"})
    assert verdict("better", [fine, broken], SIDES) == YES
    assert verdict("better", [fine, broken], {"of": B, "than": A}) == NO
    assert verdict("better", [fine, broken], {"of": B, "than": A}, better="most") == NO
    assert verdict("alike", [fine, broken], {**SIDES, "within": 1e9}) == NO
    assert verdict("better", [lost({"algo.name": "a"}), broken], SIDES) == OPEN
    one = [run({"algo.name": "a"}, 1.0), lost({"algo.name": "b"}, seeds=1)]
    assert verdict("better", one, SIDES) == OPEN  # one seed


def test_better_where_tuned() -> None:
    runs = [
        run({"algo.name": algo, "lr": lr}, *values)
        for algo, lr, values in (("a", 0.1, HIGH), ("a", 0.2, LOW), ("b", 0.1, (1.5,) * 4), ("b", 0.2, HIGH))
    ]
    assert verdict("better", runs, SIDES, best_over=("lr",)) == YES
    with pytest.raises(ConfigError, match="runs differ in lr"):
        verdict("better", runs, SIDES)


def over_rounds(algo: str, values: dict[int, tuple[float, ...]], **more: Any) -> Any:
    rows = [(seed, number, y) for number, each in values.items() for seed, y in enumerate(each)]
    columns = dict(zip(("seed", "round", "y"), zip(*rows, strict=True), strict=True))
    return run({"algo.name": algo}, rows=columns, **more)


def test_better_in_every_round_from_one_on() -> None:
    ours = over_rounds("a", {1: HIGH, 5: LOW, 9: LOW})
    theirs = over_rounds("b", {1: LOW, 5: HIGH, 9: HIGH})
    assert verdict("better", [ours, theirs], {**SIDES, "rounds": {"from": 5}}) == YES
    assert verdict("better", [ours, theirs], {**SIDES, "rounds": {"from": 1}}) == NO
    assert verdict("better", [ours, theirs], {**SIDES, "rounds": {"from": 10}}) == OPEN
    told = outcome("better", [ours, theirs], {**SIDES, "rounds": {"from": 1}}).evidence
    assert "2 holds, 1 does not hold" in told
    # what diverged after round 1 was better there, and is not better later
    broken = over_rounds("a", {1: LOW}, diverged={"seed": 0, "round": 2}, seeds=[0, 1, 2, 3])
    steady = over_rounds("b", {1: HIGH, 5: HIGH})
    assert verdict("better", [broken, steady], {**SIDES, "rounds": {"from": 1}}) != YES


def test_ordered() -> None:
    runs = grid({1: LOW, 2: HIGH, 3: (3.0, 3.1, 2.9, 3.0), 4: (3.0, 3.3, 2.7, 3.1)}, "eps")
    assert verdict("ordered", runs, {"along": "eps", "order": [1, 2, 3]}) == YES
    assert verdict("ordered", runs, {"along": "eps", "order": [1, 3, 2]}) == NO
    assert verdict("ordered", runs, {"along": "eps", "order": [1, 2, 3, 4]}) == OPEN
    assert verdict("ordered", runs, {"along": "eps", "order": [1, 2, 9]}) == OPEN


@pytest.mark.parametrize(
    ("values", "falls", "rises"),
    [
        ([3.0, 2.0, 1.0], YES, NO),
        ([1.0, 2.0, 3.0], NO, YES),
        ([3.0, 1.0, 2.0], NO, NO),  # a step the other way
        ([2.0, 2.0, 2.0], NO, NO),
    ],
)
def test_trends(values: list[float], falls: str, rises: str) -> None:
    jitter = np.array([0.0, 0.01, -0.01, 0.005])
    runs = grid({10 - k: tuple(value + (k + 1) * jitter) for k, value in enumerate(reversed(values))}, "eps")
    if len(set(values)) > 1:  # given in descending order
        found = tuple(verdict(kind, runs, {"along": "eps"}) for kind in ("falls", "rises"))
        assert found == (falls, rises)
    plans = [facts({"v": value}, eps=k) for k, value in enumerate(values)]
    found = tuple(verdict(kind, plans, {"along": "eps"}, y="plan.v") for kind in ("falls", "rises"))
    assert found == (falls, rises)


def test_a_trend_of_noise_is_open_and_a_field_of_words_has_none() -> None:
    rng = np.random.default_rng(0)
    runs = grid({k: tuple(rng.normal(0, 1, 4)) for k in range(4)}, "eps")
    assert verdict("falls", runs, {"along": "eps"}) == OPEN
    assert verdict("falls", runs[:1], {"along": "eps"}) == OPEN
    with pytest.raises(ConfigError, match=r"algo=a: expected a field with numbers"):
        verdict("falls", pair(LOW, HIGH), {"along": "algo"})


def test_gains() -> None:
    def runs(gains: dict[float, float]) -> list[Any]:
        jitter = np.array([0.0, 0.01, -0.02, 0.005])
        return [
            run({"algo.name": algo, "eps": eps}, *(5 - gain * (algo == "a") + jitter * (1 + gain)))
            for eps, gain in gains.items()
            for algo in "ab"
        ]

    terms = {**SIDES, "with": "eps"}
    assert verdict("gain_grows", runs({4.0: 3.0, 1.0: 1.0, 2.0: 2.0}), terms) == YES
    assert verdict("gain_grows", runs({1.0: 3.0, 2.0: 2.0}), terms) == NO
    assert verdict("gain_grows", runs({1.0: 1.0, 2.0: 0.0, 4.0: 3.0}), terms) == NO
    assert verdict("gain_grows", runs({1.0: 1.0}), terms) == OPEN
    values = {("a", 1): 4, ("b", 1): 5, ("a", 2): 3, ("b", 2): 5}
    plans = [facts({"v": v}, eps=eps, **{"algo.name": algo}) for (algo, eps), v in values.items()]
    assert verdict("gain_grows", plans, terms, y="plan.v") == YES  # exact: no seeds needed
    assert verdict("gain_grows", plans, {"of": B, "than": A, "with": "eps"}, y="plan.v") == NO


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({"most": 1.5}, YES),
        ({"most": 0.5}, NO),
        ({"most": 1.01}, OPEN),
        ({"least": 0.5}, YES),
        ({"least": 1.5}, NO),
        ({"least": 1.01}, OPEN),
        ({"least": 0.5, "most": 1.5}, YES),
        ({"least": 1.5, "most": 2.5}, NO),
        ({"least": 0.5, "most": 0.7}, NO),
        ({"least": 0.5, "most": 1.01}, OPEN),
    ],
)
def test_reaches(terms: dict[str, float], expected: str) -> None:
    assert verdict("reaches", [run({}, *LOW)], terms) == expected


def test_a_bound_is_reached_by_an_equal_number() -> None:
    plan = [facts({"rounds": 50})]
    assert verdict("reaches", plan, {"most": 50}, y="plan.rounds") == YES
    assert verdict("reaches", plan, {"least": 50}, y="plan.rounds") == YES
    assert verdict("reaches", plan, {"most": 49}, y="plan.rounds") == NO
    assert verdict("reaches", [lost()], {"most": 1e300}) == NO
    assert verdict("reaches", [lost()], {"least": 0}, better="most") == NO
    assert verdict("reaches", [run({}, 1.0, 1.0)], {"most": 5}) == OPEN


@pytest.mark.parametrize(
    ("ours", "to", "digits", "expected"),
    [
        (49.2, 49, 0, YES),
        (49.6, 49, 0, NO),
        (0.125, 0.13, 2, YES),  # a half may be printed either way
        (0.125, 0.12, 2, YES),
        (0.1251, 0.12, 2, NO),
        (2.5, 3, 0, YES),
        (math.inf, math.inf, 1, YES),
        (math.inf, 3, 1, NO),
        (None, 3, 1, OPEN),  # there is no number
        (3.0, "plan.other", 1, YES),
        (3.2, "plan.other", 1, NO),
        (3.2, "plan.nothing", 1, OPEN),
    ],
)
def test_equal(ours: float | None, to: Any, digits: int, expected: str) -> None:
    plan = [facts({"T": ours, "other": 3.04, "nothing": None})]
    assert verdict("equal", plan, {"to": to, "digits": digits}, y="plan.T") == expected


# --- groups ---


def in_groups(*verdicts: str) -> list[Any]:
    values = {YES: (LOW, HIGH), NO: (HIGH, LOW), OPEN: (LOW, (0.5, 1.9, 0.1, 2.0))}
    return [r for eps, word in enumerate(verdicts) for r in pair(*values[word], eps=eps)]


@pytest.mark.parametrize(
    ("groups", "wanted", "expected"),
    [
        ((YES, YES, YES), None, YES),
        ((YES, NO, YES), None, NO),
        ((YES, OPEN, YES), None, OPEN),
        ((NO, OPEN, YES), None, NO),
        ((YES, NO, YES), "most", YES),
        ((YES, NO, NO), "most", NO),
        ((YES, NO, OPEN), "most", OPEN),
        ((YES, NO), "most", NO),  # one of two is not most
        ((YES, NO, NO, NO), 1, YES),
        ((NO, OPEN, NO), 1, OPEN),
        ((YES, YES), 3, OPEN),  # the third is not here
        ((NO, NO), 3, OPEN),
    ],
)
def test_in_each_in_most_or_in_some_groups(groups: tuple[str, ...], wanted: Any, expected: str) -> None:
    found = outcome("better", in_groups(*groups), SIDES, each=["eps"], wanted=wanted)
    assert found.verdict == expected
    assert f"holds in {groups.count(YES)} of {len(groups)}" in found.evidence


def test_a_group_that_lacks_a_side_is_open() -> None:
    runs = [*in_groups(YES, YES), run({"algo.name": "a", "eps": 9}, *LOW)]
    found = outcome("better", runs, SIDES, each=["eps"])
    assert found.verdict == OPEN
    assert "eps 9: no run has algo b" in found.evidence


def test_where_and_no_run_at_all() -> None:
    runs = in_groups(YES, NO)
    assert verdict("better", runs, SIDES, where={"eps": 0}) == YES
    assert verdict("better", runs, SIDES, where={"eps": 1}) == NO
    assert outcome("better", runs, SIDES, where={"eps": 7}).evidence == "no finished run"
