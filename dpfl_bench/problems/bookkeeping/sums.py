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

from collections.abc import Callable, Iterable, Iterator, Sequence
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


class Found(NamedTuple):
    lengths: Sequence[Tensor]  # (n, k) each: |gradient_r|^2 is the sum of their squares
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


def lengths_of(rows: Tensor) -> Sequence[Tensor]:
    """(n, numbers) -> those of blocks: they lose nothing in float32 and are several times faster than its widening.

    Squares below 1e-45 are lost, of no account beside a bound of 1e-12 and more.
    """
    n, numbers = rows.shape
    if numbers <= BLOCK:
        return [torch.linalg.vector_norm(rows, dim=1, keepdim=True)]
    whole, rest = divmod(numbers, BLOCK)
    blocks = (rows[:, :-rest] if rest else rows).reshape(n, whole, BLOCK)
    found = torch.linalg.vector_norm(blocks, dim=2)
    return [found, *lengths_of(rows[:, -rest:])] if rest else [found]


def formed(rows: Tensor) -> Found:
    """Of gradients as they are: (n, ...)."""
    rows = rows.flatten(1)
    return Found(lengths_of(rows), lambda scales, total: total.addmv_(rows.t(), scales))


@dataclass(frozen=True)
class Positions:
    """What gives a weight its gradients G'[A_1 A_2 ...]: (o, w) each, one after the other in memory."""

    outputs: Tensor  # G: (n, p, o)
    inputs: Callable[[slice], Sequence[Tensor]]  # A_1, A_2, ... of some records: (m, p, w)
    width: int  # w
    parts: int = 1

    @classmethod
    def of(cls, g: Tensor, a: Tensor) -> Positions:
        """(n, p, o), (n, p, w)."""
        return cls(g, lambda some: [a[some]], a.shape[2])

    def chunks(self, numbers: int) -> Iterator[tuple[slice, Tensor, Sequence[Tensor]]]:
        """Some records at a time, with their G and A."""
        n, p, o = self.outputs.shape
        size = max(1, numbers // (p * max(o, self.width)))
        for start in range(0, n, size):
            some = slice(start, start + size)
            yield some, self.outputs[some], self.inputs(some)


def over_positions(positions: Positions, room: Room) -> Found:
    n, p, o = positions.outputs.shape
    w, parts, add = positions.width, positions.parts, partial(_add_products, positions)
    k, chunks = parts * w, positions.chunks(WORKING_NUMBERS)
    if p * p * (o + k) < FORMING * o * k:
        return Found(joined(_gram_lengths(g, a) for _, g, a in chunks), add)
    if not room.take(n * o * k):
        return Found(joined(_formed_lengths(g, a) for _, g, a in chunks), add)
    rows = positions.outputs.new_empty(parts, n, o, w)
    for some, g, a in chunks:
        across = g.transpose(1, 2)
        for part, inputs in zip(rows, a, strict=True):
            torch.bmm(across, inputs, out=part[some] if len(g) < n else part)
    return _formed_in_parts(rows.view(parts, n, o * w))


def _formed_in_parts(rows: Tensor) -> Found:
    """(parts, n, numbers)."""
    parts, n, _ = rows.shape

    def add(scales: Tensor, total: Tensor) -> None:
        for part, into in zip(rows, total.view(parts, -1), strict=True):
            into.addmv_(part.t(), scales)

    return Found([length for some in lengths_of(rows.flatten(0, 1)) for length in some.view(parts, n, -1)], add)


def joined(pieces: Iterable[Sequence[Tensor]]) -> Sequence[Tensor]:
    """Those of all records, from those of some at a time."""
    return [torch.cat(some) for some in zip(*pieces, strict=True)]


def _formed_lengths(g: Tensor, a: Sequence[Tensor]) -> Sequence[Tensor]:
    """Of each record's gradient, formed for the moment."""
    across = g.transpose(1, 2)
    found = [length for part in a for length in lengths_of(torch.bmm(across, part).flatten(1))]
    return [*found, _rounding(lengths(g), lengths(torch.stack([lengths(part) for part in a], -1)), g)]


def _gram_lengths(g: Tensor, a: Sequence[Tensor]) -> Sequence[Tensor]:
    """<GG', AA'> of each record."""
    wide = device.wide(g.device)
    gg, *parts = (torch.bmm(rows, rows.transpose(1, 2)) for rows in (t.to(wide) for t in (g, *a)))
    aa = parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
    each_g, each_a = (found.diagonal(dim1=1, dim2=2).sqrt() for found in (gg, aa))
    return [(gg * aa).sum((1, 2)).clamp(min=0).sqrt()[:, None], _rounding(each_g, each_a, g)]


def _rounding(g: Tensor, a: Tensor, like: Tensor) -> Tensor:
    """What a sum over positions in the format of `like` errs by: of |g| and |a| of each position, (n, p) -> (n, 1)."""
    return g.shape[1] * torch.finfo(like.dtype).eps * (g * a).sum(1, keepdim=True)


def _add_products(positions: Positions, scales: Tensor, total: Tensor) -> None:
    for some, g, a in positions.chunks(max(WORKING_NUMBERS, 4 * total.numel())):  # each chunk reads and writes the total
        for part, inputs in zip(total.view(positions.parts, -1), a, strict=True):
            add_product(g, inputs, scales[some, None, None], part)


def add_product(g: Tensor, a: Tensor, scales: Tensor, total: Tensor) -> None:
    """total += (sG)'A. g: (m, ..., o), a: (m, ..., w), scales: (m, 1, ...), total: (o w,)."""
    o, w = g.shape[-1], a.shape[-1]
    g, a = (g * scales, a) if o < w else (g, a * scales)
    total.view(o, w).addmm_(g.reshape(-1, o).t(), a.reshape(-1, w))
