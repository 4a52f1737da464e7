"""Statements about where the best lies, and about forms: true, false and open ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from helpers.sources import facts, grid, lost, run
from helpers.statements import NO, OPEN, YES, outcome, verdict

from dpfl_bench.checks.errors import ConfigError

JITTER = np.array([0.0, 0.02, -0.02, 0.01])
STEPS = [1, 2, 5, 10, 20, 50]


def curve(mean: Callable[[float], float], at: Any = STEPS, **settings: Any) -> list[Any]:
    """Four seeds that agree up to a little."""
    rng = np.random.default_rng(1)
    return grid({k: tuple(mean(k) + rng.permutation(JITTER)) for k in at}, "local_steps", **settings)


def plans(values: Mapping[float, float], **settings: Any) -> list[Any]:
    return [facts({"v": value}, local_steps=k, **settings) for k, value in values.items()]


def valley(place: float) -> Callable[[float], float]:
    return lambda k: math.log(k / place) ** 2


ALONG = {"along": "local_steps"}


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        (valley(5), YES),
        (valley(2), YES),
        (lambda k: k, NO),
        (lambda k: -k, NO),
        (lambda k: 0.0 * k, OPEN),
        (lambda k: min(k, 5), NO),
        (lambda k: max(1 - k / 5, 0), OPEN),  # it may go on to be best at the end
    ],
)
def test_interior(mean: Callable[[float], float], expected: str) -> None:
    runs = curve(mean)
    assert verdict("interior", runs, ALONG) == expected
    assert verdict("interior", curve(lambda k: -mean(k)), ALONG, better="most") == expected
    shuffled = [runs[k] for k in (3, 0, 5, 1, 4, 2)]
    assert verdict("interior", shuffled, ALONG) == expected
    assert verdict("interior", [run({"local_steps": k}, mean(k), mean(k)) for k in STEPS], ALONG) == OPEN


def test_interior_of_exact_numbers_of_two_values_and_of_what_diverged() -> None:
    assert verdict("interior", plans({1: 3, 2: 1, 4: 2}), ALONG, y="plan.v") == YES
    assert verdict("interior", plans({1: 1, 2: 2, 4: 3}), ALONG, y="plan.v") == NO
    assert verdict("interior", plans({1: 1, 2: 1, 4: 1}), ALONG, y="plan.v") == OPEN
    assert verdict("interior", curve(valley(5), [1, 5]), ALONG) == OPEN
    ends = [lost({"local_steps": 1}, seeds=4), *curve(valley(5), [5]), lost({"local_steps": 50}, seeds=4)]
    assert verdict("interior", ends, ALONG) == YES
    assert verdict("interior", [lost({"local_steps": k}) for k in STEPS], ALONG) == OPEN


@pytest.mark.parametrize(
    ("mean", "at", "within", "expected"),
    [
        (valley(5), 5, "one", YES),
        (valley(5), 9, "one", YES),  # 5 is a step from 10
        (valley(5), 20, "one", NO),
        (valley(5), 1, "one", NO),
        (valley(5), 5.4, "10%", YES),
        (valley(5), 7, "10%", OPEN),  # nothing on the grid is within 10 % of 7
        (valley(5), 10, "10%", NO),
        (lambda k: k, 1, "one", YES),
        (lambda k: k, 0.2, "one", OPEN),  # the grid ends before
        (lambda k: -k, 500, "one", OPEN),
        (lambda k: 0.0 * k, 5, "one", OPEN),
        (lambda k: 0.0 * k, 50, "one", OPEN),
    ],
)
def test_best_at(mean: Callable[[float], float], at: float, within: str, expected: str) -> None:
    terms = {**ALONG, "at": at, "within": within}
    assert verdict("best_at", curve(mean), terms) == expected
    assert verdict("best_at", curve(lambda k: -mean(k)), terms, better="most") == expected


def test_best_at_a_quantity_of_the_runs() -> None:
    runs = curve(valley(5))
    for each in runs:
        each.result["theory"] = {"p_star": 4.5, "none": None}  # type: ignore[index]
    assert verdict("best_at", runs, {**ALONG, "at": "result.theory.p_star"}) == YES
    assert verdict("best_at", runs, {**ALONG, "at": "10 * result.theory.p_star"}) == NO
    found = outcome("best_at", runs, {**ALONG, "at": "result.theory.none"})
    assert found.verdict == OPEN
    assert "no run has a positive number for result.theory.none" in found.evidence


def test_best_at_a_grid_that_cannot_tell() -> None:
    assert verdict("best_at", curve(valley(2), [1, 2, 5]), {**ALONG, "at": 2}) == OPEN  # all are near
    assert verdict("best_at", curve(lambda k: -k, [0, 1, 2]), {**ALONG, "at": 2}) == YES  # 0 has no logarithm
    with pytest.raises(ConfigError, match="algo=dp_fedavg: expected a field with numbers"):
        verdict("best_at", [run({}, 1.0), run({"algo.name": "b"}, 1.0)], {"along": "algo", "at": 1})


def families(places: Mapping[float, float], depth: float = 1.0) -> list[Any]:
    return [
        r for eps, place in places.items() for r in curve(lambda k, p=place: depth * valley(p)(k), eps=eps)
    ]


@pytest.mark.parametrize(
    ("places", "up", "down", "same"),
    [
        ({1: 2, 2: 5, 4: 10}, YES, NO, NO),
        ({1: 10, 2: 5, 4: 2}, NO, YES, NO),
        ({1: 5, 2: 5, 4: 5}, OPEN, OPEN, YES),
        ({1: 5, 2: 5, 4: 10}, YES, NO, NO),
        ({1: 5, 2: 10, 4: 5}, NO, NO, NO),
        ({4: 2, 1: 10}, NO, YES, NO),
        ({1: 5}, OPEN, OPEN, OPEN),
        ({1: 1, 2: 1, 4: 1}, OPEN, OPEN, OPEN),  # at the end of the grid in all: it may lie beyond
    ],
)
def test_best_moves(places: Mapping[float, float], up: str, down: str, same: str) -> None:
    for direction, expected in (("up", up), ("down", down), ("same", same)):
        terms = {**ALONG, "with": "eps", "direction": direction}
        assert verdict("best_moves", families(places), terms) == expected, direction
        if len(places) > 1 and direction != "same":
            shallow = families(places, depth=0.01)
            assert verdict("best_moves", shallow, terms) == OPEN, direction


def test_best_moves_of_exact_numbers() -> None:
    runs = [*plans({1: 0, 2: 1, 4: 2, 8: 3}, eps=1), *plans({1: 2, 2: 1, 4: 0, 8: 1}, eps=2)]
    for direction, expected in (("up", YES), ("down", NO), ("same", NO)):
        terms = {**ALONG, "with": "eps", "direction": direction}
        assert verdict("best_moves", runs, terms, y="plan.v") == expected


FORMS = {"x": "local_steps", "forms": {"linear": 1, "root": 0.5, "inverse": -1}}


@pytest.mark.parametrize("power", [1, 0.5, -1])
def test_fits(power: float) -> None:
    runs = curve(lambda k: 3 * float(k) ** power + 1)
    for name, own in FORMS["forms"].items():  # type: ignore[attr-defined]
        assert verdict("fits", runs, {**FORMS, "for": name}) == (YES if own == power else NO)
    found = outcome("fits", runs, {**FORMS, "for": "linear"}).evidence
    assert all(f"{name}" in found for name in ("linear", "root", "inverse"))
    exact = plans({k: 3 * float(k) ** power for k in STEPS})
    assert verdict("fits", exact, {**FORMS, "for": "root"}, y="plan.v") == (YES if power == 0.5 else NO)


def test_fits_of_noise_of_few_points_and_of_what_diverged() -> None:
    rng = np.random.default_rng(3)
    noise = grid({k: tuple(rng.normal(0, 1, 4)) for k in STEPS}, "local_steps")
    assert verdict("fits", noise, {**FORMS, "for": "linear"}) == OPEN
    assert verdict("fits", curve(float, [1, 2]), {**FORMS, "for": "linear"}) == OPEN
    assert verdict("fits", plans(dict.fromkeys(STEPS, 1.0)), {**FORMS, "for": "linear"}, y="plan.v") == OPEN
    broken = [*curve(float), lost({"local_steps": 100}, seeds=4)]
    assert verdict("fits", broken, {**FORMS, "for": "linear"}) == OPEN
    assert verdict("fits", curve(float, [0, 1, 2, 3]), {**FORMS, "for": "inverse"}) == OPEN  # 1 / 0


def test_r_squared_against_polyfit() -> None:
    rng = np.random.default_rng(4)
    y = rng.normal(0, 1, (3, len(STEPS))) + np.array(STEPS) / 10
    runs = grid({k: tuple(y[:, i]) for i, k in enumerate(STEPS)}, "local_steps")
    said = outcome("fits", runs, {**FORMS, "for": "root"}).evidence
    x = np.array(STEPS) ** 0.5
    shares = [1 - np.polyfit(x, row, 1, full=True)[1][0] / ((row - row.mean()) ** 2).sum() for row in y]
    assert f"R^2 {np.mean(shares):.3f} root" in said
