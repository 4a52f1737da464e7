"""Neighbouring federations: the same but for what one client holds.

In gradient space a client offers to the door whatever update is asked for. In data space its
records are others, or it has more or fewer of them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.audit.watched import Offer
from dpfl_bench.federation.clients import Federation

FAR = 1e3  # an update so many times C is surely bounded
WIDE = 1e4  # factor of the features of extreme records


@dataclass(frozen=True)
class World:
    name: str
    federation: Federation  # whose records the client has
    update: Tensor | None = None  # what it offers, (d,); None: its local work


def neighbours(federation: Federation, client: int, direction: Tensor, clip: float) -> list[World]:
    """Worlds that differ in this one client. direction: (d,), of norm 1."""
    up = FAR * clip * direction
    more, fewer = with_count(federation, client, 2.0), with_count(federation, client, 0.5)
    largest = torch.finfo(up.dtype).max
    return [
        World("zero", federation, torch.zeros_like(up)),
        World("far", federation, up),
        World("far the other way", federation, -up),
        World("half of C the other way", federation, -0.5 * clip * direction),
        World("just within C", federation, 0.999 * clip * direction),
        World("not finite", federation, torch.full_like(up, float("nan"))),
        World("the largest numbers", federation, torch.sign(direction) * largest),
        World("far, twice the records", more, up),
        World("far the other way, twice the records", more, -up),
        World("far the other way, half the records", fewer, -up),
        World("extreme records", with_records(federation, client, WIDE)),
        World("extreme records the other way", with_records(federation, client, -WIDE)),
    ]


def offering(rows: Mapping[int, Tensor], client: int, update: Tensor) -> Offer:
    """Every client offers what it did in the world as it is, and this one another update."""

    def offer(clients: np.ndarray, work: object) -> Tensor:
        return torch.stack([update if i == client else rows[int(i)] for i in clients])

    return offer


def _rows_of(federation: Federation, client: int) -> slice:
    return slice(int(federation.offsets[client]), int(federation.offsets[client + 1]))


def with_records(federation: Federation, client: int, factor: float) -> Federation:
    """The client's features times a factor, where they are numbers, and its targets in reverse."""
    rows, changed = _rows_of(federation, client), _copied(federation)
    if changed.features.is_floating_point():
        changed.features = changed.features.clone()
        changed.features[rows] *= factor
    changed.targets = changed.targets.clone()
    changed.targets[rows] = changed.targets[rows].flip(0)
    return changed


def with_count(federation: Federation, client: int, factor: float) -> Federation:
    """The client has so many times its records: some of them again, or only the first ones. A lot
    of fixed size stays possible.
    """
    rows, size = _rows_of(federation, client), int(federation.sizes[client])
    count = max(1, federation.lots.batch_size or 1, round(size * factor))
    picked = torch.arange(count, device=federation.features.device) % size + rows.start
    after = slice(rows.stop, None)
    changed = _copied(federation)
    changed.features, changed.targets = (
        torch.cat([store[: rows.start], store[picked], store[after]])
        for store in (federation.features, federation.targets)
    )
    changed.sizes = federation.sizes.copy()
    changed.sizes[client] = count
    changed.offsets = np.concatenate([[0], np.cumsum(changed.sizes)])
    return changed


def _copied(federation: Federation) -> Federation:
    changed = copy.copy(federation)
    changed._full_batch = None  # of the other federation's records
    return changed
