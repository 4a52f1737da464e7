"""The exact optimum of a linear problem: a run reports its distance to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.assembly.data import Data
from dpfl_bench.config.call import call as call
from dpfl_bench.config.settings import Settings
from dpfl_bench.federation.clients import Federation
from dpfl_bench.machine import device
from dpfl_bench.problems import optimum
from dpfl_bench.problems.linear_problem import LinearProblem
from dpfl_bench.problems.problem import Problem


@dataclass(frozen=True)
class Reference:
    """The exact optimum of a problem, and the problem's constants. M clients, d parameters."""

    x_star: Tensor  # (d,) float64
    f_star: float
    h_star: Tensor  # (M, d) float64: each client's gradient there
    mu: float
    L: float  # the largest smoothness constant of a client's loss


_KEPT: dict[tuple[object, ...], Reference | None] = {}  # of this process's last problems
MOST_KEPT = 4


def reference_of(settings: Settings, problem: Problem, data: Data) -> Reference | None:
    """`solve_reference`, once for all jobs of this process that have the same records, dealt alike:
    a large problem takes a minute.
    """
    if not isinstance(problem, LinearProblem):
        return None
    where = str(data.federation.features.device), settings.dtype
    shape = problem.features, problem.classes, problem.bias
    key = (data.digest, *where, *shape, problem.l2 + settings.weight_decay)
    if key not in _KEPT:
        while len(_KEPT) >= MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[key] = solve_reference(settings, problem, data.federation)
    return _KEPT[key]


def solve_reference(settings: Settings, problem: Problem, federation: Federation) -> Reference | None:
    """The reference of a linear problem that is small enough to be solved exactly; else None."""
    if not isinstance(problem, LinearProblem) or device.wide(federation.features.device) != torch.float64:
        return None
    decay = problem.l2 + settings.weight_decay
    features = federation.features / 255 if federation.features.dtype == torch.uint8 else federation.features
    best = optimum.solve(problem, features, federation.targets, federation.record_weights, decay)
    if best is None:
        return None
    exact = LinearProblem(problem.features, problem.classes, problem.bias, decay)
    everyone = np.arange(federation.clients)
    rows = [exact.gradient(best.x[None], batch) for batch in federation.whole_in_float64(everyone)]
    slopes, largest = (
        torch.cat(rows),
        optimum.smoothness(problem, features, federation.offsets.tolist(), decay),
    )
    known = math.isfinite(largest) and bool(slopes.isfinite().all())
    return Reference(best.x, best.value, slopes, decay, largest) if known else None
