"""Neighbouring federations at record level: the same but for one record, wherever it is held.

In data space its features and its target are others. In gradient space its gradient is whatever
vector is asked for; the gradient door is told that vector's norm, and its factor is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.audit.watched_lots import MarkedBatch, MarkedFederation, Through
from dpfl_bench.audit.worlds import FAR, WIDE
from dpfl_bench.federation.clients import Federation
from dpfl_bench.problems.problem import Batch, Factors, Problem, lengths

FACTORS = {"extreme": WIDE, "extreme the other way": -WIDE, "the largest": 1e300}


@dataclass(frozen=True)
class RecordWorld:
    name: str
    federation: Federation
    gradient: Tensor | None = None  # of the record, (d,); None: the one that its data give


def neighbours(federation: Federation, rows: np.ndarray, direction: Tensor, clip: float) -> list[RecordWorld]:
    """Worlds that differ in one record. rows: its places in the store, one for each holder.
    direction: (d,), of norm 1.
    """
    own = MarkedFederation(federation)
    planted = {
        "zero": 0 * direction,
        "just beyond C": 1.001 * clip * direction,
        "just beyond C the other way": -1.001 * clip * direction,
        "just within C the other way": -0.999 * clip * direction,
        "far": FAR * clip * direction,
        "far the other way": -FAR * clip * direction,
        "not finite": torch.full_like(direction, float("nan")),
        "the largest numbers": direction.sign() * torch.finfo(direction.dtype).max,
    }
    listed = [RecordWorld(name, own, gradient) for name, gradient in planted.items()]
    return listed + [RecordWorld(name, made) for name, made in _of_data(federation, rows).items()]


def _of_data(federation: Federation, rows: np.ndarray) -> dict[str, Federation]:
    count, first = len(federation.targets), int(rows[0])
    another, third = (first + count // 2) % count, (first + count // 3 + 1) % count
    made = {
        "another record": _changed(federation, rows, lambda x: x[another], another),
        "a third record": _changed(federation, rows, lambda x: x[third], third),
        "another target": _changed(federation, rows, lambda x: x[first], another),
        "another's features": _changed(federation, rows, lambda x: x[third], first),
    }
    if federation.features.is_floating_point():
        for name, factor in FACTORS.items():
            times = partial(_times, first, factor)
            made[f"{name} features"] = _changed(federation, rows, times, first)
            made[f"{name} features, another target"] = _changed(federation, rows, times, another)
    return made


def _times(row: int, factor: float, features: Tensor) -> Tensor:
    most = torch.finfo(features.dtype).max  # data are finite
    return (features[row] * factor).clamp(-most, most)


def _changed(
    federation: Federation, rows: np.ndarray, features: Callable[[Tensor], Tensor], target: int
) -> Federation:
    """The record has other features, and the target of another one."""
    changed = MarkedFederation(federation)
    changed.features, changed.targets = federation.features.clone(), federation.targets.clone()
    for row in rows:
        changed.features[row] = features(federation.features)
        changed.targets[row] = federation.targets[target]
    return changed


class OneCanary(Through):
    """One record's gradient is `gradient`, (d,); the others' are what their data give."""

    def __init__(self, problem: Problem, rows: np.ndarray, gradient: Tensor):
        super().__init__(problem)
        self.rows, self.canary = torch.from_numpy(rows), gradient

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        return self.clipped_gradient(y, batch, lambda norms, _: torch.ones_like(norms))[0]

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        marked = cast(MarkedBatch, batch)
        here = torch.isin(marked.rows, self.rows.to(marked.rows.device)) & (batch.weights > 0)
        scale = y.new_zeros(len(y))

        def told(norms: Tensor, weights: Tensor) -> Tensor:
            nonlocal scale
            found = factors(norms.where(~here, lengths(self.canary).to(norms)), weights)
            scale = (found * weights).where(here, 0).sum(1).to(y)
            return found.where(~here, 0)

        gradient, norms = self.problem.clipped_gradient(y, batch, told)
        added = scale.unsqueeze(1) * self.canary
        return gradient + added.where(scale.unsqueeze(1) != 0, 0), norms


def holders_of(parts: list[np.ndarray], record: int) -> np.ndarray:
    """The places of a record in the flat store, one for each client that holds it."""
    places: np.ndarray = np.flatnonzero(np.concatenate(parts) == record)
    return places
