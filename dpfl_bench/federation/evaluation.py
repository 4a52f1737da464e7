"""Losses and scores of a model on the clients' training records and on the test set, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dpfl_bench.federation.clients import Federation
from dpfl_bench.problems.problem import Problem, Scored, in_dtype

BATCH_NUMBERS = 2**22  # features evaluated at once


@dataclass(frozen=True)
class Scores:
    train_loss: float  # the objective: mean over clients of their mean loss, + l2/2 |x|^2
    test_loss: float  # mean over records, without l2
    test_metric: float  # the problem's: accuracy, next-word accuracy, Dice; R^2, the share of the targets' variance that is explained
    client_metric: float = float("nan")  # mean over natural clients of the metric on their own test records, where they have some

    @property
    def test_error(self) -> float:
        return 1 - self.test_metric


def evaluate(problem: Problem, federation: Federation, x: Tensor) -> Scores:
    """Without a test set (some synthetic problems) the training records stand in for it."""
    ridge = problem.l2 / 2 * x.square().sum().item()
    train = _scored(problem, federation.features, federation.targets, x, federation.record_weights.dtype)
    train_loss = (federation.record_weights * train.losses).sum().item() + ridge
    if len(federation.test_targets) == 0:
        return Scores(train_loss, train_loss, _metric(problem, train, federation.targets))
    test = _scored(problem, federation.test_features, federation.test_targets, x, train.losses.dtype)
    metric = _metric(problem, test, federation.test_targets)
    return Scores(train_loss, test.losses.mean().item(), metric, _of_clients(problem, test, federation))


def _scored(problem: Problem, features: Tensor, targets: Tensor, x: Tensor, wide: torch.dtype) -> Scored:
    """(n,) each, in a wide format, so that sums over many records are exact enough to compare."""
    found = [problem.losses(x, in_dtype(f, x.dtype), t) for f, t in _batches(features, targets)]
    return Scored(*(torch.cat(parts).to(wide) for parts in zip(*found, strict=True)))


def _batches(features: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    size = max(1, BATCH_NUMBERS // max(1, features[0].numel()))
    for start in range(0, len(targets), size):
        yield features[start : start + size], targets[start : start + size]


def _of_clients(problem: Problem, found: Scored, federation: Federation) -> float:
    if federation.test_owners is None or problem.metric == "r2":
        return float("nan")
    known = federation.test_owners >= 0  # a test record's owner may have no training records
    owners, sums = federation.test_owners[known], found.scores.new_zeros(2, federation.clients)
    sums[0].index_add_(0, owners, found.scores[known])
    sums[1].index_add_(0, owners, found.counts[known])
    return (sums[0] / sums[1])[sums[1] > 0].mean().item()


def _metric(problem: Problem, found: Scored, targets: Tensor) -> float:
    if problem.metric != "r2":
        return (found.scores.sum() / found.counts.sum()).item()
    centred = targets.to(found.scores) - targets.to(found.scores).mean()
    return 1 - (found.scores.sum() / centred.square().sum()).item()
