"""Losses and scores of a model on the clients' training records and on the test set, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.federation.clients import Federation
from dpfl_bench.problems.problem import Problem, Scored, in_dtype

BATCH_NUMBERS = 2**18  # features evaluated at once: as many as a core's cache likes
NAN = float("nan")
OUTPUT_NUMBERS = 2**23  # outputs of the model computed at once


@dataclass(frozen=True)
class Scores:
    """How good one model is."""

    # the objective: mean over clients of their mean loss, + l2/2 |x|^2; NaN if no training record
    # is scored, an estimate if some are
    train_loss: float
    test_loss: float  # mean over records, without l2
    # accuracy, next-word accuracy or Dice; in regression R^2, the share of the targets' variance
    # that the model explains
    test_metric: float
    # where clients are the data's own: mean over clients of the metric on their own test records
    client_metric: float = NAN
    train_metric: float = NAN  # the same on all training records

    @property
    def test_error(self) -> float:
        return 1 - self.test_metric


# (x, (d,); test) -> losses and scores of each test record, or of each training record
Losses = Callable[[Tensor, bool], Scored]


def evaluate(
    problem: Problem, federation: Federation, x: Tensor, losses: Losses | None = None, train: bool = True
) -> Scores:
    """How good the model x, (d,), is. Where there is no test set (some synthetic problems), what is
    of one is NaN.

    losses: computes losses and scores; None: this process does. train: whether training records
    are scored too.
    """
    losses = losses or (lambda x, test: scored(problem, federation, x, test))
    train_loss = fit = NAN
    if train:
        scores = losses(x, False)
        ridge = problem.l2 / 2 * x.square().sum().item()
        train_loss = (federation.scored_weights * scores.losses).sum().item() + ridge
        rows = slice(None) if federation.scored is None else federation.scored
        fit = _metric(problem, scores, federation.targets[rows])
    if len(federation.test_targets) == 0:
        return Scores(train_loss, NAN, NAN, NAN, fit)
    test = losses(x, True)
    metric = _metric(problem, test, federation.test_targets)
    return Scores(train_loss, test.losses.mean().item(), metric, _of_clients(problem, test, federation), fit)


def mean_loss_of(problem: Problem, federation: Federation, x: Tensor, client: int) -> float:
    """One client's loss at the model x, (d,): the mean over all its training records, + l2/2
    |x|^2.
    """
    start, end = (int(place) for place in federation.offsets[client : client + 2])
    size = _batch(problem, federation, False)
    pieces = [slice(at, min(at + size, end)) for at in range(start, end, size)]
    losses = together(_scored_rows(problem, federation, x, False, piece) for piece in pieces).losses
    return losses.mean().item() + problem.l2 / 2 * x.square().sum().item()


def scored(problem: Problem, federation: Federation, x: Tensor, test: bool) -> Scored:
    """Losses and scores of each training record, or of each test record, at the model x, (d,)."""
    return together(
        scored_slice(problem, federation, x, test, part) for part in slices(problem, federation, test)
    )


def slices(problem: Problem, federation: Federation, test: bool) -> list[slice]:
    """The batches in which records are evaluated."""
    size = _batch(problem, federation, test)
    return [slice(start, start + size) for start in range(0, _count(federation, test), size)]


def sizes(problem: Problem, federation: Federation, test: bool) -> list[int]:
    """How many records the batches have."""
    count = _count(federation, test)
    return [min(part.stop, count) - part.start for part in slices(problem, federation, test)]


def _batch(problem: Problem, federation: Federation, test: bool) -> int:
    """How many records are evaluated at once."""
    features, targets = (store[:1] for store in _stores(federation, test))
    width, height = features.numel(), targets.numel() * max(1, problem.classes)
    return max(1, min(BATCH_NUMBERS // max(1, width), OUTPUT_NUMBERS // max(1, height)))


def scored_slice(problem: Problem, federation: Federation, x: Tensor, test: bool, part: slice) -> Scored:
    """`scored` for some records, in a wide number format, so that sums over many records are exact
    enough to compare.
    """
    rows = part if test or federation.scored is None else federation.scored[part]
    return _scored_rows(problem, federation, x, test, rows)


@np.errstate(all="ignore")  # `experiment.train` reports a model that diverges
def _scored_rows(
    problem: Problem, federation: Federation, x: Tensor, test: bool, rows: slice | Tensor
) -> Scored:
    features, targets = (store[rows] for store in _stores(federation, test))
    results = problem.losses(x, in_dtype(features, x.dtype), targets)
    return Scored(*(each.to(federation.record_weights.dtype) for each in results))


def together(parts: Iterable[Scored]) -> Scored:
    """One after the other."""
    return Scored(*(torch.cat(each) for each in zip(*parts, strict=True)))


def _stores(federation: Federation, test: bool) -> tuple[Tensor, Tensor]:
    """Features and targets of all records, scored or not."""
    if test:
        return federation.test_features, federation.test_targets
    return federation.features, federation.targets


def _count(federation: Federation, test: bool) -> int:
    """How many records are scored."""
    rows = None if test else federation.scored
    return len(_stores(federation, test)[1]) if rows is None else len(rows)


def _of_clients(problem: Problem, test: Scored, federation: Federation) -> float:
    if federation.test_owners is None or problem.metric == "r2":
        return float("nan")
    known = federation.test_owners >= 0  # a test record's owner may have no training records
    owners, sums = federation.test_owners[known], test.scores.new_zeros(2, federation.clients)
    sums[0].index_add_(0, owners, test.scores[known])
    sums[1].index_add_(0, owners, test.counts[known])
    return (sums[0] / sums[1])[sums[1] > 0].mean().item()


def _metric(problem: Problem, test: Scored, targets: Tensor) -> float:
    if problem.metric != "r2":
        return (test.scores.sum() / test.counts.sum()).item()
    centred = targets.to(test.scores) - targets.to(test.scores).mean()
    return 1 - (test.scores.sum() / centred.square().sum()).item()
