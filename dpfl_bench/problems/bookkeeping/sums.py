"""One parameter, n records: the squared norm of each record's gradient, and any weighted sum of them.

A weight that meets p positions of each record has gradients G'A, with the output's gradients G (p, o) and what came in, A (p, k). By
whichever needs least work, |G'A|^2 is

    |g|^2 |a|^2                   for a single position;
    <GG', AA'>                    for few: Gram matrices of p x p. Their terms may cancel, so they are in the widest format;
    that of the formed gradient   for many; it is kept for the sum where there is room.

Where it is formed once more for the sum, rounding may be all that is left of positions that cancel, and counts.

The sum with scales s is s times what was kept, or one product over all records and positions, (sG)'A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from dpfl_bench import device
from dpfl_bench.problems.problem import lengths

WORKING_NUMBERS = 2**19  # of a temporary tensor: what a core's caches hold
KEPT_NUMBERS = 2**24  # of formed gradients, of all layers together: 64 MB in float32
FORMING = 16  # what a formed number costs, in multiplications of a Gram matrix: written, read for its norm, read for the sum
BLOCK = 256  # numbers whose squares are summed in their own format
UNDERFLOW = 1e-20  # of a sum of squares: float32 may have lost some of it


class Found(NamedTuple):
    squares: Tensor  # (n,) |gradient_r|^2, in the widest format
    add: Callable[[Tensor, Tensor], object]  # (scales, total): total += sum_r scales_r gradient_r, flat


Gradients = Iterator[tuple[Tensor, Found]]  # of a layer's parameters


@dataclass
class Room:
    """For so many numbers that are kept."""

    numbers: int

    def take(self, numbers: int) -> bool:
        fits = numbers <= self.numbers
        self.numbers -= numbers if fits else 0
        return fits


def squares(rows: Tensor) -> Tensor:
    """|row|^2 along the first axis: (n, ...) -> (n,). Norms of short blocks lose nothing in float32 and are several times faster."""
    rows = rows.flatten(1)
    rest = rows.shape[1] % BLOCK
    if rows.shape[1] < 4 * BLOCK:
        return lengths(rows).square()
    blocks = rows[:, : rows.shape[1] - rest].reshape(len(rows), -1, BLOCK)
    found = lengths(torch.linalg.vector_norm(blocks, dim=2)).square()
    if rest:
        found += lengths(rows[:, -rest:]).square()
    small = found < UNDERFLOW
    if small.any():
        found[small] = lengths(rows[small]).square()
    return found


def formed(rows: Tensor) -> Found:
    """Of gradients as they are: (n, ...)."""
    rows = rows.flatten(1)
    return Found(squares(rows), lambda scales, total: total.addmv_(rows.t(), scales))


@dataclass(frozen=True)
class Positions:
    """What gives a weight (o, k) its gradients G'A."""

    outputs: Tensor  # G: (n, p, o)
    inputs: Callable[[slice], Tensor]  # A of some records: (m, p, k)
    width: int  # k

    def chunks(self, numbers: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some records at a time, with their G and A."""
        n, p, o = self.outputs.shape
        size = max(1, numbers // (p * max(o, self.width)))
        for start in range(0, n, size):
            some = slice(start, start + size)
            yield some, self.outputs[some], self.inputs(some)


def over_positions(positions: Positions, room: Room) -> Found:
    n, p, o = positions.outputs.shape
    k, add = positions.width, partial(_add_products, positions)
    chunks = positions.chunks(WORKING_NUMBERS)
    if p * p * (o + k) < FORMING * o * k:
        return Found(torch.cat([_gram_squares(g, a) for _, g, a in chunks]), add)
    if not room.take(n * o * k):
        return Found(torch.cat([squares(g.transpose(1, 2) @ a) + _rounding(lengths(g), lengths(a), g) for _, g, a in chunks]), add)
    rows = positions.outputs.new_empty(n, o, k)
    for some, g, a in chunks:
        torch.bmm(g.transpose(1, 2), a, out=rows[some])
    return formed(rows)


def _gram_squares(g: Tensor, a: Tensor) -> Tensor:
    """<GG', AA'> of each record."""
    wide = device.wide(g.device)
    gg, aa = (torch.bmm(rows, rows.transpose(1, 2)) for rows in (g.to(wide), a.to(wide)))
    each_g, each_a = (found.diagonal(dim1=1, dim2=2).sqrt() for found in (gg, aa))
    return (gg * aa).sum((1, 2)).clamp(min=0) + _rounding(each_g, each_a, g)


def _rounding(g: Tensor, a: Tensor, like: Tensor) -> Tensor:
    """The square of what a sum over positions in the format of `like` errs by: of |g| and |a| of each position, (n, p) -> (n,)."""
    return (g.shape[1] * torch.finfo(like.dtype).eps * (g * a).sum(1)).square()


def _add_products(positions: Positions, scales: Tensor, total: Tensor) -> None:
    for some, g, a in positions.chunks(max(WORKING_NUMBERS, 4 * total.numel())):  # each chunk reads and writes the total
        add_product(g, a, scales[some, None, None], total)


def add_product(g: Tensor, a: Tensor, scales: Tensor, total: Tensor) -> None:
    """total += (sG)'A. g: (m, ..., o), a: (m, ..., k), scales: (m, 1, ...), total: (o k,)."""
    o, k = g.shape[-1], a.shape[-1]
    g, a = (g * scales, a) if o < k else (g, a * scales)
    total.view(o, k).addmm_(g.reshape(-1, o).t(), a.reshape(-1, k))
