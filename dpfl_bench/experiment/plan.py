"""What a run would spend and what theory expects of it. No training; no data and no torch, unless
theory.measured=true asks for L and psi_0 of the data.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dpfl_bench.budget import before_data, meaning, theory
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.guarantee import Guarantee
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import only_ours
from dpfl_bench.federation import lot_size
from dpfl_bench.privacy import calibration
from dpfl_bench.results.json_numbers import clean

MOMENTS = 10  # of a run, at which the plan says what is spent
NO_CALL = (
    "plan calls no code of your own; say in the YAML file how many parameters the model has (parameters: N),"
    " which the noise needs"
)


def plan(
    settings: Settings, detailed: bool = True, every: bool = False, course: bool = True
) -> dict[str, Any]:
    """Everything that `dpfl-bench plan --json` prints.

    detailed: with all observers, and the course of eps over the rounds. course=False: without the
    course, which takes most of the time. every: ask also the accountants that are asked by name
    alone. PRV is one, and its package takes seconds to import.
    """
    if settings.theory.measured:
        settings = _with_measured(settings)
    with only_ours(NO_CALL):
        budget = Budget.of(settings, drawn_schedules(settings))
        before_data.check_calibrated(budget)
        plan: dict[str, Any] = clean(
            _plan(budget, Guarantee.of(budget, every=every), detailed, detailed and course)
        )
    return plan


def _with_measured(settings: Settings) -> Settings:
    """With theory.L and theory.psi0 of the data; where one was given, that one stays."""
    from dpfl_bench.experiment import job, theory_of_run  # these import torch

    L, psi0 = theory_of_run.measured(job.prepare(settings))
    if L is None:
        raise ConfigError(
            f"theory.measured=true: expected a linear model whose optimum can be computed, got"
            f" model={settings.model['name']}; leave it out, or say theory.L and theory.psi0"
        )
    given = settings.theory
    return replace(settings, theory=replace(given, L=given.L or L, psi0=given.psi0 or psi0))


def _plan(budget: Budget, guarantee: Guarantee, detailed: bool, course: bool) -> dict[str, Any]:
    settings, privacy, meant = budget.settings, budget.settings.privacy, meaning.of(budget)
    return {
        "run_id": settings.run_id,
        "algo": settings.algo["name"],
        "dataset": settings.dataset["name"],
        **guarantee.plan(),
        "privunit": _privunit(budget),
        "clip": privacy.clip,
        "sensitivity": privacy.sensitivity,
        "memory": guarantee.memory,
        "releases": budget.rounds,
        "releases_of_worst_client": budget.planned.worst if settings.private else 0,
        "further_releases": _further(budget),
        "rounds": budget.rounds,
        "local_steps": settings.local_steps,
        "lr": _lr(settings),
        "total_steps": max(sum(s.steps) for s in budget.schedules),
        "max_rounds": budget.max_rounds(),
        "observers": guarantee.observers if detailed else None,
        "spent": _course(budget) if course else None,
        "overlapping": settings.overlapping,
        "holders_known": settings.dealing is not None or settings.overlapping is False,
        "implied": _implied(budget),
        "records_per_client": settings.records_per_client,
        "theory": theory.expected(budget),
        "theory_is_none": theory.why_none(budget),
        "noise_on": _noise_on(budget),
        "means": None if meant is None else meant.json(),
    }


def _noise_on(budget: Budget) -> dict[str, float] | None:
    """The noise's standard deviation on a cohort's sum of updates, on a client's own message or
    share, and on their mean; at record level on a lot's sum of gradients and on their mean. None
    where it is not one number: without noise, under PrivUnit, where C changes.
    """
    settings, std = budget.settings, budget.noise.std
    if not settings.private or std is None:
        return None
    if settings.privacy.unit == "record":
        records = settings.records_per_client
        lot = records and lot_size.expected(settings.batch_size, settings.sample_rate, records)
        return {"lot_sum": std} | ({"lot_mean": std / lot} if lot else {})
    clients, trust = settings.sampled_clients, settings.privacy.trust
    total = std * math.sqrt(clients) if trust == "local" else std
    of_client = {} if trust == "central" else {"client": total / math.sqrt(clients)}
    return {"sum": total, **of_client, "mean": total / clients}


def _lr(settings: Settings) -> float | None:
    """lr=1/L as a number where L is said, else None: the data set's file knows L of the pooled data
    alone, and a run takes the worst client's.
    """
    if settings.lr != "1/L":
        return settings.lr
    return 1 / settings.theory.L if settings.theory.L else None


def _further(budget: Budget) -> list[dict[str, Any]]:
    """The further sums that go out with every round's messages."""
    return [
        {
            "name": companion.name,
            "rounds": budget.rounds,
            "noise_multiplier": companion.noise_multiplier(budget.noise_multiplier),
        }
        for companion in budget.companions
    ]


def _privunit(budget: Budget) -> dict[str, float] | None:
    """Of one message: the three budgets, and the pure eps that they really amount to."""
    privunit = budget.noise.privunit
    names = ("eps0", "eps1", "eps2", "release_eps")
    return None if privunit is None else {name: getattr(privunit, name) for name in names}


def _course(budget: Budget) -> list[dict[str, float]]:
    """The largest eps spent after each of about ten rounds."""
    if not budget.settings.private:
        return []
    rounds = sorted({max(1, round(budget.rounds * k / MOMENTS)) for k in range(1, MOMENTS + 1)})
    return [{"rounds": r, "eps": budget.first(r).eps} for r in rounds]


def _implied(budget: Budget) -> dict[str, float] | None:
    """The constants v (`balancing`) and q (`normalized`) that this noise means."""
    settings = budget.settings
    gaussian = settings.privacy.unit == "client" and settings.privacy.mechanism == "gaussian"
    if not settings.private or not gaussian or budget.observed == 0:
        return None
    return calibration.implied(
        budget.noise_multiplier,
        settings.privacy.ratio,
        budget.observed,
        budget.rate,
        settings.eps,
        settings.delta,
    )
