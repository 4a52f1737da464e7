"""From runs to points: what may be compared, and the mean of a point over its seeds and splits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from dpfl_bench.results.folder import MEASURES
from dpfl_bench.results.summary import whole_or_part

KEYS = ("dataset", "setting", "algo", "apart", "guarantee", "budget")  # what may stand in one row or line
SPLIT = ("dataset.seed", "partition.seed")  # who holds which record, and which are held back for tests
PROBLEM = ("clients", "sampled_clients")  # and all of dataset.*, model.*, partition.*
Row = dict[str, Any]


def compared(
    rows: Sequence[Row], differing: Iterable[str], apart: Sequence[str] = (), pooled: Sequence[str] = ()
) -> list[Row]:
    """Each row with what may be compared: the same problem (`setting`), the same guarantee, the
    same eps (`budget`), and the same values of the settings that are kept `apart`.

    A part of a data set is another data set. `budget` is the eps that was asked for: the one that
    noise was solved for, or that a paper states for it; of noise that was given, the eps of the run
    as far as tables print it. pooled: settings that make no other problem.
    """
    differing = [key for key in differing if key not in (*apart, *pooled)]
    return [
        {**row, **_guarantee(row), "setting": setting, "apart": _apart(row, apart)}
        for row, setting in zip(rows, _settings(rows, differing, pooled), strict=True)
    ]


def _apart(row: Row, keys: Sequence[str]) -> str:
    """A run without privacy has no such setting of it, and stands beside all of them."""
    told = ((key, row.get(key, row.get(f"{key}.name"))) for key in keys if key not in KEYS)
    return ", ".join(f"{key} {value}" for key, value in told if value is not None)


def _budget(row: Row) -> float:
    asked, nominal, calibration = row["eps_target"], row.get("nominal_eps"), row.get("calibration")
    real = asked if row.get("eps") is None else row["eps"]
    if nominal is not None and (row.get("accountant") != "paper" or calibration != "exact"):
        return float(f"{nominal:.4g}")
    if calibration == "fixed":
        return float(f"{real:.4g}")
    return float(asked if 0.99 * asked <= real <= asked else real)


def _guarantee(row: Row) -> Row:
    asked = row["eps_target"]
    real = asked if row.get("eps") is None else row["eps"]
    words = [row.get(key) for key in ("unit", "trust", "neighbours", "observer")]
    words.append(f"{row['colluding']} colluding" if row.get("colluding") else None)
    words.append(f"delta {row.get('delta')}")
    words.append("PrivUnit" if row.get("mechanism") == "privunit" else None)
    words.append("drifting controls" if row.get("memory") and row.get("trust") == "central" else None)
    words.append("the paper's own accountant, no guarantee" if row.get("accountant") == "paper" else None)
    stated = row.get("nominal_eps") is not None and row.get("accountant") != "paper"
    words.append(f"eps is nominal: {row.get('nominal_how')}, no guarantee" if stated else None)
    words.append("not fully accounted" if row.get("fully_accounted") is False else None)
    guarantee = ", ".join(str(w) for w in words if w) if real != math.inf else ""
    algo = f"{row['algo']} (naive step)" if row.get("naive") else row["algo"]
    return {
        "dataset": whole_or_part(row),
        "algo": algo,
        "budget": _budget(row),
        "guarantee": guarantee,
    }


def _settings(rows: Sequence[Row], differing: Iterable[str], pooled: Sequence[str] = ()) -> list[str]:
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
    problem = [key for key in ("model", *PROBLEM) if key not in pooled]
    for row in rows:
        told = {key: row[key] for key in problem if row.get(key) is not None}
        if row.get("sampled_clients") == row.get("clients"):
            told.pop("sampled_clients", None)  # all of them, in every round
        words = [f"{key} {value}" for key, value in told.items()]
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


def counted(runs: Iterable[Row]) -> list[Row]:
    """Of the runs of one point, those that count: a seed counts once on a split."""
    kept: list[Row] = []
    drawn: set[tuple[Any, Any]] = set()
    for run in sorted(runs, key=lambda run: (-len(_seeds(run)), min(_seeds(run)), run["run_id"])):
        own = {(_split(run), seed) for seed in _seeds(run)}
        if not drawn & own:
            kept.append(run)
            drawn |= own
    return kept


def _point(runs: list[Row], by: str) -> Row:
    kept = counted(runs)
    drawn = {(_split(run), seed) for run in kept for seed in _seeds(run)}
    mean, std = _moments(kept, by)
    splits = dict.fromkeys(map(_split, kept))
    means = {split: _moments([run for run in kept if _split(run) == split], by)[0] for split in splits}
    counts = {
        "n_seeds": len(drawn),
        "n_draws": len({seed for _, seed in drawn}),
        "models": [len(_seeds(run)) for run in kept],
    }
    return {**_of_all(kept), f"{by}_mean": mean, f"{by}_std": std, **counts, "split_means": means}


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
    deviation = run.get(f"{by}_std")
    return float(deviation) if deviation is not None else 0.0 if len(_seeds(run)) == 1 else math.nan


def _is_number(value: Any) -> bool:
    return value is not None and not math.isnan(value)
