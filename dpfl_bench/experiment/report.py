"""What a run says at its end: result.json and privacy.json."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from dpfl_bench import RESULTS_VERSION
from dpfl_bench.budget.budget import Budget
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import naive
from dpfl_bench.experiment import train
from dpfl_bench.experiment.job import Job
from dpfl_bench.experiment.measure import theorem_gap
from dpfl_bench.results.folder import MEASURES, RunFolder
from dpfl_bench.results.origin import Origin

NAN = float("nan")


_STOPPED = (
    "that the run stopped: every update of a round was blanked, for none was finite, and that follows from"
    " the data"
)


def divergence(settings: Settings, seed: int, error: train.Diverged) -> dict[str, Any]:
    """Where and why a run ended early, and what that tells of the data."""
    told = None
    if settings.private:
        told = (
            _STOPPED
            if error.cause == train.BLANKED
            else "nothing: the model overflowed, which is post-processing of what was released"
        )
    return {"seed": seed, "round": error.round, "cause": error.cause, "tells_of_the_data": told}


def fully_accounted(settings: Settings, diverged: dict[str, Any] | None) -> bool:
    return not settings.leaks and (diverged is None or diverged["cause"] != train.BLANKED)


def result(
    job: Job, folder: RunFolder, seconds: float, diverged: dict[str, Any] | None, origin: Origin
) -> dict[str, Any]:
    """result.json: one flat record of the run. test_error is that of the last round; best_round is
    information, not a choice.
    """
    settings, privacy = job.settings, job.settings.privacy
    rows, budget = folder.metrics.read(), played(job, diverged)
    private = settings.private
    return {
        "run_id": settings.run_id,
        "point_id": settings.point_id,
        "status": "diverged" if diverged else "done",
        "results_version": RESULTS_VERSION,
        "algo": settings.algo["name"],
        "dataset": settings.dataset["name"],
        "subset": job.data.records.subset or None,
        "model": settings.model["name"],
        "eps_target": settings.eps,
        "eps": budget.eps,
        "eps_all_repeats": budget.eps_all_repeats,
        "delta": settings.delta,
        "unit": privacy.unit,
        "trust": privacy.trust,
        "observer": job.budget.observer,
        "neighbours": privacy.neighbours,
        "calibration": privacy.calibration if private else None,
        "accountant": job.budget.accountant if private else None,
        "noise_multiplier": None if job.budget.privunit else job.budget.noise_multiplier,
        "noise_std": job.budget.noise_std,
        "mechanism": privacy.mechanism if private else None,
        "fully_accounted": fully_accounted(settings, diverged) if private else None,
        "bound": privacy.bound if private or privacy.bound_without_noise else None,
        "clip": privacy.clip if private or privacy.bound_without_noise else None,
        "rounds": max(s.rounds for s in job.schedules),
        "local_steps": settings.local_steps,
        "total_steps": max(sum(s.steps) for s in job.schedules),
        "clients": settings.clients,
        "sampled_clients": settings.sampled_clients,
        "parameters": job.problem.dimension,
        "memory": (
            privacy.remembered if private and job.algorithm.remembers and privacy.unit == "client" else None
        ),
        "colluding": privacy.colluding if private else None,
        "naive": naive(settings.algo),
        "stop_at_eps": settings.stop_at_eps,
        "average_last": settings.average_last,
        "lr": settings.lr,
        "seeds": list(settings.seeds),
        "metric": job.problem.metric,
        **_last(rows, diverged is not None),
        "best_round": _best_round(rows),
        "diverged": diverged,
        "partition": {
            "name": settings.partition["name"],
            "hash": job.data.partition_hash,
            "sizes": _spread(job.data.federation.sizes),
        },
        "data": {
            "source": job.data.records.source,
            "train": int(job.data.federation.sizes.sum()),
            "test": len(job.data.records.test_y),
        },
        "origin": origin.hashes,
        "theory": _theory(job, rows),
        "seconds": round(seconds, 3),
    }


def _last(rows: np.ndarray, diverged: bool) -> dict[str, float]:
    """What the last rounds came to, over seeds."""
    found = {}
    for measure in MEASURES:
        last = np.array([rows[measure][rows["seed"] == seed][-1] for seed in np.unique(rows["seed"])])
        found[f"{measure}_mean"] = NAN if diverged else float(last.mean())
        found[f"{measure}_std"] = NAN if diverged else (float(last.std(ddof=1)) if len(last) > 1 else 0.0)
    return found


def _spread(sizes: np.ndarray) -> dict[str, float]:
    return {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())}


def _best_round(rows: np.ndarray) -> int | None:
    """By the mean over seeds."""
    rounds = np.unique(rows["round"])
    means = np.array([_mean(rows["test_error"][rows["round"] == number]) for number in rounds])
    return None if np.isnan(means).all() else int(rounds[np.nanargmin(means)])


def _mean(values: np.ndarray) -> float:
    """Of what is defined."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else NAN


