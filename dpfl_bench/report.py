"""What a run says: rows of metrics.csv, result.json, privacy.json, status.json."""

from __future__ import annotations

import math
import os
import platform
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpfl_bench import RESULTS_VERSION, theory
from dpfl_bench.federation.cohort import Diagnostics, State
from dpfl_bench.federation.evaluation import evaluate
from dpfl_bench.federation.schedule import Schedule

if TYPE_CHECKING:
    from dpfl_bench.results.folder import RunFolder
    from dpfl_bench.run import Job

NAN = float("nan")


def metrics_row(job: Job, state: State, schedule: Schedule, done: int, last: Diagnostics | None, psi0: float) -> dict[str, Any]:
    """One evaluated round of one seed; blank where a value is not defined."""
    scores = evaluate(job.problem, job.data.federation, state.server.x)
    steps = sum(schedule.steps[:done])
    row = {
        "seed": schedule.seed,
        "round": done,
        "steps": steps,
        "eps": job.budget.spent(state.ledger) if done else 0.0,
        "train_loss": scores.train_loss,
        "test_loss": scores.test_loss,
        "test_metric": scores.test_metric,
        "test_error": scores.test_error,
        "update_norm": last.update_norm if last else NAN,
        "clipped_fraction": last.clipped_fraction if last else NAN,
        "server_step": job.settings.server_lr if last else NAN,
        "psi": psi(job, state, schedule, done),
        "psi_bound": psi_bound(job, psi0, steps, done) if theorem_gap(job) is None else NAN,
    }
    if job.reference is not None:
        row["suboptimality"] = scores.train_loss + _decay_term(job, state) - job.reference.f_star
        row["distance"] = (state.server.x.to(job.reference.x_star) - job.reference.x_star).norm().item()
    return row


def _decay_term(job: Job, state: State) -> float:
    """weight_decay is part of the objective that is minimised, not of the reported loss."""
    return job.settings.weight_decay / 2 * state.server.x.double().square().sum().item()


def psi(job: Job, state: State, schedule: Schedule, done: int) -> float:
    """Theorem 1's potential, where the algorithm has one and the optimum is known."""
    potential = getattr(job_algorithm(job), "potential", None)
    if potential is None or job.reference is None or state.memory is None:
        return NAN
    star = job.reference
    round = schedule.round(max(done - 1, 0))
    return float(potential(state.server.x.to(star.x_star), state.memory.to(star.h_star), star.x_star, star.h_star, round))


def job_algorithm(job: Job) -> Any:
    from dpfl_bench.build import algorithm

    return algorithm(job.settings)


def theorem_gap(job: Job) -> str | None:
    """Why Theorem 1 of `balancing` says nothing about this run; None where it applies (up to clipping and fixed steps)."""
    settings = job.settings
    if getattr(job_algorithm(job), "potential", None) is None:
        return f"algo={settings.algo['name']} is not ScaffNew"
    if job.reference is None or job.reference.mu <= 0:
        return "not a strongly convex problem whose optimum can be computed"
    if settings.sampling != "full" or settings.batch_size or settings.sample_rate:
        return "needs every client and full gradients"
    if settings.local_momentum or settings.server_momentum or settings.server_lr != 1 or settings.lr_decay != 1:
        return "needs plain steps: no momentum, server_lr=1, lr_decay=1"
    if settings.private and settings.privacy.remembered != "own_message":
        return f"needs shifts made of noisy messages, here privacy.memory={settings.privacy.remembered}"
    if settings.lr * job.reference.L > 1 + 1e-9:  # an lr typed as 1/L counts
        return f"needs lr <= 1/L = {1 / job.reference.L:.4g}"
    return None


def psi_bound(job: Job, psi0: float, steps: int, done: int) -> float:
    """Theorem 1 after `steps` iterations; an expectation over coins and noise, for updates that are not clipped."""
    settings, star = job.settings, job.reference
    assert star is not None
    p = 1 / settings.local_steps
    rho = theory.contraction(star.mu, star.L, settings.lr, p)
    return theory.utility_bound(steps, psi0, rho, p, settings.clients, job.problem.dimension, job.budget.client_noise_std)


def result(job: Job, folder: RunFolder, seconds: float, diverged: dict[str, int] | None) -> dict[str, Any]:
    """result.json: one flat record of the run. test_error is that of the last round; best_round is information, not a choice."""
    settings, privacy = job.settings, job.settings.privacy
    rows = pd.read_csv(folder.metrics.path)
    last = rows.groupby("seed")["test_error"].last()
    by_round = rows.groupby("round")["test_error"].mean()
    private = settings.private
    return {
        "run_id": settings.run_id,
        "status": "diverged" if diverged else "done",
        "results_version": RESULTS_VERSION,
        "algo": settings.algo["name"],
        "dataset": settings.dataset["name"],
        "model": settings.model["name"],
        "eps_target": settings.eps,
        "eps": job.budget.eps,
        "delta": settings.delta,
        "unit": privacy.unit,
        "trust": privacy.trust,
        "observer": job.budget.observer,
        "neighbours": privacy.neighbours,
        "accountant": job.budget.accountant if private else None,
        "noise_multiplier": job.budget.noise_multiplier,
        "noise_std": job.budget.noise_std,
        "bound": privacy.bound if private or privacy.bound_without_noise else None,
        "clip": privacy.clip if private or privacy.bound_without_noise else None,
        "rounds": max(s.rounds for s in job.schedules),
        "local_steps": settings.local_steps,
        "total_steps": settings.total_steps,
        "clients": settings.clients,
        "sampled_clients": settings.sampled_clients,
        "parameters": job.problem.dimension,
        "memory": privacy.remembered if private and job_algorithm(job).remembers else None,
        "lr": settings.lr,
        "seeds": list(settings.seeds),
        "metric": "accuracy" if job.problem.classes else "r2",
        "test_error_mean": NAN if diverged else float(last.mean()),
        "test_error_std": NAN if diverged else (float(last.std(ddof=1)) if len(last) > 1 else 0.0),
        "best_round": int(str(by_round.idxmin())) if by_round.notna().any() else None,
        "diverged": diverged,
        "partition": {
            "name": settings.partition["name"],
            "hash": job.data.partition_hash,
            "sizes": _spread(job.data.federation.sizes),
        },
        "data": {
            "source": job.data.records.source,
            "subset": job.data.records.subset or None,
            "train": int(job.data.federation.sizes.sum()),
            "test": len(job.data.records.test_y),
        },
        "theory": _theory(job, rows),
        "seconds": round(seconds, 3),
    }


