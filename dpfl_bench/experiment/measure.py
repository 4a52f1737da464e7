"""What is measured at an evaluated round: losses, the distance to the exact optimum, Theorem 1 of
`balancing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from dpfl_bench.budget.theory import gap
from dpfl_bench.experiment import measured
from dpfl_bench.experiment.job import Job
from dpfl_bench.federation.crew import GradientSums
from dpfl_bench.federation.diagnostics import Diagnostics
from dpfl_bench.federation.dissimilarity import dissimilarity as difference_of
from dpfl_bench.federation.evaluation import Losses, evaluate
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.problems import theory

NAN = float("nan")
Memories = Callable[[], Tensor | None]


def metrics_row(
    job: Job,
    state: TrainingState,
    schedule: Schedule,
    done: int,
    last: Diagnostics | None,
    psi0: float,
    losses: Losses | None = None,
    memories: Memories | None = None,
) -> dict[str, Any]:
    """The row of metrics.csv for one evaluated round of one seed; NaN or None where a value is not
    defined.

    done: rounds so far. last: of the latest round. psi0: Theorem 1's potential at the start.
    losses: who evaluates the records (worker processes); None: this process. memories: gives all
    clients' memories; None: the state has them.
    """
    every = job.settings.evaluate == "all"
    scores = evaluate(job.problem, job.data.federation, state.output, losses, every)
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
        "client_test_metric": scores.client_metric,
        "update_norm": last.update_norm if last else NAN,
        "clipped_fraction": last.clipped_fraction if last else NAN,
        "server_step": last.server_step if last else NAN,
        "target_step": last.target_step if last else NAN,
        "step_estimate": last.step_estimate if last else NAN,
        "clip": last.clip if last else NAN,
        "blanked": last.blanked if last else None,
        **_norms(last),
        **measured.columns(job, state.output, last, scores),
        "psi": psi(job, state, schedule, done, memories),
        "psi_bound": psi_bound(job, psi0, steps, done) if theorem_gap(job) is None else NAN,
    }
    if job.reference is not None:
        if job.settings.whole_train_loss:
            row["suboptimality"] = scores.train_loss + _decay_term(job, state) - job.reference.f_star
        row["distance"] = (state.output.to(job.reference.x_star) - job.reference.x_star).norm().item()
    return row


def _norms(last: Diagnostics | None) -> dict[str, float]:
    signal, noise = last.signal_and_noise() if last else (NAN, NAN)
    return {"signal_norm": signal, "noise_norm": noise}


def dissimilarity(sums: Iterable[GradientSums], clients: int) -> dict[str, float]:
    """The columns of `measure=[dissimilarity]`. sums: of all clients' gradients."""
    between = difference_of(sums, clients)
    return {"dissimilarity": between.difference, "log_dissimilarity": between.log_ratio}


def _decay_term(job: Job, state: TrainingState) -> float:
    """weight_decay is part of the objective that is minimised, not of the reported loss."""
    return job.settings.weight_decay / 2 * state.output.double().square().sum().item()


def psi(
    job: Job, state: TrainingState, schedule: Schedule, done: int, memories: Memories | None = None
) -> float:
    """Theorem 1's potential, where the algorithm has one and the optimum is known."""
    potential = getattr(job.algorithm, "potential", None)
    if potential is None or job.reference is None or state.memory is None:
        return NAN
    star, memory = job.reference, state.memory if memories is None else memories()
    if memory is None:  # another rank has it
        return NAN
    round = schedule.round(max(done - 1, 0))
    return float(
        potential(state.server.x.to(star.x_star), memory.to(star.h_star), star.x_star, star.h_star, round)
    )


def theorem_gap(job: Job) -> str | None:
    """Why Theorem 1 of `balancing` says nothing about this run; None where it applies (up to
    clipping and fixed steps).
    """
    settings = job.settings
    if getattr(job.algorithm, "potential", None) is None:
        return f"algo={settings.algo['name']} is not ScaffNew"
    if job.reference is None or job.reference.mu <= 0:
        return "not a strongly convex problem whose optimum can be computed"
    if (why := gap(settings)) is not None:
        return why
    if settings.private and settings.privacy.remembered != "own_message":
        return f"needs shifts made of noisy messages, here privacy.memory={settings.privacy.remembered}"
    if job.lr * job.reference.L > 1 + 1e-9:  # an lr typed as 1/L counts
        return f"needs lr <= 1/L = {1 / job.reference.L:.4g}"
    return None


def psi_bound(job: Job, psi0: float, steps: int, done: int) -> float:
    """Theorem 1 after `steps` iterations; an expectation over coins and noise, for updates that are
    not clipped.
    """
    settings, star = job.settings, job.reference
    assert star is not None
    p = 1 / settings.local_steps
    noise_std = job.budget.noise.client_ratio * (settings.privacy.fixed_clip or 0.0)
    rho = theory.contraction(star.mu, star.L, job.lr, p)
    return theory.utility_bound(steps, psi0, rho, p, settings.clients, job.problem.dimension, noise_std)