def _theory(job: Job, rows: np.ndarray) -> dict[str, Any] | None:
    star = job.reference
    if star is None:
        return None
    gap = theorem_gap(job)
    if gap is None and (rows["clipped_fraction"] > 0).any():
        gap = "updates were clipped"
    return {
        "mu": star.mu,
        "L": star.L,
        "f_star": star.f_star,
        "theorem_1": "applies (no clipping at the evaluated rounds)" if gap is None else gap,
    }


def played(job: Job, diverged: dict[str, Any] | None) -> Budget:
    """The budget of the rounds that were played: of a run that diverged, no round after that one
    and no later seed.
    """
    if diverged is None:
        return job.budget
    seeds = [s for s in job.schedules if s.seed <= diverged["seed"]]
    return job.budget.played(
        {s.seed: s.rounds if s.seed < diverged["seed"] else diverged["round"] for s in seeds}
    )


def privacy(job: Job, diverged: dict[str, Any] | None = None) -> dict[str, Any]:
    """privacy.json: the ledger, eps towards each observer and by each accountant, and what is not
    accounted.
    """
    settings, budget = job.settings, played(job, diverged)
    if not settings.private:
        return {
            "private": False,
            "eps": math.inf,
            "releases": [],
            "views": {},
            "accountants": {},
            "not_accounted": ["everything: eps=inf"],
        }
    return {
        "private": True,
        "unit": settings.privacy.unit,
        "neighbours": settings.privacy.neighbours,
        "trust": settings.privacy.trust,
        "observer": budget.observer,
        "mechanism": settings.privacy.mechanism,
        "noise": settings.privacy.noise if settings.privacy.mechanism == "gaussian" else None,
        "calibration": settings.privacy.calibration,
        "eps": budget.eps,
        "eps_all_repeats": budget.eps_all_repeats,
        "delta": settings.delta,
        "nominal_eps": settings.eps if settings.privacy.calibration == "formula" else None,
        "accountant": budget.accountant,
        "accountants": budget.accountants(),
        "views": budget.views(),
        "releases": _releases(job, budget),
        "accounted": _accounted(budget, job.budget),
        "assumes": _assumptions(job),
        "fully_accounted": fully_accounted(settings, diverged),
        "not_accounted": [
            *([_STOPPED] if diverged and diverged["cause"] == train.BLANKED else []),
            *_not_accounted(job),
        ],
    }


def _accounted(budget: Budget, planned: Budget) -> dict[str, Any]:
    """What one repeat was accounted as, and what one that is played to the end, with cohorts that
    are yet to be drawn, would be.
    """
    return {
        "noise_multiplier": budget.noise_multiplier,
        "repeats": len(budget.schedules),
        "as_one_of": [asdict(c) for c in budget.seen],
        "fresh": [asdict(c) for c in planned.fresh],
    }


def _releases(job: Job, budget: Budget) -> list[dict[str, Any]]:
    """Every kind of release, how often, with which noise."""
    settings, privacy = job.settings, job.settings.privacy
    record, privunit = privacy.unit == "record", budget.privunit
    of = "each client's message" if privacy.trust == "local" else "the cohort's sum"
    main: dict[str, Any] = {
        "kind": "gradient" if record else "update",
        "of": "each client's lot" if record else of,
        "rounds": budget.rounds,
        "times_of_worst_record" if record else "times_of_worst_client": budget.planned.worst,
        "bound": privacy.bound,
        "clip": privacy.clip,
        "sensitivity": privacy.sensitivity,
        "noise_std": budget.noise_std,
        "noise_multiplier": None if privunit else budget.noise_multiplier,
        "pure_eps": privunit.release_eps if privunit else None,
        "epsilons": [privunit.eps0, privunit.eps1, privunit.eps2] if privunit else None,
        "sampling": {
            "scheme": settings.sampling,
            "cohort": settings.sampled_clients,
            "clients": settings.clients,
        },
        "lots": _lots(job) if record else None,
    }
    further: list[dict[str, Any]] = [
        {
            "kind": {"norms": "sum of squared norms", "bits": "number of norms below C"}[companion.name],
            "of": of,
            "rounds": budget.rounds,
            "noise_multiplier": companion.noise_multiplier(budget.noise_multiplier),
        }
        for companion in budget.companions
    ]
    return [{k: v for k, v in release.items() if v is not None} for release in [main, *further]]


