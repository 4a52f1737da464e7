"""The exact optimum of a convex linear problem, in float64: the reference of `theory` and of
`suboptimality`.

Objective: sum_r weight_r loss_r(x) + decay/2 |x|^2, with weights 1 / (clients * records of the
client).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dpfl_bench.problems import theory
from dpfl_bench.problems.linear_problem import LinearProblem

# multiplications that a reference value is worth, for one Hessian and its solution: `dpscaffold`'s
# 400,000 records of 40 features in 10 classes take 3.7e10, one to two minutes of one core in all
LARGEST_WORK = 4e10
NEWTON_STEPS = 50


@dataclass(frozen=True)
class Optimum:
    x: Tensor  # (d,), float64
    value: float  # the objective there


def solve(
    problem: LinearProblem, features: Tensor, targets: Tensor, weights: Tensor, decay: float
) -> Optimum | None:
    """The optimum; None where it is not unique or not finite (logistic without decay), where it
    costs too much, or where numbers overflow on the way.

    features: (n, *shape). targets, weights: (n,). decay: of the ridge term, in place of the
    problem's l2.
    """
    if (problem.classes and decay == 0) or work(problem, len(features)) > LARGEST_WORK:
        return None
    rows, weights = features.flatten(1).double(), weights.double()
    if problem.bias:
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
    try:
        least_squares = problem.classes == 0
        x = (_least_squares if least_squares else partial(_newton, problem))(rows, targets, weights, decay)
    except RuntimeError:  # torch's LinAlgError: extreme records, a Hessian that cannot be inverted
        return None
    losses = _losses(problem, x, rows, targets)
    value = ((weights * losses).sum() + decay / 2 * x.square().sum()).item()
    return Optimum(_flat(problem, x), value) if math.isfinite(value) and x.isfinite().all() else None


def work(problem: LinearProblem, records: int) -> int:
    """Multiplications for one Hessian, of which only half of the blocks are computed, and for its
    solution.
    """
    outputs, features = problem.outputs, problem.features + problem.bias
    blocks = outputs * (outputs + 1) // 2
    return records * blocks * features**2 + problem.dimension**3


def smoothness(problem: LinearProblem, features: Tensor, offsets: list[int], decay: float) -> float:
    """The largest smoothness constant L of a client's loss: curvature * largest eigenvalue of
    X_i'X_i / n_i + decay. Infinite where it cannot be computed.

    offsets: client i has the records offsets[i] to offsets[i + 1].
    """
    largest = 0.0
    for start, end in itertools.pairwise(offsets):
        rows = features[start:end].flatten(1).double()
        if problem.bias:
            rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
        try:
            norm = torch.linalg.matrix_norm(rows, 2).item()
        except RuntimeError:  # its SVD did not converge
            norm = math.inf
        largest = max(largest, norm * norm / len(rows)) if math.isfinite(norm) else math.inf
    return theory.curvature(problem.classes) * largest + decay


def _least_squares(rows: Tensor, targets: Tensor, weights: Tensor, decay: float) -> Tensor:
    gram = rows.T @ (weights[:, None] * rows) + decay * torch.eye(
        rows.shape[1], dtype=rows.dtype, device=rows.device
    )
    right = rows.T @ (weights * targets)
    solution: Tensor = torch.linalg.lstsq(
        gram.cpu(), right.cpu()[:, None], driver="gelsd"
    ).solution  # of least norm
    return solution.T.to(rows)


def _newton(problem: LinearProblem, rows: Tensor, targets: Tensor, weights: Tensor, decay: float) -> Tensor:
    """Newton's method, which halves a step that does not descend. Returns (outputs, features); the
    last feature is the bias, if there is one.
    """
    x = rows.new_zeros(problem.outputs, rows.shape[1])

    def objective(x: Tensor) -> Tensor:
        return (weights * _losses(problem, x, rows, targets)).sum() + decay / 2 * x.square().sum()

    for _ in range(NEWTON_STEPS):
        gradient, hessian = _derivatives(problem, x, rows, targets, weights, decay)
        step = torch.linalg.solve(hessian, gradient.flatten()).view_as(x)
        size = 1.0
        while size > 1e-6 and objective(x - size * step) > objective(x):
            size /= 2
        x = x - size * step
        if gradient.norm() < 1e-13:
            break
    return x


def _derivatives(
    problem: LinearProblem, x: Tensor, rows: Tensor, targets: Tensor, weights: Tensor, decay: float
) -> tuple[Tensor, Tensor]:
    outputs = rows @ x.T
    if problem.classes == 2:
        chances = outputs.sigmoid()
        residuals = chances - targets[:, None]
        second = (chances * (1 - chances)).unsqueeze(2)  # (n, 1, 1)
    else:
        chances = outputs.softmax(1)
        residuals = chances - torch.nn.functional.one_hot(targets, problem.classes)
        second = torch.diag_embed(chances) - chances[:, :, None] * chances[:, None, :]
    gradient = (weights[:, None] * residuals).T @ rows + decay * x
    size, (count, features) = x.numel(), x.shape
    hessian = x.new_empty(count, features, count, features)
    for k in range(count):
        for other in range(k + 1):
            hessian[k, :, other] = hessian[other, :, k] = rows.T @ (
                (weights * second[:, k, other])[:, None] * rows
            )
    return gradient, hessian.reshape(size, size) + decay * torch.eye(size, dtype=x.dtype, device=x.device)


def _losses(problem: LinearProblem, x: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
    outputs = rows @ x.T
    if problem.classes == 0:
        return (outputs[:, 0] - targets).square() / 2
    if problem.classes == 2:
        return torch.nn.functional.binary_cross_entropy_with_logits(
            outputs[:, 0], targets.to(outputs), reduction="none"
        )
    return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


def _flat(problem: LinearProblem, x: Tensor) -> Tensor:
    """The flat vector of LinearProblem: weights row after row, then biases."""
    if not problem.bias:
        return x.flatten()
    return torch.cat([x[:, :-1].flatten(), x[:, -1]])
