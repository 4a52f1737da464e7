"""result.json: one flat record of a run, written at its end."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl_bench import RESULTS_VERSION
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.guarantee import STOPPED, Guarantee
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import naive
from dpfl_bench.experiment import engine, scored, theory_of_run, train
from dpfl_bench.experiment.job import Job
from dpfl_bench.results.folder import MEASURES, RunFolder
from dpfl_bench.results.origin import Origin

NAN = float("nan")


def divergence(settings: Settings, seed: int, error: train.Diverged) -> dict[str, Any]:
    """result.json's `diverged`: where and why a run ended early, and what that tells of the
    data.
    """
    tells = None
    if settings.private:
        overflow = "nothing: the model overflowed, which is post-processing of what was released"
        tells = STOPPED if error.cause == train.BLANKED else overflow
    return {"seed": seed, "round": error.round, "cause": error.cause, "tells_of_the_data": tells}


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


def guarantee(job: Job, diverged: dict[str, Any] | None) -> Guarantee:
    """The guarantee of the rounds that were played."""
    blanked = diverged is not None and diverged["cause"] == train.BLANKED
    return Guarantee.of(played(job, diverged), job.budget, blanked=blanked)


def result(
    job: Job,
    folder: RunFolder,
    seconds: float,
    diverged: dict[str, Any] | None,
    origin: Origin,
    guarantee: Guarantee,
) -> dict[str, Any]:
    """result.json. test_error is that of the last round; best_round is information, not a
    choice.
    """
    settings = job.settings
    rows = folder.metrics.read()
    return {
        "run_id": settings.run_id,
        "point_id": settings.point_id,
        "status": "diverged" if diverged else "done",
        "results_version": RESULTS_VERSION,
        "algo": settings.algo["name"],
        "dataset": settings.dataset["name"],
        "subset": job.data.records.subset or None,
        "model": settings.model["name"],
        **guarantee.result(),
        **_bound(settings),
        "rounds": max(s.rounds for s in job.schedules),
        "local_steps": settings.local_steps,
        "total_steps": max(sum(s.steps) for s in job.schedules),
        "clients": settings.clients,
        "sampled_clients": settings.sampled_clients,
        "batch_size": settings.batch_size,
        "sample_rate": settings.sample_rate,
        "parameters": job.problem.dimension,
        "memory": guarantee.memory,
        "colluding": settings.privacy.colluding if settings.private else None,
        "engine": engine.record(settings, job.problem, job.data.federation),
        "naive": naive(settings.algo),
        "stop_at_eps": settings.stop_at_eps,
        "average_last": settings.average_last,
        "lr": job.lr,
        "seeds": list(settings.seeds),
        "metric": job.problem.metric,
        **_last(rows, diverged is not None),
        "best_round": _best_round(rows),
        "scored": scored.record(settings, job.data),
        "diverged": diverged,
        **_records(job),
        "origin": origin.hashes,
        "theory": theory_of_run.of_run(job, rows),
        "seconds": round(seconds, 3),
    }


def _bound(settings: Settings) -> dict[str, Any]:
    """How updates or gradients are bounded; null where nothing bounds them."""
    privacy = settings.privacy
    bounded = settings.private or privacy.bound_without_noise
    return {"bound": privacy.bound, "clip": privacy.clip} if bounded else {"bound": None, "clip": None}


def _records(job: Job) -> dict[str, Any]:
    """Which records there were, and how they were dealt to clients."""
    data = job.data
    partition = {
        "name": job.settings.partition["name"],
        "hash": data.partition_hash,
        "sizes": _spread(data.federation.sizes),
    }
    counts = {"train": int(data.federation.sizes.sum()), "test": len(data.records.test_y)}
    return {"partition": partition, "data": {"source": data.records.source, **counts}}


def _last(rows: np.ndarray, diverged: bool) -> dict[str, float]:
    """Mean and standard deviation over seeds of each measure in the last round."""
    measures = {}
    for measure in (*MEASURES, "suboptimality"):
        last = np.array([rows[measure][rows["seed"] == seed][-1] for seed in np.unique(rows["seed"])])
        std = float(last.std(ddof=1)) if len(last) > 1 else 0.0
        measures[f"{measure}_mean"] = NAN if diverged else float(last.mean())
        measures[f"{measure}_std"] = NAN if diverged else std
    return measures


def _spread(sizes: np.ndarray) -> dict[str, float]:
    return {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())}


def _best_round(rows: np.ndarray) -> int | None:
    """The round with the least mean test error over seeds; None where no error is known."""
    rounds = np.unique(rows["round"])
    means = np.array([_mean(rows["test_error"][rows["round"] == number]) for number in rounds])
    return None if np.isnan(means).all() else int(rounds[np.nanargmin(means)])


def _mean(values: np.ndarray) -> float:
    """Mean of the values that are not NaN."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else NAN
