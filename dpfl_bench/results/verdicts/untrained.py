"""The trivial baseline: how many points are better than the initial model, which nobody trained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfl_bench.results.select import budgets
from dpfl_bench.results.select.cells import SEEDS
from dpfl_bench.results.select.expressions import parse
from dpfl_bench.results.select.intervals import Key, of_difference
from dpfl_bench.results.select.sources import Run, Source

QUANTITIES = ("test_error", "train_loss")  # the first of them that is known
NOTHING = "nothing is learnt here: no private run is better than the initial model"


def compared(sources: Iterable[Source]) -> list[dict[str, Any]]:
    """One entry for each data set and quantity: the initial model's least and largest value over
    the points, how many private points there are, and how many end better, paired over seeds.
    """
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for runs in _points(sources):
        quantity, start = _start(runs)
        if quantity is None:
            continue
        end = {key: value for run in runs for key, value in run.by_seed(parse(quantity), 1).items()}
        mean = math.fsum(start.values()) / len(start)
        of = (runs[0].field("dataset"), quantity)
        entry = entries.setdefault(of, {"initial": [mean, mean], "points": 0, "better": 0})
        low, high = entry["initial"]
        entry["initial"] = [min(low, mean), max(high, mean)]
        entry["points"] += 1
        entry["better"] += of_difference(end, start).high < 0
    return [
        {"dataset": dataset, "quantity": quantity, **entry} for (dataset, quantity), entry in entries.items()
    ]


def nothing_learnt(sources: Iterable[Source]) -> bool:
    """Whether there are private points, and none is better than the initial model."""
    entries = compared(sources)
    return bool(entries) and not any(entry["better"] for entry in entries)


def told(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{each['better']} of {each['points']} points are better than the initial model"
        f" ({each['dataset']}: {each['quantity'].replace('_', ' ')} {budgets.told(tuple(each['initial']))})"
        for each in entries
    ]


def _points(sources: Iterable[Source]) -> list[list[Run]]:
    """The private runs; those of a point differ in seeds and splits alone."""
    points: dict[str, dict[Path, Run]] = {}
    for run in sources:
        if isinstance(run, Run) and budgets.of_source(run)[0] < math.inf:
            settings = {key: value for key, value in run.asked.items() if key not in SEEDS}
            points.setdefault(str(sorted(settings.items())), {})[run.path] = run
    return [list(runs.values()) for runs in points.values()]


def _start(runs: Sequence[Run]) -> tuple[str | None, dict[Key, float]]:
    """The quantity, and its value before the first round; None where no file has that."""
    for quantity in QUANTITIES:
        values: dict[Key, float] = {}
        for run in runs:
            seeds, rounds, column = run.over_rounds(parse(quantity))
            known = zip(seeds.tolist(), rounds.tolist(), column.tolist(), strict=True)
            values |= {(run.split, int(seed)): value for seed, number, value in known if number == 0}
        if values and all(map(math.isfinite, values.values())):
            return quantity, values
    return None, {}