def _lots(job: Job) -> dict[str, Any]:
    settings = job.settings
    size = (
        {"batch_size": settings.batch_size}
        if settings.lots == "fixed"
        else {"sample_rate": settings.sample_rate or 1.0}
    )
    return {"scheme": settings.lots, **size, "smallest_client": int(job.data.federation.sizes.min())}


_REMEMBERED = {
    (
        "own_update",
        False,
    ): (
        "clients remember their bounded updates without noise: functions of their own data and of what"
        " all see"
    ),
    (
        "own_update",
        True,
    ): (
        "clients remember their bounded updates without noise: functions of their own data and of what"
        " all see"
    ),
    ("own_message", False): "clients remember their noisy messages, which the server saw",
    (
        "own_message",
        True,
    ): (
        "clients remember their shares of the noise, which later sums reveal: only a client's own share is"
        " accounted"
    ),
}


def _assumptions(job: Job) -> list[str]:
    said = {
        "local": "nothing about the server: each message is noised before it leaves its client",
        "secagg": (
            f"secure aggregation reveals only sums, all sampled clients deliver, {_colluding(job)} with the"
            " server"
        ),
        "central": "the server is trusted and only models leave it",
    }
    if job.settings.privacy.unit == "record":
        said["local"] = (
            "nothing about the server: each gradient is noised at its client, and all that follows is made of"
            " noised gradients"
        )
        said["secagg"] = f"{said['local']}; that only sums are revealed is credited nothing"
    listed = [said[job.settings.privacy.trust]]
    if job.algorithm.remembers and job.settings.privacy.unit == "client":
        listed.append(_REMEMBERED[job.settings.privacy.remembered, job.settings.privacy.trust == "secagg"])
    if job.settings.privacy.neighbours == "add_remove_one":
        who = "record counts for nothing" if job.settings.privacy.unit == "record" else "client sends nothing"
        listed.append(f"an absent {who} while public sizes, divisors and noise stay as they are (zero-out)")
    if job.budget.rate < 1:
        listed.append(
            "which clients take part in a round stays secret from the third party: eps averages over it"
        )
    elif any(c.rounds for c in job.budget.seen):
        listed.append(
            "eps averages over the coins that decide in how many rounds a client takes part, before they are"
            " drawn"
        )
    listed += [said for key, said in _SAID_TO_BE_PUBLIC.items() if job.settings.dataset.get(key) == "public"]
    solved = job.settings.privacy.calibration != "fixed" and job.budget.observer == "server"
    if solved and job.settings.sampling != "full":
        listed.append(
            "the third_party view takes the noise as fixed beforehand; here it was solved for the cohorts"
            " that were drawn"
        )
    if job.data.holders.most > 1:
        listed.append(
            "a record is counted over all clients that hold it"
            if job.settings.privacy.unit == "record"
            else _OVERLAP
        )
    return listed


_SAID_TO_BE_PUBLIC = {
    "standardise": (
        "dataset.standardise=public: the numbers that standardise the features were not made of the records"
        " to be protected"
    ),
    "vocabulary_from": (
        "dataset.vocabulary_from=public: the vocabulary was not made of the posts to be protected"
    ),
}
_OVERLAP = (
    "clients overlap: the unit is a client's copy of its records, and a record that others hold too is in"
    " their messages as well"
)


def _colluding(job: Job) -> str:
    count = job.settings.privacy.colluding
    return f"{count} of a cohort collude" if count else "none colludes"


def _not_accounted(job: Job) -> list[str]:
    leaks = list(job.settings.leaks)
    if job.budget.accountant == "paper":
        valid = min(job.budget.views().values())
        leaks.append(f"the valid eps towards a third party is {valid:.6g}")
    leaks.append(
        "metrics.csv: losses, errors, update norms and clipped fractions are computed without noise, for"
        " simulation only"
    )
    leaks.append("hyper-parameters that were tuned by looking at results of private data")
    leaks.append(
        "the seed: the noise follows from it, so whoever has both it and the model can subtract the noise"
    )
    leaks.append(
        "other runs on the same data; eps is of one seed of this run, eps_all_repeats of all its seeds"
        " together"
    )
    return leaks
