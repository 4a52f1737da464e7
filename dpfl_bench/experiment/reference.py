"""The exact optimum of a linear problem, which a run measures its distance to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.config.call import call as call
from dpfl_bench.config.settings import Settings
from dpfl_bench.federation.clients import Federation
from dpfl_bench.machine import device
from dpfl_bench.problems import optimum
from dpfl_bench.problems.linear_problem import LinearProblem
from dpfl_bench.problems.problem import Problem


@dataclass(frozen=True)
class Reference:
    """The exact optimum and the constants of the problem at hand."""

    x_star: Tensor  # (d,) float64
    f_star: float
    h_star: Tensor  # (M, d) float64: each client's gradient there
    mu: float
    L: float  # the largest over all clients


def solve_reference(settings: Settings, made: Problem, federation: Federation) -> Reference | None:
    """For linear problems small enough to solve exactly; None else."""
    if not isinstance(made, LinearProblem) or device.wide(federation.features.device) != torch.float64:
        return None
    decay = made.l2 + settings.weight_decay
    features = federation.features / 255 if federation.features.dtype == torch.uint8 else federation.features
    best = optimum.solve(made, features, federation.targets, federation.record_weights, decay)
    if best is None:
        return None
    exact = LinearProblem(made.features, made.classes, made.bias, decay)
    everyone = np.arange(federation.clients)
    rows = [exact.gradient(best.x[None], batch) for batch in federation.whole_in_float64(everyone)]
    slopes, largest = torch.cat(rows), optimum.smoothness(made, features, federation.offsets.tolist(), decay)
    known = math.isfinite(largest) and bool(slopes.isfinite().all())
    return Reference(best.x, best.value, slopes, decay, largest) if known else None
