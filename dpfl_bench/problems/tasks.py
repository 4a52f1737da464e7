"""Tasks: the loss of each record, by a network's outputs, and its score. `test_error` is 1 - the
mean score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -1  # target of a position that is only padding


@dataclass(frozen=True)
class Task:
    """losses(outputs, targets) -> (n,). scores(outputs, targets) -> the scores, and the largest
    scores that are possible, (n,) each.
    """

    metric: str
    losses: Callable[[Tensor, Tensor], Tensor]
    scores: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def classify() -> Task:
    """outputs (n, classes), targets (n,)."""
    return Task("accuracy", _cross_entropy, _hits)


def next_token(unknown: int | None) -> Task:
    """outputs (n, length, vocabulary), targets (n, length), IGNORED where padded. unknown: the
    token of words outside of the vocabulary; it is learnt, but never scores a hit.
    """
    return Task(
        "next_word_accuracy",
        _token_cross_entropy,
        lambda outputs, targets: _token_hits(outputs, targets, unknown),
    )


def segment() -> Task:
    """outputs (n, *volume): logits; targets (n, *volume): 0 or 1. The Dice loss, scored by the Dice
    overlap of the logits above 0 with the targets.
    """
    return Task("dice", _dice_loss, _dice)


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def _hits(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    hits = (outputs.argmax(1) == targets).to(outputs)
    return hits, torch.ones_like(hits)


def _token_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over a record's real tokens; 0 for a record without any."""
    each = functional.cross_entropy(
        outputs.transpose(1, 2), targets.long(), reduction="none", ignore_index=IGNORED
    )
    return each.sum(1) / (targets != IGNORED).sum(1).clamp(min=1)


def _token_hits(outputs: Tensor, targets: Tensor, unknown: int | None) -> tuple[Tensor, Tensor]:
    real = targets != IGNORED
    hits = (outputs.argmax(2) == targets) & real
    if unknown is not None:
        hits &= targets != unknown
    return hits.sum(1).to(outputs), real.sum(1).to(outputs)


def _dice_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 - 2 sum(p t) / (sum p + sum t) of the probabilities, smoothed by 1 so that an empty mask
    has a gradient.
    """
    p, t = outputs.sigmoid().flatten(1), targets.to(outputs).flatten(1)
    return 1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)


def _dice(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    p, t = (outputs > 0).flatten(1), (targets > 0).flatten(1)
    both, either = (p & t).sum(1), p.sum(1) + t.sum(1)
    # an empty prediction of an empty mask is right
    overlap = torch.where(either > 0, 2 * both / either.clamp(min=1), 1.0).to(outputs)
    return overlap, torch.ones_like(overlap)
