"""What the theorems of `balancing` say of one problem as it was loaded: mu, L and psi_0 are those
of the data, not bounds that hold before.

Corollary 1 is about lr = 1/L and p = p* = sqrt(mu/L). `psi0` is the potential at the start with
these two: N |x_0 - x*|^2 + (lr/p)^2 sum_i |grad f_i(x*)|^2. `T_star` counts local steps in all,
`rounds_star` = p* T_star counts rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dpfl_bench.budget.theory import client_v
from dpfl_bench.experiment.exact_optimum import Reference
from dpfl_bench.experiment.job import Job, initial
from dpfl_bench.experiment.measure import theorem_gap
from dpfl_bench.problems import theory


def of_run(job: Job, rows: np.ndarray) -> dict[str, Any] | None:
    """result.json's `theory`. rows: of metrics.csv. None where the optimum is not known."""
    star = job.reference
    if star is None:
        return None
    gap = theorem_gap(job)
    if gap is None and (rows["clipped_fraction"] > 0).any():
        gap = "updates were clipped"
    record = {
        "mu": star.mu,
        "L": star.L,
        "f_star": star.f_star,
        "theorem_1": "applies (no clipping at the evaluated rounds)" if gap is None else gap,
    }
    return record | _corollary(job, star, gap)


def measured(job: Job) -> tuple[float | None, float | None]:
    """(L, psi0) of a loaded problem, None where they are not known."""
    star = job.reference
    return (None, None) if star is None else (star.L, psi0(job, star))


def psi0(job: Job, star: Reference) -> float | None:
    """At lr = 1/L and p = p*; the mean over the run's seeds. None without strong convexity."""
    if not 0 < star.mu < star.L:
        return None
    p = theory.p_star(star.mu, star.L)
    starts = [initial(job, seed).to(star.x_star) for seed in job.settings.seeds]
    far = torch.stack([(x - star.x_star).square().sum() for x in starts]).mean()
    slopes = star.h_star.square().sum() / (star.L * p) ** 2
    return float(job.settings.clients * far + slopes)


def _corollary(job: Job, star: Reference, gap: str | None) -> dict[str, Any]:
    settings, start = job.settings, psi0(job, star)
    if start is None:
        return {"T_star": None, "T_star_is_none": "not a strongly convex problem"}
    p = theory.p_star(star.mu, star.L)
    gap = gap or _no_budget(job)
    v = client_v(job.budget) if _no_budget(job) is None else None
    record = {"p_star": p, "local_steps_star": 1 / p, "v": v, "psi0": start}
    if gap is not None or v is None:
        return {**record, "T_star": None, "rounds_star": None, "T_star_is_none": gap}
    clip, size = settings.privacy.fixed_clip, (settings.clients, job.problem.dimension)
    assert clip is not None
    best = theory.optimal_steps(start, settings.eps, settings.delta, star.mu, star.L, v, clip, *size)
    return {**record, "T_star": best, "rounds_star": p * best, "T_star_is_none": None}


def _no_budget(job: Job) -> str | None:
    """Why no budget sets the noise, which Corollary 1 needs."""
    settings, privacy = job.settings, job.settings.privacy
    if not settings.private:
        return "without noise the bound falls with every step"
    if privacy.calibration == "fixed":
        return "the noise is given (privacy.calibration=fixed): no budget sets it for each number of rounds"
    plain = privacy.unit == "client" and privacy.mechanism == "gaussian" and privacy.fixed_clip is not None
    return None if plain and job.budget.planned.worst else "needs Gaussian noise of one size on the messages"
