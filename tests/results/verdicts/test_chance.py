"""How often a statement that is not true holds by chance: not more than 2.5 % of the time (one side
of a 95 % interval), up to four standard errors of the simulation. And how often a true one does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from helpers.sources import grid, run
from helpers.statements import NO, OPEN, YES, shares

pytestmark = pytest.mark.one_in(4)
TIMES = 600
BOUND = 0.025 + 4 * math.sqrt(0.025 * 0.975 / TIMES)
Make = Callable[[np.random.Generator], Sequence[Any]]
STEPS = [1, 2, 4, 8, 16, 32, 64, 128]
SIDES: dict[str, Any] = {"of": {"algo": "a"}, "than": {"algo": "b"}}
ALONG: dict[str, Any] = {"along": "local_steps"}
FITS: dict[str, Any] = {"x": "local_steps", "forms": {"linear": 1, "root": 0.5}, "for": "linear"}


def two(gap: float, seeds: int) -> Make:
    """Pairs that share most of their luck."""

    def make(rng: np.random.Generator) -> Sequence[Any]:
        shared = rng.normal(0, 3, seeds)
        a, b = (shared + rng.normal(mean, 1, seeds) for mean in (0, gap))
        return [run({"algo.name": "a"}, *a), run({"algo.name": "b"}, *b)]

    return make


def curve(seeds: int, mean: Callable[[int], float] = lambda k: 0.0, noise: float = 1.0) -> Make:
    return lambda rng: grid({k: tuple(rng.normal(mean(k), noise, seeds)) for k in STEPS}, "local_steps")


def curves(seeds: int, places: Sequence[float], depth: float) -> Make:
    """A valley for each eps; of no depth they are flat."""

    def make(rng: np.random.Generator) -> Sequence[Any]:
        return [
            run({"local_steps": k, "eps": eps}, *rng.normal(depth * math.log(k / place) ** 2, 1, seeds))
            for eps, place in enumerate(places, start=1)
            for k in STEPS
        ]

    return make


def sides(seeds: int, gains: Sequence[float]) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Any]:
        return [
            run({"algo.name": algo, "eps": eps}, *rng.normal(-gain * (algo == "a"), 1, seeds))
            for eps, gain in enumerate(gains)
            for algo in "ab"
        ]

    return make


MOVES: dict[str, Any] = {**ALONG, "with": "eps"}
# name -> what is drawn, of which the statement is false or at its edge
NULLS: dict[str, tuple[str, Make, dict[str, Any]]] = {
    "equal, 3 seeds": ("better", two(0, 3), SIDES),
    "equal, 8 seeds": ("better", two(0, 8), SIDES),
    "just by the margin": ("better", two(2, 5), {**SIDES, "by_at_least": 2}),
    "unlike by just so much": ("alike", two(5, 8), {**SIDES, "within": 5}),
    "equal, ordered": ("ordered", curve(4), {**ALONG, "order": STEPS[:3]}),
    "flat, falls": ("falls", curve(4), ALONG),
    "flat, rises": ("rises", curve(4), ALONG),
    "gain the same": ("gain_grows", sides(4, [1, 1, 1]), {**SIDES, "with": "eps"}),
    "just at the bound": ("reaches", curve(4), {"of": {"local_steps": 1}, "most": 0}),
    "flat, interior": ("interior", curve(3), ALONG),
    "flat, 10 seeds": ("interior", curve(10), ALONG),
    "a plateau to the end": ("interior", curve(3, lambda k: 20.0 * (k == 1)), ALONG),
    "a plateau, 6 seeds": ("interior", curve(6, lambda k: 20.0 * (k == 1)), ALONG),
    "flat, best at": ("best_at", curve(3), {**ALONG, "at": 8}),
    "as good far away": ("best_at", curve(3, lambda k: 20.0 * (k not in (8, 64))), {**ALONG, "at": 8}),
    "flat, moves": ("best_moves", curves(4, [1, 1], 0), {**MOVES, "direction": "up"}),
    "one known, one flat": ("best_moves", curves(4, [1, 1, 1], 0), {**MOVES, "direction": "down"}),
    "same valley": ("best_moves", curves(4, [8, 8], 0.3), {**MOVES, "direction": "up"}),
    "flat, same": ("best_moves", curves(4, [1, 1], 0), {**MOVES, "direction": "same"}),
    "noise fits": ("fits", curve(4), FITS),
}


@pytest.mark.parametrize("name", NULLS)
def test_what_is_not_true_does_not_hold(name: str) -> None:
    kind, make, terms = NULLS[name]
    assert shares(kind, make, TIMES, terms)[YES] <= BOUND


# at the edge, where the statement is true and a test could refute it by chance
EDGES: dict[str, tuple[str, Make, dict[str, Any]]] = {
    "equal": ("better", two(0, 4), SIDES),
    "flat, interior": ("interior", curve(4), ALONG),
    "flat, best at": ("best_at", curve(4), {**ALONG, "at": 8}),
    "flat, moves": ("best_moves", curves(4, [1, 1, 1], 0), {**MOVES, "direction": "up"}),
    "same valley": ("best_moves", curves(4, [8, 8, 8], 0.3), {**MOVES, "direction": "same"}),
    "noise fits": ("fits", curve(4), FITS),
}


@pytest.mark.parametrize("name", EDGES)
def test_what_the_seeds_cannot_tell_is_not_refuted(name: str) -> None:
    kind, make, terms = EDGES[name]
    assert shares(kind, make, TIMES, terms)[NO] <= BOUND


VALLEY = 1.0  # depth, in standard deviations
TRUE: dict[str, tuple[str, Make, dict[str, Any]]] = {
    "better": ("better", two(6, 5), SIDES),
    "alike": ("alike", two(0, 8), {**SIDES, "within": 5}),
    "interior": ("interior", curve(5, lambda k: VALLEY * math.log(k / 8) ** 2), ALONG),
    "best at": ("best_at", curve(5, lambda k: 3 * VALLEY * math.log(k / 8) ** 2), {**ALONG, "at": 8}),
    "moves": ("best_moves", curves(5, [2, 32], VALLEY), {**MOVES, "direction": "up"}),
    "same": ("best_moves", curves(5, [8, 8], 5 * VALLEY), {**MOVES, "direction": "same"}),
    "fits": ("fits", curve(5, lambda k: k / 4.0), FITS),
}


@pytest.mark.parametrize("name", TRUE)
def test_what_is_true_and_clear_holds(name: str) -> None:
    """A control: a test that never holds would pass all of the above."""
    kind, make, terms = TRUE[name]
    found = shares(kind, make, 150, terms)
    assert found[YES] > 0.5
    assert found[NO] <= BOUND
    assert found[OPEN] < 0.5


@pytest.mark.parametrize("options", [(1, 1), (8, 8)])
def test_tuned_alike_two_equal_things_are_equal(options: tuple[int, int]) -> None:
    def make(rng: np.random.Generator) -> Sequence[Any]:
        return [
            run({"algo.name": algo, "lr": lr}, *rng.normal(0, 1, 4))
            for algo, count in zip("ab", options, strict=True)
            for lr in range(count)
        ]

    assert shares("better", make, TIMES, SIDES, best_over=("lr",))[YES] <= BOUND
