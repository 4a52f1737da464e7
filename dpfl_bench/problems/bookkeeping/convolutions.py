"""Records' gradients of convolutions' weights, in any number of dimensions.

Each position of the output has seen a patch of the input: G'A with A (positions, kernel x channels). Where one record's patches are too
many to lay out, for groups and for transposed convolutions, torch's own gradient of the weight is asked for each record alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from dpfl_bench.problems.bookkeeping.sums import Found, Gradients, Positions, Room, formed, joined, lengths_of, over_positions

PATCHES_NUMBERS = 2**20  # of one record's patches


def convolution(room: Room, layer: _ConvNd, x: Tensor, g: Tensor) -> Gradients:
    """x: (n, c, *size), g: (n, o, *positions)."""
    outputs = g.flatten(2).transpose(1, 2)  # (n, p, o)
    if layer.bias is not None:
        yield layer.bias, formed(outputs.sum(1))
    numbers = outputs.shape[1] * (layer.weight.numel() // layer.weight.shape[0])
    if layer.transposed or layer.groups > 1 or numbers > PATCHES_NUMBERS:
        yield layer.weight, _one_by_one(x, g, partial(_weight_gradient, layer), layer.weight.numel(), room)
    else:
        yield layer.weight, _over_patches(layer, _padded(layer, x), g.shape[2:], outputs, room)


def _over_patches(layer: _ConvNd, x: Tensor, size: torch.Size, outputs: Tensor, room: Room) -> Found:
    how = _laying_out(layer.weight.shape, layer.stride, layer.dilation, size, x.shape)
    if how.missing:
        x = functional.pad(x, [0, 0] * (x.dim() - 3) + [0, how.missing])
    x = x.contiguous() if how.long else x.movedim(1, -1).contiguous()
    patches = x.as_strided((len(x), *how.shape), how.strides)

    def inputs(some: slice) -> list[Tensor]:
        laid_out = (patches[some] if some.stop - some.start < len(x) else patches).contiguous()
        begin, shape = laid_out.storage_offset(), (len(laid_out), outputs.shape[1], how.width)
        return [laid_out.as_strided(shape, (laid_out.stride(0), *how.steps), begin + part) for part in how.parts]

    found = over_positions(Positions(outputs, inputs, how.width, len(how.parts)), room)

    def add(scales: Tensor, total: Tensor) -> None:
        laid_out = torch.zeros_like(total)
        found.add(scales, laid_out)
        total.view(how.taps).add_(laid_out.view(how.products).movedim((1, -1), (0, 1)))

    return Found(found.lengths, add)


class _LayingOut(NamedTuple):
    """Of padded records (n, channels, *size): the view that is copied, and where the parts A_1, A_2, ... are in the copy."""

    long: bool  # rows of positions are last in it, else channels
    missing: int  # rows to add to the records, which no patch covers
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    parts: list[int]  # where each begins
    width: int  # of each
    steps: tuple[int, int]  # from one position to the next, and from one number of a patch
    taps: tuple[int, ...]  # the weight's shape, its kernel's rows by parts
    products: tuple[int, ...]  # the shape in which its gradient comes


@lru_cache(maxsize=1024)
def _laying_out(
    weight: torch.Size, stride: tuple[int, ...], dilation: tuple[int, ...], positions: torch.Size, records: torch.Size
) -> _LayingOut:
    """Patches are laid out along all axes but the first. There, every stride-th row of positions follows the one before, so that what

    a tap meets is what an earlier tap did, some rows further on: a part of the same copy. `together` taps meet rows between two such.
    """
    o, c, rows, *kernel = weight
    phases = min(stride[0], dilation[0] * (rows - 1) + 1)
    together = phases if dilation[0] == 1 and rows % phases == 0 else 1
    height = positions[0] + dilation[0] * (rows - 1) // stride[0]
    missing = max(0, (height - 1) * stride[0] + phases - records[2])
    long = positions[-1] > c * weight[-1]  # than a row of a patch: the longer one is copied at once

    size = [records[2] + missing, *records[3:]]
    numbers = [c, *size] if long else [*size, c]  # of a record, as they are in memory
    apart = [math.prod(numbers[axis + 1 :]) for axis in range(len(numbers))]
    channel, row, *others = apart if long else [apart[-1], *apart[:-1]]
    patch = [phases, *kernel, c], [row, *_times(others, dilation[1:]), channel]
    places = [height, *positions[1:]], [stride[0] * row, *_times(others, stride[1:])]
    (shape, strides), (inner, innermost) = (patch, places) if long else (places, patch)

    steps = (1, math.prod(places[0])) if long else (math.prod(patch[0]), 1)
    row_of_places, tap = math.prod(positions[1:]), c * math.prod(kernel)
    parts = []
    for number in range(0, rows, together):
        down, phase = divmod(number * dilation[0], stride[0])
        parts.append(down * row_of_places * steps[0] + (phase * tap * steps[1] if together == 1 else 0))
    return _LayingOut(
        long,
        missing,
        (*shape, *inner),
        (math.prod(numbers), *strides, *innermost),
        parts,
        together * tap,
        steps,
        (o, c, len(parts), together, *kernel),
        (len(parts), o, together, *kernel, c),
    )


def _times(steps: Iterable[int], by: Iterable[int]) -> list[int]:
    return [step * times for step, times in zip(steps, by, strict=True)]


def _padded(layer: _ConvNd, x: Tensor) -> Tensor:
    margins = layer._reversed_padding_repeated_twice
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(x, margins, mode) if any(margins) else x


def _one_by_one(x: Tensor, g: Tensor, gradient: Callable[[Tensor, Tensor], Tensor], numbers: int, room: Room) -> Found:
    alone = (gradient(x[r : r + 1], g[r : r + 1])[None] for r in range(len(x)))
    if room.take(len(x) * numbers):
        return formed(torch.cat([one.flatten(1) for one in alone]))
    found = joined(lengths_of(one.flatten(1)) for one in alone)
    apart = (-1,) + (1,) * (g.dim() - 1)
    return Found(found, lambda scales, total: total.add_(gradient(x, g * scales.view(apart)).flatten()))


def _weight_gradient(layer: _ConvNd, x: Tensor, g: Tensor) -> Tensor:
    """Summed over records."""
    margins = layer._reversed_padding_repeated_twice
    padding = margins[::-2]
    if layer.padding_mode != "zeros" or margins[::2] != margins[1::2]:
        x, padding = _padded(layer, x), [0] * len(padding)
    found: Tensor = torch.ops.aten.convolution_backward(
        g, x, layer.weight, None, layer.stride, padding, layer.dilation, layer.transposed, _left_over(layer, x, g), layer.groups,
        [False, True, False],
    )[1]  # fmt: skip
    return found


def _left_over(layer: _ConvNd, x: Tensor, g: Tensor) -> list[int]:
    """A transposed convolution's output padding, which may depend on the size that was asked for."""
    if not layer.transposed:
        return [0] * (g.dim() - 2)
    sizes = zip(g.shape[2:], x.shape[2:], layer.stride, layer.padding, layer.dilation, layer.kernel_size, strict=True)
    return [after - ((before - 1) * s - 2 * p + d * (k - 1) + 1) for after, before, s, p, d, k in sizes]
