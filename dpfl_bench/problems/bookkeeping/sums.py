"""One parameter, n records: the norm of each record's gradient, and any weighted sum of them.

A weight that meets p positions of each record has gradients G'A, with the output's gradients G (p,
o) and what came in, A (p, k). By whichever needs least work, |G'A|^2 is

    |g|^2 |a|^2                   for a single position;
    <GG', AA'>                    for few: Gram matrices of p x p. Their terms may cancel, so they are in the widest format;
    that of the formed gradient   for many; it is kept for the sum where there is room.

Where it is formed once more for the sum, rounding may be all that is left of positions that cancel,
and counts.

The sum with scales s is s times what was kept, or one product over all records and positions,
(sG)'A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from dpfl_bench.machine import device
from dpfl_bench.problems.problem import LONGEST, beyond, lengths
from dpfl_bench.problems.products import bmm

WORKING_NUMBERS = 2**19  # of a temporary tensor: what a core's caches hold
KEPT_NUMBERS = 2**24  # of formed gradients, of all layers together: 64 MB in float32
# what a formed number costs, in multiplications of a Gram matrix: written, read for its norm, read
# for the sum
FORMING = 16
BLOCK = 256  # numbers whose squares are summed in their own format


class Found(NamedTuple):
    lengths: Sequence[Tensor]  # (n, k) each: |gradient_r|^2 is the sum of their squares
    add: Callable[[Tensor, Tensor], object]  # (scales, total): total += sum_r scales_r gradient_r, flat


Gradients = Iterator[tuple[str, Found]]  # of a layer's parameters, by name


@dataclass
class Room:
    """For so many numbers that are kept."""

    numbers: int

    def take(self, numbers: int) -> bool:
        fits = numbers <= self.numbers
        self.numbers -= numbers if fits else 0
        return fits


def lengths_of(rows: Tensor) -> list[Tensor]:
    """(n, numbers) -> those of blocks, or few numbers as they are: blocks lose nothing in float32
    and are several times faster than its

    widening. Squares below 1e-45 are lost, of no account beside a bound of 1e-12 and more.
    """
    n, numbers = rows.shape
    if numbers <= BLOCK:
        return [rows]
    whole, rest = divmod(numbers, BLOCK)
    blocks = (rows[:, :-rest] if rest else rows).reshape(n, whole, BLOCK)
    found = torch.linalg.vector_norm(blocks, dim=2)
    return [found, *lengths_of(rows[:, -rest:])] if rest else [found]


def norms(rows: Tensor) -> Tensor:
    """(n, numbers) -> (n, 1)."""
    found: Tensor = torch.linalg.vector_norm(
        torch.cat(lengths_of(rows), 1) if rows.shape[1] > BLOCK else rows, dim=1, keepdim=True
    )
    return found


def formed(rows: Tensor) -> Found:
    """Of gradients as they are: (n, numbers)."""
    return Found(lengths_of(rows), lambda scales, total: total.addmv_(rows.t(), scales))


@dataclass(frozen=True)
class Positions:
    """What gives a weight (o, k) its gradients G'A."""

    outputs: Tensor  # G: (n, p, o)
    inputs: Callable[[slice], Tensor]  # A of some records: (m, p, k)
    width: int  # k

    def chunks(self, numbers: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some records at a time, with their G and A."""
        n, p, o = self.outputs.shape
        for some in pieces(n, p * max(o, self.width), numbers):
            yield some, self.outputs[some], self.inputs(some)


def pieces(n: int, each: int, numbers: int) -> Iterator[slice]:
    """Of n records, as many at a time as have so many numbers together."""
    size = max(1, numbers // each)
    return (slice(start, start + size) for start in range(0, n, size))


def are_few(positions: int, o: int, k: int) -> bool:
    """Whether Gram matrices are less work than gradients."""
    return positions**2 * (o + k) < FORMING * o * k


def over_positions(positions: Positions, room: Room) -> Found:
    n, p, o = positions.outputs.shape
    k, add, chunks = positions.width, partial(_add_products, positions), positions.chunks(WORKING_NUMBERS)
    if are_few(p, o, k):
        return Found(joined(_gram_lengths(g, a) for _, g, a in chunks), add)
    if not room.take(n * o * k):
        return Found(joined(_formed_lengths(g, a) for _, g, a in chunks), add)
    rows = positions.outputs.new_empty(n, o, k)
    for some, g, a in chunks:
        bmm(g.transpose(1, 2), a, out=rows[some])
    return formed(rows.flatten(1))


def joined(pieces: Iterable[Sequence[Tensor]]) -> Sequence[Tensor]:
    """Those of all records, from those of some at a time."""
    return [torch.cat(some) for some in zip(*pieces, strict=True)]


def _formed_lengths(g: Tensor, a: Tensor) -> Sequence[Tensor]:
    """Of each record's gradient, formed for the moment."""
    return [*lengths_of(bmm(g.transpose(1, 2), a).flatten(1)), rounding(lengths(g), lengths(a), g.dtype)]


def _gram_lengths(g: Tensor, a: Tensor) -> Sequence[Tensor]:
    """<GG', AA'> of each record."""
    wide = device.wide(g.device)
    gg, aa = (bmm(rows, rows.transpose(1, 2)) for rows in (g.to(wide), a.to(wide)))
    each_g, each_a = (found.diagonal(dim1=1, dim2=2).sqrt() for found in (gg, aa))
    return [(gg * aa).sum((1, 2)).clamp(min=0).sqrt()[:, None], rounding(each_g, each_a, g.dtype)]


def rounding(g: Tensor, a: Tensor, dtype: torch.dtype) -> Tensor:
    """What a sum over positions in this format errs by: of |g| and |a| of each position, (n, p) ->
    (n, 1). NaN where a is `beyond`.
    """
    found: Tensor = g.shape[1] * torch.finfo(dtype).eps * (g * a).sum(1, keepdim=True)
    return found + beyond(a.amax(1, keepdim=True), dtype) if a.max().item() > LONGEST[dtype] else found


def _add_products(positions: Positions, scales: Tensor, total: Tensor) -> None:
    for some, g, a in positions.chunks(
        max(WORKING_NUMBERS, 4 * total.numel())
    ):  # each chunk reads and writes the total
        add_product(g, a, scales[some, None, None], total)


def add_product(g: Tensor, a: Tensor, scales: Tensor, total: Tensor) -> None:
    """total += (sG)'A. g: (m, ..., o), a: (m, ..., k), scales: (m, 1, ...), total: (o k,)."""
    o, k = g.shape[-1], a.shape[-1]
    g, a = (g * scales, a) if o < k else (g, a * scales)
    total.view(o, k).addmm_(g.reshape(-1, o).t(), a.reshape(-1, k))
