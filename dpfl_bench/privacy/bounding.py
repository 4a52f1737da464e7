"""How the norm of an update is bounded by C: clip or normalise.

After either, one client moves the sum by at most C (add_remove_one, as zero-out) or 2C
(replace_one), up to the rounding of each entry. Norms are therefore summed in the widest format: in
float32 the norm of a hundred million numbers comes out 1 % too small, or 40 % too small if somebody
chose the numbers for that.

An update with a NaN or an infinity in it has no length. It counts as zero, so that no client's data
decide how a run ends.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dpfl_bench.machine import device
from dpfl_bench.problems.problem import lengths

# Scales below this become 0. Times a weight, or near the end of float32's range, such a scale
# would be rounded by half of itself and more.
NEGLIGIBLE = 1e-25


class Bounded(NamedTuple):
    rows: Tensor  # (c, d)
    norms: Tensor  # (c,): before bounding; 0 where the row is not finite
    blanked: Tensor | int  # number of rows that are not finite and count as zero


def scales(norms: Tensor, bound: float | Tensor) -> Tensor:
    """min(1, C / norm), and 0 where that is negligible or the norm is not finite. norms: (c,);
    bound: C, one for all or (c,) -> (c,). Both doors, for updates and for gradients, bound by this
    alone.
    """
    factors = bound / norms.clamp(min=bound)  # 1 where norm <= C, without dividing by zero
    return factors.where(factors > NEGLIGIBLE, 0)


def measured(updates: Tensor) -> Bounded:
    """Rows with their norms in the widest format, not bounded yet; rows that are not finite become
    zeros. updates: (c, d).
    """
    norms = lengths(updates)
    if not device.apart(norms) and math.isfinite(norms.sum().item()):
        return Bounded(updates, norms, 0)
    finite = updates.isfinite().all(1)
    rows = updates.where(finite.unsqueeze(1), 0)
    scaled, largest = _by_largest(rows)  # the squares of finite numbers overflow too
    long = (largest.squeeze(1).to(norms) * lengths(scaled)).clamp(max=torch.finfo(norms.dtype).max)
    return Bounded(rows, norms.where(norms.isfinite(), long), (~finite).sum())


def clip(updates: Tensor, bound: float) -> Bounded:
    """min(1, C / ||u||) u for each row u. updates: (c, d); bound: C."""
    norms = lengths(updates)
    factors = scales(norms, bound)
    if not device.apart(factors) and factors.min().item() > 0:
        return Bounded(updates * factors.to(updates).unsqueeze(1), norms.to(updates), 0)
    rows, norms, blanked = measured(updates)
    factors = scales(norms, bound)
    scaled, _ = _by_largest(rows)
    short = scaled * (bound / lengths(scaled).clamp(min=1)).to(rows).unsqueeze(1)  # 1: of a row of zeros
    rows = (rows * factors.to(rows).unsqueeze(1)).where(factors.unsqueeze(1) > 0, short)
    return Bounded(rows, _in_format(norms, rows), blanked)


def normalise(updates: Tensor, bound: float) -> Bounded:
    """C u / ||u|| for each row u. A zero row becomes C (1, ..., 1) / sqrt(d), because the paper
    leaves the direction of 0 undefined. updates: (c, d); bound: C.
    """
    rows, norms, blanked = measured(updates)
    result = torch.empty_like(rows)
    for few, written in zip(device.in_cache(rows), device.in_cache(result), strict=True):
        _to_length(few, bound, written)
    return Bounded(result, _in_format(norms, rows), blanked)


def _to_length(rows: Tensor, bound: float, result: Tensor) -> None:
    """Finite rows, each stretched to length C, into `result`. rows, result: (c, d)."""
    largest = rows.abs().amax(dim=1, keepdim=True)  # its norm tells no tiny row from 0: squares underflow
    torch.div(rows, largest.where(largest > 0, 1), out=result)
    if device.apart(largest) or not largest.min().item() > 0:
        result.masked_fill_(largest == 0, 1)
    result.mul_((bound / lengths(result)).to(rows).unsqueeze(1))


def _by_largest(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(each row divided by its largest entry, the largest entries, (c, 1)). The norms of the
    divided rows neither underflow nor overflow.
    """
    largest = rows.abs().amax(dim=1, keepdim=True)
    return rows / largest.where(largest > 0, 1), largest


def _in_format(norms: Tensor, like: Tensor) -> Tensor:
    """The norms in the format of `like`; a finite norm stays finite."""
    return norms.clamp(max=torch.finfo(like.dtype).max).to(like)
