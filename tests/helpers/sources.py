"""Finished runs that lie in no folder: made of settings and of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfl_bench.results.select.intervals import Key
from dpfl_bench.results.select.sources import Facts, Run

_numbers = itertools.count()
BASE: dict[str, Any] = {"algo.name": "dp_fedavg", "eps": 2.0, "lr": 0.1, "local_steps": 1, "seed": 0}


def run(
    settings: Mapping[str, Any] | None = None,
    *values: float,
    sweep: str = "main",
    rows: Mapping[str, Sequence[float]] | None = None,
    diverged: Mapping[str, int] | None = None,
    **result: Any,
) -> Run:
    """A run of as many seeds as there are values: `y` of each at its one evaluated round. rows:
    all of metrics.csv instead, by column.
    """
    told = {**BASE, **(settings or {})}
    first = int(told["seed"])
    seeds = list(range(first, first + len(values)))
    if rows is None:
        rows = {"seed": seeds, "round": [10] * len(seeds), "y": list(values)}
    else:
        seeds = result.pop("seeds", sorted({int(seed) for seed in rows["seed"]}))
    told["repeats"] = len(seeds)
    record = {"status": "diverged" if diverged else "done", "seeds": seeds, "diverged": diverged, **result}
    made = Run(sweep, Path(f"run{next(_numbers)}"), record)
    made.__dict__["text"] = {key: _yaml(value) for key, value in told.items()}
    lines = list(zip(*rows.values(), strict=True))
    made.__dict__["rounds"] = np.array(lines, dtype=[(name, float) for name in rows])
    return made


def lost(settings: Mapping[str, Any] | None = None, seeds: int = 3, **more: Any) -> Run:
    """A run that diverged before its first evaluation."""
    return run(settings, *[np.nan] * seeds, diverged={"seed": 0, "round": 1}, **more)


def facts(numbers: Mapping[str, Any], prefix: str = "plan", sweep: str = "main", **settings: Any) -> Facts:
    """A plan, or a deal of records."""
    return Facts(sweep, prefix, {**BASE, **settings}, numbers)


def grid(values: Mapping[Any, Sequence[float]], field: str, **settings: Any) -> list[Run]:
    """A run for each value of a field."""
    return [run({**settings, field: at}, *seeds) for at, seeds in values.items()]


def keyed(*values: float, split: Any = None) -> dict[Key, float]:
    """Values by (split, seed)."""
    return {(split, seed): value for seed, value in enumerate(values)}


def share(test: Callable[[np.random.Generator], bool], times: int, seed: int = 0) -> float:
    """How often it is true."""
    return sum(test(np.random.default_rng((seed, number))) for number in range(times)) / times


def _yaml(value: Any) -> str:
    return {"inf": ".inf", "True": "true", "False": "false", "None": "null"}.get(str(value), str(value))
