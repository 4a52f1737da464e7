"""The eps of releasing all models of a point together: every repeat of every run in its mean.

Unit, neighbouring relation, observer and delta are those of the runs. What a run released is read
from its privacy.json: of the compositions there, the first averages over secret cohorts. Each model
has noise of its own, so the releases of all models compose adaptively:

- Gaussians without sampling exactly, for their mu squared add up;
- releases of one kind and one noise as more releases of that kind;
- releases of different kinds by the sum of their Rényi divergences.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from dpfl_bench.budget.guarantee import Guarantee
from dpfl_bench.privacy import accounting
from dpfl_bench.privacy.divergences.gaussian import eps_of_gaussian
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.released.composition import Composition
from dpfl_bench.results.collect.points import SPLIT, Row
from dpfl_bench.results.folder import BROKEN, RunFolder

Releases = tuple[
    tuple[Composition, float, int], ...
]  # composition of one model, its noise multiplier, how many such models


def with_eps_of_all(
    rows: Sequence[Row], points: Sequence[Row], folders: Mapping[str, Path]
) -> tuple[list[Row], list[tuple[Row, str]]]:
    """The rows with `eps_all`, and those without a number, with the reason."""
    of_runs = {tuple(point["run_ids"]): point for point in points}
    answers = [eps_of_all(of_runs[tuple(row["run_ids"])], folders) for row in rows]
    with_eps = [{**row, "eps_all": eps} for row, (eps, _) in zip(rows, answers, strict=True)]
    return with_eps, [(row, why) for row, (_, why) in zip(with_eps, answers, strict=True) if why]


def eps_of_all(point: Row, folders: Mapping[str, Path]) -> tuple[float | None, str]:
    """(eps, nothing), or (None, why there is no number). Without privacy there is nothing to
    say.
    """
    if point["budget"] == math.inf or point.get("eps") is None:
        return None, ""
    if point["n_seeds"] == 1:
        return float(point["eps"]), ""
    why = _apart(point)
    if why:
        return None, why
    known = point.get("eps_all_repeats")
    if len(point["run_ids"]) == 1 and isinstance(known, int | float) and known < math.inf:
        return max(float(known), point["eps"]), ""
    try:
        eps = composed(_released(point, folders), point["delta"])
    except PrivacyError as error:
        return None, str(error)
    return max(eps, point["eps"]), ""


def _apart(point: Row) -> str:
    """Why these models are not so many releases about one unit, each with noise of its own."""
    if point.get("fully_accounted") is False or point.get("accountant") == "paper":
        return "a run is not fully accounted"
    if point["n_draws"] < point["n_seeds"]:
        return "splits of the data share noise, and the difference of two such models has none"
    if len(point["split_means"]) > 1 and point.get("unit") != "record":
        return (
            f"each split ({' or '.join(SPLIT)}) deals other records to a client, and eps is of one dealing's"
            " clients"
        )
    return ""


def _released(point: Row, folders: Mapping[str, Path]) -> Releases:
    counts: Counter[tuple[Composition, float]] = Counter()
    for run, models in zip(point["run_ids"], point["models"], strict=True):
        counts[released(RunFolder(folders[run]), point["delta"])] += models
    return tuple((c, z, models) for (c, z), models in counts.items())


def released(folder: RunFolder, delta: float) -> tuple[Composition, float]:
    """What one model of a run released, and its noise multiplier."""
    try:
        guarantee = Guarantee.read(folder.read("privacy.json") or {})
    except (OSError, *BROKEN):
        raise PrivacyError(_UNKNOWN) from None
    if guarantee.accounted is None or not guarantee.accounted.as_one_of:
        raise PrivacyError(_UNKNOWN)
    if not guarantee.holds:
        raise PrivacyError("a run is not fully accounted")
    z = guarantee.accounted.noise_multiplier
    if not 0 < z < math.inf or guarantee.delta != delta:
        raise PrivacyError("a run has no noise, or another delta")
    return guarantee.accounted.as_one_of[0], z


_UNKNOWN = "a run does not tell what it released; expected privacy.json of this version"


@cache
def composed(released: Releases, delta: float) -> float:
    """Eps at delta of all these releases."""
    gaussian = [c.mechanism == "gaussian" and not c.rounds for c, _, _ in released]
    mu = math.sqrt(
        math.fsum(_mu_squared(*each) for each, plain in zip(released, gaussian, strict=True) if plain)
    )
    others = [
        (_repeated(c, models), z)
        for (c, z, models), plain in zip(released, gaussian, strict=True)
        if not plain
    ]
    others = _merged(others)
    if not others:
        return eps_of_gaussian(mu, delta)
    if len(others) == 1 and mu == 0:
        return accounting.epsilon(*others[0], delta)
    return _by_renyi(others, mu, delta)


def _mu_squared(c: Composition, z: float, models: int) -> float:
    return c.times * models / (c.joint(z) * c.scale) ** 2


def _repeated(c: Composition, models: int) -> Composition:
    return replace(c, times=c.times * models, rounds=tuple((k, count * models) for k, count in c.rounds))


def _merged(released: list[tuple[Composition, float]]) -> list[tuple[Composition, float]]:
    """Releases of one kind and one noise are one composition of more of them, whatever their number
    in each run.
    """
    by_kind: dict[tuple[Composition, bool, float], list[Composition]] = {}
    for c, z in released:
        by_kind.setdefault((replace(c, times=0, rounds=()), bool(c.rounds), z), []).append(c)
    return [
        (replace(kind, times=sum(c.times for c in same), rounds=tuple(r for c in same for r in c.rounds)), z)
        for (kind, _, z), same in by_kind.items()
    ]


def _by_renyi(released: list[tuple[Composition, float]], mu: float, delta: float) -> float:
    """At the orders that all of them are known at."""
    import numpy as np
    from dp_accounting.rdp import rdp_privacy_accountant

    curves = [dict(zip(*accounting.renyi(c, z), strict=True)) for c, z in released]
    orders = sorted(order for order in set.intersection(*map(set, curves)) if order > 1)
    total = np.array([order * mu * mu / 2 + math.fsum(curve[order] for curve in curves) for order in orders])
    return float(rdp_privacy_accountant.compute_epsilon(np.array(orders), total, delta)[0])
