"""The budget of "best of the sweep": what a row of the optimal-(E, T) table costs if its point had
been found by private selection.

Read from the runs' privacy.json, so it speaks of what they released. `privacy/selection.py` has the
theorems and what they ask for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpfl_bench.budget.guarantee import Guarantee
from dpfl_bench.privacy import accounting, selection
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.selection import Candidate
from dpfl_bench.results.collect.best import groups
from dpfl_bench.results.collect.points import KEYS, Row
from dpfl_bench.results.folder import RunFolder


@dataclass(frozen=True)
class Tuning:
    distribution: str = "geometric"
    mean: float | None = None  # of the number of trials; None: as many as there are points, diverged ones too

    def __post_init__(self) -> None:
        if self.mean is not None:
            selection.check(self.distribution, self.mean)


def tuned(
    rows: Sequence[Row], points: Iterable[Row], folders: Mapping[str, Path], asked: Tuning
) -> tuple[list[Row], list[str]]:
    """The table's rows with `tuning_eps` and `tuning_trials`, their mean number (None where there
    is none), and what to say of them.

    points: every one that may be drawn: that a run of it diverged was learnt from private data.
    """
    by_group = groups(points)
    with_tuning, notes = [], [_assumptions(asked)]
    for row in rows:
        members = by_group[tuple(row[key] for key in KEYS)]
        eps, trials = None, None
        if row["budget"] < math.inf:
            try:
                mean = float(len(members)) if asked.mean is None else asked.mean
                eps, trials = _epsilon(members, folders, asked.distribution, mean), mean
            except PrivacyError as error:
                notes.append(
                    f"no eps with tuning for {row['algo']} on {row['dataset']} at eps {row['budget']:.4g}:"
                    f" {error}"
                )
        with_tuning.append({**row, "tuning_trials": trials, "tuning_eps": eps})
    if all(row["budget"] == math.inf for row in rows):
        notes.append("no eps with tuning: all runs have eps=inf, there is no privacy to lose")
    return with_tuning, notes


def _epsilon(points: Sequence[Row], folders: Mapping[str, Path], distribution: str, mean: float) -> float:
    delta = points[0].get("delta")
    if delta is None or any(point.get("eps") is None for point in points):
        raise PrivacyError("the runs tell no eps or no delta; expected result.json of this version")
    runs = [run for point in points for run in point["run_ids"]]
    candidates = [candidate(RunFolder(folders[run])) for run in runs]
    if mean == 1 and distribution != "poisson":  # one trial, for sure
        return max(accounting.epsilon(composition, z, delta) for composition, z in dict.fromkeys(candidates))
    return selection.epsilon(selection.trial(candidates), delta, distribution, mean)


def candidate(folder: RunFolder) -> Candidate:
    """What a trial of this run releases, and its noise multiplier. Refuses a run without a
    guarantee.

    A trial draws cohorts of its own, for those of this run may have been lucky.
    """
    name = folder.path.name
    try:
        guarantee = Guarantee.read(folder.read("privacy.json") or {})
    except (OSError, KeyError, TypeError, ValueError):
        raise PrivacyError(_unknown(name)) from None
    if guarantee.accounted is None or guarantee.accounted.fresh is None:
        raise PrivacyError(_unknown(name))
    if not guarantee.holds:
        raise PrivacyError(f"run {name} is not fully accounted; expected runs with a guarantee")
    z, views = guarantee.accounted.noise_multiplier, guarantee.accounted.fresh
    if not 0 < z < math.inf:
        raise PrivacyError(f"run {name} has no noise; expected runs with privacy")
    if not views:
        raise PrivacyError(
            f"run {name}: no bound holds before its cohorts are drawn; expected client_sampling=fixed"
        )
    return views[0], z


def _unknown(run: str) -> str:
    return f"run {run} does not tell what it released; expected privacy.json of this version"


def _assumptions(asked: Tuning) -> str:
    mean = "as many on average as points were run" if asked.mean is None else f"{asked.mean:g} on average"
    nothing = " (nothing, if there was none)" if asked.distribution == "poisson" else ""
    return (
        "eps with tuning: at the runs' delta, for releasing the best of a random number of trials"
        f" ({asked.distribution}, {mean}; Papernot & Steinke 2022), each a fresh run, of one seed, of a point"
        " drawn uniformly at random from the row's points. It holds if the number of trials is drawn"
        f" beforehand and kept secret, if only the best trial is released{nothing}, and if the score that"
        " trials are compared by comes from public data or is part of what a run releases within its eps"
        " (the test error of these tables is neither, unless the test records are public). It takes the"
        " largest Rényi divergence over the points, and it says nothing of this sweep, which tried every"
        " point."
    )
