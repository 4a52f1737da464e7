"""One parameter, n records: the norm of each record's gradient, and any weighted sum of the
gradients.

A weight acts on p positions of each record. A record's gradient is G'A, with G (p, o), the loss's
gradients by the outputs, and A (p, k), the inputs. |G'A|^2 is computed in the way that needs least
work:

    |g|^2 |a|^2                     for a single position;
    <GG', AA'>                      for few: Gram matrices, p x p. Their terms may cancel, so they
                                    are computed in the widest number format;
    the formed gradient's square    for many. The gradient is kept for the sum where there is room.

Where there is no room, the gradient is formed once more for the sum. If the positions cancel, the
rounding error may be all that is left, and it may differ the second time. So the rounding error is
added to the norm, and the bound still holds.

The sum with scales s is s times the kept gradients, or one product over all records and positions,
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

WORKING_NUMBERS = 2**19  # size of a temporary tensor: as much as a core's caches hold
KEPT_NUMBERS = 2**24  # size of all kept gradients together: 64 MB in float32
# how many multiplications of a Gram matrix one number of a formed gradient costs: it is written,
# read for the norm and read for the sum
FORMING = 16
BLOCK = 256  # how many squares are summed in the numbers' own format


class ParameterGradients(NamedTuple):
    """The gradients of one parameter by n records, formed or not."""

    lengths: Sequence[Tensor]  # (n, k) each: |gradient_r|^2 is the sum of their squares
    add: Callable[[Tensor, Tensor], object]  # (scales, total): total += sum_r scales_r gradient_r, flat


Gradients = Iterator[tuple[str, ParameterGradients]]  # of a layer's parameters, by name


@dataclass
class Room:
    """How many more numbers may be kept."""

    numbers: int

    def take(self, numbers: int) -> bool:
        """Whether so many fit; if they do, they are taken."""
        fits = numbers <= self.numbers
        self.numbers -= numbers if fits else 0
        return fits


def lengths_of(rows: Tensor) -> list[Tensor]:
    """Parts whose squares add up to each row's square norm: (n, numbers) -> a list of (n, k).

    They are the norms of blocks of numbers, or few numbers themselves. Blocks lose nothing in
    float32, and are several times faster than a wider format. Squares below 1e-45 are lost, which
    does not matter beside a clip bound of at least 1e-12.
    """
    n, numbers = rows.shape
    if numbers <= BLOCK:
        return [rows]
    whole, rest = divmod(numbers, BLOCK)
    blocks = (rows[:, :-rest] if rest else rows).reshape(n, whole, BLOCK)
    of_blocks = torch.linalg.vector_norm(blocks, dim=2)
    return [of_blocks, *lengths_of(rows[:, -rest:])] if rest else [of_blocks]


def norms(rows: Tensor) -> Tensor:
    """Each row's norm: (n, numbers) -> (n, 1)."""
    result: Tensor = torch.linalg.vector_norm(
        torch.cat(lengths_of(rows), 1) if rows.shape[1] > BLOCK else rows, dim=1, keepdim=True
    )
    return result


def formed(rows: Tensor) -> ParameterGradients:
    """Of gradients that are formed: (n, numbers)."""
    return ParameterGradients(lengths_of(rows), lambda scales, total: total.addmv_(rows.t(), scales))


@dataclass(frozen=True)
class Positions:
    """G and A of n records' gradients G'A of a weight, (o, k), at p positions."""

    outputs: Tensor  # G: (n, p, o)
    inputs: Callable[[slice], Tensor]  # A of some records: (m, p, k)
    width: int  # k

    def chunks(self, numbers: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some records at a time, with their G and A of about `numbers` numbers."""
        n, p, o = self.outputs.shape
        for some in pieces(n, p * max(o, self.width), numbers):
            yield some, self.outputs[some], self.inputs(some)


def pieces(n: int, each: int, numbers: int) -> Iterator[slice]:
    """Cut n records with `each` numbers a record into slices of about `numbers` numbers."""
    size = max(1, numbers // each)
    return (slice(start, start + size) for start in range(0, n, size))


def are_few(positions: int, o: int, k: int) -> bool:
    """Whether Gram matrices are less work than forming the gradients."""
    return positions**2 * (o + k) < FORMING * o * k


def over_positions(positions: Positions, room: Room) -> ParameterGradients:
    """The gradients G'A of a weight, in the way that needs least work."""
    n, p, o = positions.outputs.shape
    k, add, chunks = positions.width, partial(_add_products, positions), positions.chunks(WORKING_NUMBERS)
    if are_few(p, o, k):
        return ParameterGradients(joined(_gram_lengths(g, a) for _, g, a in chunks), add)
    if not room.take(n * o * k):
        return ParameterGradients(joined(_formed_lengths(g, a) for _, g, a in chunks), add)
    rows = positions.outputs.new_empty(n, o, k)
    for some, g, a in chunks:
        bmm(g.transpose(1, 2), a, out=rows[some])
    return formed(rows.flatten(1))


def joined(pieces: Iterable[Sequence[Tensor]]) -> Sequence[Tensor]:
    """The lengths of all records, from the lengths of some at a time."""
    return [torch.cat(some) for some in zip(*pieces, strict=True)]


def _formed_lengths(g: Tensor, a: Tensor) -> Sequence[Tensor]:
    """Lengths of gradients that are formed and not kept: g (m, p, o), a (m, p, k)."""
    return [*lengths_of(bmm(g.transpose(1, 2), a).flatten(1)), rounding(lengths(g), lengths(a), g.dtype)]


def _gram_lengths(g: Tensor, a: Tensor) -> Sequence[Tensor]:
    """Lengths by Gram matrices, <GG', AA'>: g (m, p, o), a (m, p, k)."""
    wide = device.wide(g.device)
    gg, aa = (bmm(rows, rows.transpose(1, 2)) for rows in (g.to(wide), a.to(wide)))
    each_g, each_a = (gram.diagonal(dim1=1, dim2=2).sqrt() for gram in (gg, aa))
    return [(gg * aa).sum((1, 2)).clamp(min=0).sqrt()[:, None], rounding(each_g, each_a, g.dtype)]


def rounding(g: Tensor, a: Tensor, dtype: torch.dtype) -> Tensor:
    """The rounding error of a sum over positions in this format: (n, 1). NaN where a is `beyond`.

    g, a: |g| and |a| of each position, (n, p).
    """
    error: Tensor = g.shape[1] * torch.finfo(dtype).eps * (g * a).sum(1, keepdim=True)
    if device.apart(a) or a.max().item() > LONGEST[dtype]:
        error = error + beyond(a.amax(1, keepdim=True), dtype)
    return error


def _add_products(positions: Positions, scales: Tensor, total: Tensor) -> None:
    """total += (sG)'A. scales: (n,). total: (o k,). Each chunk reads and writes the whole total."""
    for some, g, a in positions.chunks(max(WORKING_NUMBERS, 4 * total.numel())):
        add_product(g, a, scales[some, None, None], total)


def add_product(g: Tensor, a: Tensor, scales: Tensor, total: Tensor) -> None:
    """total += (sG)'A. g: (m, ..., o), a: (m, ..., k), scales: (m, 1, ...), total: (o k,)."""
    o, k = g.shape[-1], a.shape[-1]
    g, a = (g * scales, a) if o < k else (g, a * scales)
    total.view(o, k).addmm_(g.reshape(-1, o).t(), a.reshape(-1, k))
