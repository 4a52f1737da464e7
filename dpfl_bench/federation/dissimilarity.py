"""How different the clients' gradients are at one model (`dpscaffold`, appendix D.3): a diagnostic
without noise, for simulation.

F_i is client i's loss with its ridge term, F the mean over the clients. Clients are added up group
by group, in the groups' order, so no bit depends on how many workers there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.crew import GradientSums
from dpfl_bench.federation.evaluation import slices
from dpfl_bench.federation.round_player import most_groups
from dpfl_bench.machine import device
from dpfl_bench.problems.problem import Batch, Problem, in_dtype


class Dissimilarity(NamedTuple):
    difference: float  # mean over clients of |grad F_i|^2, minus |grad F|^2
    log_ratio: float  # ln of the one over the other; infinite where grad F is 0


def dissimilarity(sums: Iterable[GradientSums], clients: int) -> Dissimilarity:
    """Of all clients, from the sums of their groups."""
    gradients, squares = (sum(column) for column in zip(*sums, strict=True))
    each, mean = float(squares) / clients, float((gradients / clients).square().sum())
    ratio = each / mean if mean > 0 else math.inf
    # equal gradients differ by rounding alone, of either sign
    return Dissimilarity(max(0.0, each - mean), math.log(ratio) if ratio > 0 else math.nan)


def groups(problem: Problem, federation: Federation) -> list[np.ndarray]:
    """All clients' indices, cut into groups."""
    everyone = np.arange(federation.clients)
    return np.array_split(everyone, min(len(everyone), most_groups(problem.dimension)))


@np.errstate(all="ignore")  # `experiment.train` reports a model that diverges
def sums_of(problem: Problem, federation: Federation, x: Tensor, clients: np.ndarray) -> GradientSums:
    """Over the clients of these indices, (c,), at the model x, (d,)."""
    wide = device.wide(x.device)
    total, squares = torch.zeros_like(x, dtype=wide), x.new_zeros((), dtype=wide)
    for client in clients:
        gradient = _gradient(problem, federation, x, int(client))
        total += gradient
        squares += gradient.square().sum()
    return GradientSums(total, squares)


def _gradient(problem: Problem, federation: Federation, x: Tensor, client: int) -> Tensor:
    """grad F_i at x, some of the client's records at a time."""
    wide = device.wide(x.device)
    start, end = (int(place) for place in federation.offsets[client : client + 2])
    size = slices(problem, federation, False)[0].stop
    total = problem.l2 * x.to(wide)
    for first in range(start, end, size):
        piece = slice(first, min(first + size, end))
        features = in_dtype(federation.features[piece], x.dtype)
        weights = x.new_full((1, len(features)), 1 / (end - start))
        batch = Batch(features[None], federation.targets[piece][None], weights, [len(features)])
        total += (problem.gradient(x[None], batch)[0] - problem.l2 * x).to(wide)
    return total
