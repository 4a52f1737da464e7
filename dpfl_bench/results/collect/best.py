"""From points to the optimal-(E, T) table: the best point of each kind."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from dpfl_bench.results.collect.points import KEYS, PROBLEM, Row
from dpfl_bench.results.folder import MEASURES

# settings that other columns tell, or that choose no hyper-parameter
IN_OTHER_COLUMNS = {
    *(
        "eps",
        "delta",
        "local_steps",
        "rounds",
        "total_steps",
        "local_epochs",
        "total_epochs",
        "lr",
        "seed",
        "repeats",
        "eval_every",
        "eval_last",
        "evaluate",
        "measure",
        "measured_client",
    ),
    *PROBLEM,
    *(
        f"privacy.{key}"
        for key in (
            "name",
            "unit",
            "trust",
            "neighbours",
            "observer",
            "colluding",
            "mechanism",
            "accountant",
            "clip",
        )
    ),
    *("algo.name", "default_local_steps", "default_total_steps", "stop_at_eps"),
}


NOMINAL = ("nominal_eps", "nominal_how", "valid_eps")


def sign(by: str) -> int:
    """-1 where the greatest is best: of scores."""
    return -1 if by.endswith("_metric") else 1


def groups(points: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """What may be compared, in the order of the table: no privacy first, then the largest
    budget.
    """

    def key(point: Row) -> tuple[Any, ...]:
        return tuple(-point[k] if k == "budget" else point[k] for k in KEYS)

    grouped = groupby(sorted(points, key=key), key=lambda point: tuple(point[k] for k in KEYS))
    return {group: list(members) for group, members in grouped}


def placed(bad: Iterable[Row], points: Iterable[Row]) -> list[Row]:
    """Points without an error, in the groups that they would have stood in.

    The eps of a run that ended early is that of the rounds it played, less than its point was to
    cost. It then belongs to whatever points of that kind were asked for the same eps: to several
    groups, if noise was given and not solved for.
    """
    grouped = groups(points)
    moved = []
    for point in bad:
        own = tuple(point[key] for key in KEYS)
        dearer = [
            group
            for group in grouped
            if group[:-1] == own[:-1] and group[-1] > own[-1] and own not in grouped
        ]
        asked = [
            group
            for group in dearer
            if any(other["eps_target"] == point["eps_target"] for other in grouped[group])
        ]
        moved += [{**point, "budget": group[-1]} for group in asked] or [point]
    return moved


@dataclass(frozen=True)
class Table:
    rows: list[Row]
    swept: list[str]  # the columns of hyper-parameters in which points differ, beside local steps and rounds
    by: str = MEASURES[0]  # what the best is least in (a score: greatest)
    last: str = "1"  # of which rounds at the end it is the mean


def optimal(points: Sequence[Row], settings: Iterable[str], by: str = MEASURES[0]) -> Table:
    """Per group the point with the least mean of `by` (of equals, the fewest local steps), and its
    gap to the best without privacy.

    `settings`: columns that may have been swept. `as_good`: the local steps, of those that were
    `tried`, whose best point is no worse than the seeds can tell; None where a point has one seed,
    which tells nothing. `varied`: in which settings the points of this row differ.
    """
    extra = [
        key
        for key in settings
        if key not in IN_OTHER_COLUMNS and key.partition(".")[0] not in ("dataset", "model", "partition")
    ]
    errors = (f"{by}_mean", f"{by}_std", "n_seeds", "eps", "run_ids", *NOMINAL)
    order, mean = partial(_order, by=by), f"{by}_mean"
    grouped = groups(points)
    varied = {
        group: [key for key in ("clip", "lr", *extra) if len({p.get(key) for p in members}) > 1]
        for group, members in grouped.items()
    }
    swept = [key for key in ("clip", "lr", *extra) if any(key in own for own in varied.values())]
    columns = dict.fromkeys(["eps_target", "local_steps", "rounds", "total_steps", "clip", "lr", *swept])
    best = {group: min(members, key=order) for group, members in grouped.items()}
    free = {group[:4]: point[mean] for group, point in best.items() if group[-1] == math.inf}
    table = []
    for group, point in best.items():
        row = {
            **dict(zip(KEYS, group, strict=True)),
            **{key: point.get(key) for key in (*columns, *errors)},
            "varied": varied[group],
        }
        valid = [p["valid_eps"] for p in grouped[group] if p.get("valid_eps") is not None]
        row["valid_eps_range"] = [min(valid), max(valid)] if valid else None
        by_steps = {other["local_steps"]: other for other in sorted(grouped[group], key=order, reverse=True)}
        row["tried"] = sorted(by_steps)
        known = all(other["n_seeds"] > 1 for other in by_steps.values())
        row["as_good"] = (
            [steps for steps in row["tried"] if not _differ(point, by_steps[steps], by)] if known else None
        )
        table.append(
            {**row, "gap": point[mean] - _without_privacy(free, group), "points": len(grouped[group])}
        )
    return Table(table, swept, by)


def _differ(best: Row, other: Row, by: str) -> bool:
    """By more than the standard error of the difference of their means: over the splits that both
    saw, which are hard for both or easy for both; of one split, over seeds.
    """
    mine, theirs = best["split_means"], other["split_means"]
    differences = [theirs[split] - mine[split] for split in mine if split in theirs]
    if len(differences) > 1:
        error = statistics.stdev(differences) / math.sqrt(len(differences))
    else:
        error = math.hypot(*(point[f"{by}_std"] / math.sqrt(point["n_seeds"]) for point in (best, other)))
    return bool(sign(by) * (other[f"{by}_mean"] - best[f"{by}_mean"]) > error + 1e-12)


def _without_privacy(free: Mapping[tuple[Any, ...], float], group: tuple[Any, ...]) -> float:
    """The error at eps=inf. NaN where that was not run."""
    return next((free[key] for key in baselines(group) if key in free), math.nan)


def baselines(group: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The first keys of the rows without privacy that a row of the table may stand beside: of the
    same settings that are kept apart, or of none, if those are of privacy alone.
    """
    dataset, setting, algo, apart = group[:4]
    return [(dataset, setting, name, kept) for kept in (apart, "") for name in alike(algo)]


def alike(algo: str) -> tuple[str, ...]:
    """The names of an algorithm without privacy, its own first: `dp_fedavg` at eps=inf is `fedavg`,
    to the bit.
    """
    return algo, algo.removeprefix("dp_"), f"dp_{algo}"


def _order(point: Row, by: str) -> tuple[Any, ...]:
    """Errors are fractions of a test set: what differs by rounding is equal, and then the fewest
    local steps count.
    """
    ties = [str(point.get(key)) for key in ("clip", "lr", "run_ids")]  # a clip may be a word
    return round(sign(by) * point[f"{by}_mean"], 12), point["local_steps"], *ties


def best_by_steps(points: Iterable[Row], by: str = MEASURES[0]) -> list[Row]:
    """For each algorithm, budget and number of local steps the best point over whatever else was
    swept: what the U-curves show.
    """
    best: dict[tuple[Any, ...], Row] = {}
    for point in sorted(points, key=partial(_order, by=by), reverse=True):
        best[point["algo"], point.get("apart", ""), point["budget"], point["local_steps"]] = point
    return list(best.values())
