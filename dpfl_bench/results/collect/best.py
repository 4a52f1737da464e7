"""From runs to the optimal-(E, T) table: what may be compared, what is a point over several seeds,
and the best point of each kind.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from dpfl_bench.results.folder import MEASURES
from dpfl_bench.results.summary import whole_or_part

KEYS = ("dataset", "setting", "algo", "guarantee", "budget")  # what may stand in one row or line
SPLIT = ("dataset.seed", "partition.seed")  # who holds which record, and which are held back for tests
PROBLEM = ("clients", "sampled_clients")  # and all of dataset.*, model.*, partition.*
# settings that other columns tell, or that choose no hyper-parameter
TOLD = {
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
Row = dict[str, Any]


def compared(rows: Sequence[Row], differing: Iterable[str]) -> list[Row]:
    """Each row with what may be compared: the same problem (`setting`), the same guarantee, the
    same eps (`budget`).

    A part of a data set is another data set. `budget` is the eps that was asked for where the noise
    was solved for it, and the eps that the run really has elsewhere.
    """
    return [
        {**row, **_guarantee(row), "setting": setting}
        for row, setting in zip(rows, _settings(rows, differing), strict=True)
    ]


def _guarantee(row: Row) -> Row:
    asked = row["eps_target"]
    real = asked if row.get("eps") is None else row["eps"]
    words = [row.get(key) for key in ("unit", "trust", "neighbours", "observer")]
    words.append(f"{row['colluding']} colluding" if row.get("colluding") else None)
    words.append(f"delta {row.get('delta')}")
    words.append("PrivUnit" if row.get("mechanism") == "privunit" else None)
    words.append("drifting controls" if row.get("memory") and row.get("trust") == "central" else None)
    words.append("the paper's own accountant, no guarantee" if row.get("accountant") == "paper" else None)
    words.append("not fully accounted" if row.get("fully_accounted") is False else None)
    guarantee = ", ".join(str(w) for w in words if w) if real != math.inf else ""
    algo = f"{row['algo']} (naive step)" if row.get("naive") else row["algo"]
    return {
        "dataset": whole_or_part(row),
        "algo": algo,
        "budget": asked if 0.99 * asked <= real <= asked else real,
        "guarantee": guarantee,
    }


def _settings(rows: Sequence[Row], differing: Iterable[str]) -> list[str]:
    """The problem in words: model, clients, and whatever else of data set, model or partition
    differs between runs on such a problem.
    """
    untold = ("dataset.name", *SPLIT)
    keys = [
        key
        for key in differing
        if key.partition(".")[0] in ("dataset", "model", "partition") and key not in untold
    ]

    def kind(row: Row) -> tuple[Any, ...]:
        return row["dataset"], row.get("model"), row.get("partition.name")

    values: dict[tuple[Any, ...], set[Any]] = {}
    for row in rows:
        values.setdefault((row["dataset"], "partition.name"), set()).add(row.get("partition.name"))
        for key in keys:
            values.setdefault((*kind(row), key), set()).add(row.get(key))
    settings = []
    for row in rows:
        words = [f"{key} {row[key]}" for key in ("model", *PROBLEM) if row.get(key) is not None]
        words += (
            [f"partition {row['partition.name']}"]
            if len(values[row["dataset"], "partition.name"]) > 1
            else []
        )
        words += [
            f"{key} {row.get(key)}"
            for key in keys
            if len(values[*kind(row), key]) > 1 and key != "model.name"
        ]
        settings.append(", ".join(words))
    return settings


def pooled(rows: Sequence[Row], by: str = MEASURES[0]) -> tuple[list[Row], list[Row]]:
    """Points: runs that differ in their seeds alone are one, with mean and standard deviation of
    `by` over all seeds.

    A seed counts once on a split: of runs that share seeds, the one with more of them. Runs on a
    part of the data are no repeats of others. A point of which a run diverged has no error; such
    points come second.
    """
    points: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        points.setdefault((row.get("point_id") or row["run_id"], row.get("subset")), []).append(row)
    good = [
        all(run["status"] == "done" and _is_number(run.get(f"{by}_mean")) for run in runs)
        for runs in points.values()
    ]
    bad = [_of_all(runs) for runs, is_good in zip(points.values(), good, strict=True) if not is_good]
    return [_point(runs, by) for runs, is_good in zip(points.values(), good, strict=True) if is_good], bad


def _of_all(runs: list[Row]) -> Row:
    worst = {
        key: max(run[key] for run in runs)
        for key in ("rounds", "budget", "eps")
        if runs[0].get(key) is not None
    }
    return {**runs[0], **worst, "run_ids": [run["run_id"] for run in runs]}


def _point(runs: list[Row], by: str) -> Row:
    counted: list[Row] = []
    drawn: set[tuple[Any, Any]] = set()
    for run in sorted(runs, key=lambda run: (-len(_seeds(run)), min(_seeds(run)), run["run_id"])):
        own = {(_split(run), seed) for seed in _seeds(run)}
        if not drawn & own:
            counted.append(run)
            drawn |= own
    mean, std = _moments(counted, by)
    splits = dict.fromkeys(map(_split, counted))
    means = {split: _moments([run for run in counted if _split(run) == split], by)[0] for split in splits}
    counts = {
        "n_seeds": len(drawn),
        "n_draws": len({seed for _, seed in drawn}),
        "models": [len(_seeds(run)) for run in counted],
    }
    return {**_of_all(counted), f"{by}_mean": mean, f"{by}_std": std, **counts, "split_means": means}


def _seeds(run: Row) -> list[Any]:
    return run.get("seeds") or [0]


def _split(run: Row) -> tuple[Any, ...]:
    return tuple(run.get(key) for key in SPLIT)


def _moments(runs: list[Row], by: str) -> tuple[float, float]:
    """Mean and standard deviation (n - 1) over all seeds, of those over the seeds of each run."""
    if len(runs) == 1:
        return runs[0][f"{by}_mean"], _std(runs[0], by)
    counts, means = [len(_seeds(run)) for run in runs], [run[f"{by}_mean"] for run in runs]
    mean = math.fsum(n * m for n, m in zip(counts, means, strict=True)) / sum(counts)
    within = math.fsum((n - 1) * _std(run, by) ** 2 for n, run in zip(counts, runs, strict=True))
    between = math.fsum(n * (m - mean) ** 2 for n, m in zip(counts, means, strict=True))
    return mean, math.sqrt((within + between) / (sum(counts) - 1))


def _std(run: Row, by: str) -> float:
    """NaN where a run of several seeds does not tell it."""
    told = run.get(f"{by}_std")
    return float(told) if told is not None else 0.0 if len(_seeds(run)) == 1 else math.nan


def _is_number(value: Any) -> bool:
    return value is not None and not math.isnan(value)


def groups(points: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """What may be compared, in the order of the table: no privacy first, then the largest budget."""

    def key(point: Row) -> tuple[Any, ...]:
        return tuple(-point[k] if k == "budget" else point[k] for k in KEYS)

    found = groupby(sorted(points, key=key), key=lambda point: tuple(point[k] for k in KEYS))
    return {group: list(members) for group, members in found}


def placed(bad: Iterable[Row], points: Iterable[Row]) -> list[Row]:
    """Points without an error, in the groups that they would have stood in.

    The eps of a run that ended early is that of the rounds it played, less than its point was to
    cost. It then belongs to whatever points of that kind were asked for the same eps: to several
    groups, if noise was given and not solved for.
    """
    found = groups(points)
    made = []
    for point in bad:
        own = tuple(point[key] for key in KEYS)
        dearer = [
            group for group in found if group[:-1] == own[:-1] and group[-1] > own[-1] and own not in found
        ]
        asked = [
            group
            for group in dearer
            if any(other["eps_target"] == point["eps_target"] for other in found[group])
        ]
        made += [{**point, "budget": group[-1]} for group in asked] or [point]
    return made


@dataclass(frozen=True)
class Table:
    rows: list[Row]
    swept: list[str]  # the columns of hyper-parameters in which points differ, beside local steps and rounds
    by: str = MEASURES[0]  # what the best is least in


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
        if key not in TOLD and key.partition(".")[0] not in ("dataset", "model", "partition")
    ]
    errors = (f"{by}_mean", f"{by}_std", "n_seeds", "eps", "run_ids")
    order, mean = partial(_order, by=by), f"{by}_mean"
    found = groups(points)
    varied = {
        group: [key for key in ("clip", "lr", *extra) if len({p.get(key) for p in members}) > 1]
        for group, members in found.items()
    }
    swept = [key for key in ("clip", "lr", *extra) if any(key in own for own in varied.values())]
    columns = dict.fromkeys(["eps_target", "local_steps", "rounds", "total_steps", "clip", "lr", *swept])
    best = {group: min(members, key=order) for group, members in found.items()}
    free = {group[:3]: point[mean] for group, point in best.items() if group[-1] == math.inf}
    table = []
    for group, point in best.items():
        row = {
            **dict(zip(KEYS, group, strict=True)),
            **{key: point.get(key) for key in (*columns, *errors)},
            "varied": varied[group],
        }
        by_steps = {other["local_steps"]: other for other in sorted(found[group], key=order, reverse=True)}
        row["tried"] = sorted(by_steps)
        known = all(other["n_seeds"] > 1 for other in by_steps.values())
        row["as_good"] = (
            [steps for steps in row["tried"] if not _told_apart(point, by_steps[steps], by)]
            if known
            else None
        )
        table.append(
            {**row, "gap": point[mean] - _without_privacy(free, *group[:3]), "points": len(found[group])}
        )
    return Table(table, swept, by)


def _told_apart(best: Row, other: Row, by: str) -> bool:
    """By more than the standard error of the difference of their means: over the splits that both
    saw, which are hard for both or easy for both; of one split, over seeds.
    """
    mine, theirs = best["split_means"], other["split_means"]
    differences = [theirs[split] - mine[split] for split in mine if split in theirs]
    if len(differences) > 1:
        error = statistics.stdev(differences) / math.sqrt(len(differences))
    else:
        error = math.hypot(*(point[f"{by}_std"] / math.sqrt(point["n_seeds"]) for point in (best, other)))
    return bool(other[f"{by}_mean"] - best[f"{by}_mean"] > error + 1e-12)


def _without_privacy(free: Mapping[tuple[Any, ...], float], dataset: str, setting: str, algo: str) -> float:
    """The error at eps=inf. NaN where that was not run."""
    return next(
        (free[dataset, setting, name] for name in alike(algo) if (dataset, setting, name) in free), math.nan
    )


def alike(algo: str) -> tuple[str, ...]:
    """The names of an algorithm without privacy, its own first: `dp_fedavg` at eps=inf is `fedavg`,
    to the bit.
    """
    return algo, algo.removeprefix("dp_"), f"dp_{algo}"


def _order(point: Row, by: str) -> tuple[Any, ...]:
    """Errors are fractions of a test set: what differs by rounding is equal, and then the fewest
    local steps count.
    """
    told = [str(point.get(key)) for key in ("clip", "lr", "run_ids")]  # a clip may be a word
    return round(point[f"{by}_mean"], 12), point["local_steps"], *told


def best_by_steps(points: Iterable[Row], by: str = MEASURES[0]) -> list[Row]:
    """For each algorithm, budget and number of local steps the best point over whatever else was
    swept: what the U-curves show.
    """
    best: dict[tuple[Any, ...], Row] = {}
    for point in sorted(points, key=partial(_order, by=by), reverse=True):
        best[point["algo"], point["budget"], point["local_steps"]] = point
    return list(best.values())
