"""The schedules of a run, one for each seed, drawn before anything else.

With lr=1/L the learning rate is the one thing that is not known then. It is NaN here, and a run
sets it once the data are loaded (`experiment/job.py`). No budget depends on it.
"""

from __future__ import annotations

import math

from dpfl_bench.budget import refusals
from dpfl_bench.config.settings import Settings
from dpfl_bench.federation import schedule as schedules
from dpfl_bench.federation.schedule import Schedule


def drawn_schedules(settings: Settings) -> list[Schedule]:
    """One schedule for each seed of the run, in the order of the seeds."""
    return [_schedule(settings, seed) for seed in settings.seeds]


def _schedule(settings: Settings, seed: int) -> Schedule:
    return Schedule(
        seed=seed,
        clients=settings.clients,
        cohort_size=settings.sampled_clients,
        sampling=settings.sampling,
        steps=_steps(settings, seed),
        p=1 / settings.local_steps,
        lr=math.nan if settings.lr == "1/L" else settings.lr,
        lr_decay=settings.lr_decay,
    )


def _steps(settings: Settings, seed: int) -> tuple[int, ...]:
    """Local steps of each round."""
    if not settings.algo.get("coins"):
        return schedules.constant_steps(settings.rounds, settings.local_steps)
    steps = schedules.coin_steps(seed, settings.total_steps, settings.local_steps)
    refusals.check_coins(settings, seed, steps)
    return steps