def _spread(sizes: np.ndarray) -> dict[str, float]:
    return {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())}


def _theory(job: Job, rows: pd.DataFrame) -> dict[str, Any] | None:
    star = job.reference
    if star is None:
        return None
    gap = theorem_gap(job)
    if gap is None and (rows["clipped_fraction"] > 0).any():
        gap = "updates were clipped"
    return {"mu": star.mu, "L": star.L, "f_star": star.f_star, "theorem_1": "applies" if gap is None else gap}


def privacy(job: Job) -> dict[str, Any]:
    """privacy.json: the ledger, eps towards each observer and by each accountant, and what is not accounted."""
    settings, budget = job.settings, job.budget
    if not settings.private:
        return {
            "private": False,
            "eps": math.inf,
            "releases": [],
            "views": {},
            "accountants": {},
            "not_accounted": ["everything: eps=inf"],
        }
    planned = budget.planned
    release = {
        "kind": "update",
        "of": "each client's message" if planned.trust == "local" else "the cohort's sum",
        "rounds": planned.rounds,
        "times_of_worst_client": planned.worst,
        "bound": settings.privacy.bound,
        "clip": settings.privacy.clip,
        "sensitivity": settings.privacy.sensitivity,
        "noise_std": budget.noise_std,
        "noise_multiplier": budget.noise_multiplier,
        "sampling": {"scheme": planned.sampling, "cohort": planned.cohort, "clients": planned.clients},
    }
    return {
        "private": True,
        "unit": settings.privacy.unit,
        "neighbours": planned.neighbours,
        "trust": planned.trust,
        "observer": budget.observer,
        "mechanism": settings.privacy.mechanism,
        "calibration": settings.privacy.calibration,
        "eps": budget.eps,
        "delta": settings.delta,
        "nominal_eps": settings.eps if settings.privacy.calibration == "formula" else None,
        "accountant": budget.accountant,
        "accountants": budget.accountants(),
        "views": budget.views(),
        "releases": [release],
        "assumes": _assumptions(job),
        "not_accounted": _not_accounted(job),
    }


_REMEMBERED = {
    ("own_update", False): "clients remember their bounded updates without noise: functions of their own data and of what all see",
    ("own_update", True): "clients remember their bounded updates without noise: functions of their own data and of what all see",
    ("own_message", False): "clients remember their noisy messages, which the server saw",
    ("own_message", True): "clients remember their shares of the noise, which later sums reveal: only a client's own share is accounted",
}


def _assumptions(job: Job) -> list[str]:
    said = {
        "local": "nothing about the server: each message is noised before it leaves its client",
        "secagg": "secure aggregation reveals only sums, all sampled clients deliver, none colludes",
        "central": "the server is trusted and only models leave it",
    }
    listed = [said[job.settings.privacy.trust]]
    if job_algorithm(job).remembers:
        listed.append(_REMEMBERED[job.settings.privacy.remembered, job.settings.privacy.trust == "secagg"])
    if job.settings.privacy.neighbours == "add_remove_one":
        listed.append("an absent client sends nothing while the cohort's public size, divisor and noise stay as they are (zero-out)")
    return listed


def _not_accounted(job: Job) -> list[str]:
    leaks = ["metrics.csv: losses, errors, update norms and clipped fractions are computed without noise, for simulation only"]
    leaks.append("hyper-parameters that were tuned by looking at results of private data")
    if job.settings.dataset.get("standardise"):
        leaks.append("the mean and deviation that standardise the features")
    return leaks


def status(state: str, **more: Any) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"status": state, "updated": now, "pid": os.getpid(), "host": platform.node(), **more}


def summary(result: dict[str, Any]) -> str:
    """One line for a person."""
    budget = "no privacy" if result["eps"] == math.inf else f"eps {result['eps']:.4g} (noise multiplier {result['noise_multiplier']:.4g})"
    where = f"{result['algo']} on {result['dataset']}: {result['rounds']} rounds of {result['local_steps']} local steps, {budget}"
    if result["status"] == "diverged":
        return f"{where}: diverged in round {result['diverged']['round']} (seed {result['diverged']['seed']}); lower lr"
    spread = f" ± {result['test_error_std']:.4f} over {len(result['seeds'])} seeds" if len(result["seeds"]) > 1 else ""
    subset = f"; {result['data']['subset']}" if result["data"]["subset"] else ""
    return f"{where}: test error {result['test_error_mean']:.4f}{spread}{subset}"


def mean_error(result: dict[str, Any]) -> float:
    """test_error_mean, NaN for a run that diverged."""
    value = result["test_error_mean"]
    return NAN if value is None else float(value)
