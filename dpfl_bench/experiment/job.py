"""Everything that a run needs, built once. What is cheap to check comes first: settings, then the
noise, then the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dpfl_bench import rng
from dpfl_bench.algorithms.base import Algorithm
from dpfl_bench.assembly.algorithm import build_algorithm
from dpfl_bench.assembly.data import Data, load_data
from dpfl_bench.assembly.model import build_problem, check_parameters
from dpfl_bench.budget import before_data
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import engine, scored
from dpfl_bench.experiment.exact_optimum import Reference, reference_of
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.machine import device
from dpfl_bench.problems.problem import Problem


@dataclass(frozen=True)
class Job:
    """Everything built from the settings; nothing in it changes during a run."""

    settings: Settings
    schedules: list[Schedule]
    budget: Budget
    problem: Problem
    data: Data
    reference: Reference | None
    algorithm: Algorithm

    @property
    def lr(self) -> float:
        """Of the first round."""
        return self.schedules[0].lr


def prepare(settings: Settings) -> Job:
    """Check the model and calibrate the noise before any data load, then load.

    At record level the noise follows from who holds which record, so there it comes last.
    """
    algorithm = build_algorithm(settings)
    _check_parameters(settings)
    drawn = drawn_schedules(settings)
    engine.check_place(settings, device.choose(settings.device))
    at_records = settings.private and settings.privacy.unit == "record"
    if at_records:
        before_data.check_accountant(settings, drawn)
    budget = None if at_records else _calibrated(Budget.of(settings, drawn))
    data = load_data(settings)
    _check_records(settings, data)
    scored.choose(settings, data)
    if budget is None:
        budget = _calibrated(Budget.of(settings, drawn, data.holders))
    problem = build_problem(settings, list(data.records.train_x.shape[1:]), data.records.classes)
    check_parameters(settings, problem)
    engine.check_memories(settings, problem, data.federation, algorithm.remembers)
    device.for_small_tensors(data.federation.features.device)
    reference = reference_of(settings, problem, data)
    schedules = [_with_lr(schedule, settings, reference) for schedule in budget.schedules]
    return Job(settings, schedules, budget, problem, data, reference, algorithm)


def _with_lr(schedule: Schedule, settings: Settings, reference: Reference | None) -> Schedule:
    """lr=1/L as a number: L is that of the client whose loss is least smooth."""
    if settings.lr != "1/L":
        return schedule
    if reference is None or not reference.L > 0:
        raise ConfigError(
            "lr=1/L: expected a problem whose smoothness L can be computed (a linear model of moderate size"
            f" on a CPU), got model={settings.model['name']}; say lr=0.1 or another number"
        )
    return replace(schedule, lr=1 / reference.L)


def _check_parameters(settings: Settings) -> None:
    """Where the data set's file knows the records' shape, the model can be built without them."""
    shape, classes = settings.dataset["shape"], settings.dataset["classes"]
    if shape is not None and classes is not None:
        check_parameters(settings, build_problem(settings, shape, classes))


def _check_records(settings: Settings, data: Data) -> None:
    """`records` is what plans and lots were made with, so the data must have it."""
    said, smallest = settings.records, int(data.federation.sizes.min())
    if said is not None and said != smallest:
        raise ConfigError(
            f"records={said}: the smallest client has {smallest} training records; say records={smallest}, or"
            " leave it out"
        )


def _calibrated(budget: Budget) -> Budget:
    """Solve for the noise, and refuse what cannot be had."""
    budget.check()
    before_data.check_calibrated(budget)
    return budget


def initial(job: Job, seed: int) -> torch.Tensor:
    """x_0 of one seed."""
    federation = job.data.federation
    like = torch.empty(0, device=federation.features.device, dtype=federation.dtype)
    if getattr(job.problem, "init", "zeros") == "near_optimum":
        if job.reference is None:
            raise ConfigError(
                "model.init=near_optimum: expected a problem whose optimum can be computed; use"
                " model.init=zeros"
            )
        offset = rng.generator(seed, "init").random(job.problem.dimension) * job.settings.model["init_scale"]
        return (job.reference.x_star + torch.from_numpy(offset).to(job.reference.x_star)).to(like)
    return job.problem.start(seed, like)
