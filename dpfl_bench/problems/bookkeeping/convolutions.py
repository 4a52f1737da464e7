"""Records' gradients of convolutions' weights, in any number of dimensions.

Records are the groups of one convolution, whose gradients come apart. Where there are few
positions, each of which has seen a patch of the input, they are G'A with A (positions, kernel x
channels), and may need not be formed (`sums.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import mul

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from dpfl_bench.machine import device
from dpfl_bench.problems.bookkeeping import sums
from dpfl_bench.problems.bookkeeping.sums import (
    Found,
    Gradients,
    Positions,
    Room,
    formed,
    joined,
    lengths_of,
    over_positions,
)
from dpfl_bench.problems.products import bmm, packed

MANY_POSITIONS = (
    40  # a group's weights are turned into the order of memory: for fewer that is more than is won
)
FEW_CHANNELS, MANY_PLACES = 8, 16  # less than a processor's vectors hold, and as many


def convolution(room: Room, layer: _ConvNd, x: Tensor, g: Tensor) -> Gradients:
    """x: (n, c, *size), g: (n, o, *positions)."""
    if layer._parameters["bias"] is not None:
        yield "bias", formed(g.flatten(2).sum(2))
    o, p = layer.out_channels, math.prod(g.shape[2:])
    k = layer.in_channels // layer.groups * math.prod(layer.kernel_size)
    plain = layer.groups == 1 and not layer.transposed
    if plain and sums.are_few(p, o, k):
        yield "weight", _unformed(layer, x, g, room, k)
    elif plain and (p < MANY_POSITIONS or _unfolds(layer)):
        yield "weight", _apart(layer, x, g, room, k, _patch_gradients)
    else:
        yield "weight", _apart(layer, x, g, room, k, _gradients)


def _unformed(layer: _ConvNd, x: Tensor, g: Tensor, room: Room, k: int) -> Found:
    found = over_positions(
        Positions(g.flatten(2).transpose(1, 2), lambda some: _patches(layer, x[some], g), k), room
    )

    def add(scales: Tensor, total: Tensor) -> None:
        found.add(scales, summed := torch.zeros_like(total))
        _add_in_order(layer, summed, total)

    return Found(found.lengths, add)


def _apart(
    layer: _ConvNd,
    x: Tensor,
    g: Tensor,
    room: Room,
    k: int,
    gradients: Callable[[_ConvNd, Tensor, Tensor], Tensor],
) -> Found:
    """gradients(layer, x, g): each record's, (n, o k), channels last unless by `_gradients`."""
    n, numbers = x.shape[0], layer.out_channels * k
    copied = g[0, 0].numel() * k // _shifts(layer) if gradients is _patch_gradients else 0
    size = max(1, n * sums.WORKING_NUMBERS // max(x.numel(), g.numel(), n * max(numbers, copied)))
    if not room.take(n * numbers):
        some = sums.pieces(n, 1, size)
        lengths = joined(
            [*lengths_of(gradients(layer, x[part], g[part])), _rounding(layer, x[part], g[part])]
            for part in some
        )
        each = (-1,) + (1,) * (g.dim() - 1)
        return Found(
            lengths,
            lambda scales, total: total.add_(_gradients(layer, x, g * scales.view(each), apart=False)[0]),
        )
    rows = (
        gradients(layer, x, g)
        if size >= n
        else torch.cat([gradients(layer, x[part], g[part]) for part in sums.pieces(n, 1, size)])
    )
    if gradients is _gradients:
        return formed(rows)
    return Found(
        lengths_of(rows), lambda scales, total: _add_in_order(layer, torch.mv(rows.t(), scales), total)
    )


def _add_in_order(layer: _ConvNd, summed: Tensor, total: Tensor) -> None:
    """summed: with the channels last."""
    o, c, kernel = layer.out_channels, layer.in_channels, layer.kernel_size
    total.view(o, c, *kernel).add_(summed.view(o, *kernel, c).movedim(-1, 1))


def _patches(layer: _ConvNd, x: Tensor, g: Tensor, shifts: int = 1) -> Tensor:
    """What each position has seen, (n, positions, kernel x channels): copied from a view in which
    that overlaps.

    shifts: as `_shifts`; only the first part of the kernel's rows then, and the positions that the
    other parts add below.
    """
    x = _padded(layer, x).movedim(1, -1).contiguous()
    record, *steps, _ = x.stride()
    rows, height = layer.kernel_size[0] // shifts, g.shape[2] + shifts - 1
    where = ((height, *g.shape[3:]), (*map(mul, steps, layer.stride),))
    seen = ((rows, *layer.kernel_size[1:], x.shape[-1]), (*map(mul, steps, layer.dilation), 1))
    turned = _unfolds(layer)  # long runs of positions are copied faster than short ones of places
    first, second = (seen, where) if turned else (where, seen)
    patches = packed(x.as_strided((x.shape[0], *first[0], *second[0]), (record, *first[1], *second[1])))
    found = patches.view(x.shape[0], math.prod(first[0]), math.prod(second[0]))
    return found.transpose(1, 2) if turned else found


def _shifts(layer: _ConvNd) -> int:
    """The kernel's rows in so many parts, each of which sees what the part before it sees one row
    of positions further down.

    Fewer numbers are copied and more products made, which is worth it for numpy's and for narrow
    ones.
    """
    shared = layer.dilation[0] == 1 and layer.kernel_size[0] % layer.stride[0] == 0
    return (
        layer.kernel_size[0] // layer.stride[0]
        if shared and (device.numpy_multiplies() or _unfolds(layer))
        else 1
    )


def _patch_gradients(layer: _ConvNd, x: Tensor, g: Tensor) -> Tensor:
    """Batched products of positions and patches."""
    shifts, across = _shifts(layer), math.prod(g.shape[3:])
    patches, g = _patches(layer, x, g, shifts), g.flatten(2)
    n, o, p = g.shape
    parts = patches.as_strided(
        (shifts, n, p, patches.shape[2]), (across * patches.stride(1), *patches.stride())
    )
    found = x.new_empty(n, o, shifts, patches.shape[2])
    bmm(g, parts, out=found.permute(2, 0, 1, 3))
    return found.flatten(1)


def _gradients(layer: _ConvNd, x: Tensor, g: Tensor, apart: bool = True) -> Tensor:
    """Each record's, (n, numbers); or their sum, (1, numbers)."""
    margins = layer._reversed_padding_repeated_twice
    padding, left_over = margins[::-2], _left_over(layer, x, g)
    if layer.padding_mode != "zeros" or margins[::2] != margins[1::2]:
        x, padding = _padded(layer, x), [0] * len(padding)
    n, (channels, *kernel) = x.shape[0] if apart else 1, layer.weight.shape
    if apart:
        x, g = (t.reshape(1, -1, *t.shape[2:]) for t in (x, g))
    how = (layer.stride, padding, layer.dilation, layer.transposed, left_over, n * layer.groups)
    return _of_weight(x, g, (n * channels, *kernel), *how).reshape(n, -1)


def _of_weight(x: Tensor, g: Tensor, shape: Sequence[int], *how: object) -> Tensor:
    """torch asks for the weight's shape, not for its numbers."""
    found: Tensor = torch.ops.aten.convolution_backward(
        g, x, x.new_empty(shape), None, *how, [False, True, False]
    )[1]
    return found


def _unfolds(layer: _ConvNd) -> bool:
    """Whether strides and few channels leave a group's vectors empty, and the kernel's places as
    channels would fill them.
    """
    stride, kernel, c = layer.stride, layer.kernel_size, layer.in_channels
    if c >= FEW_CHANNELS or max(stride) == 1 or layer.dilation[0] > 1 or kernel[0] % stride[0]:
        return False
    return stride[0] * math.prod(kernel[1:]) * c >= MANY_PLACES


def _padded(layer: _ConvNd, x: Tensor) -> Tensor:
    margins = layer._reversed_padding_repeated_twice
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(x, margins, mode) if any(margins) else x


def _left_over(layer: _ConvNd, x: Tensor, g: Tensor) -> list[int]:
    """A transposed convolution's output padding, which may depend on the size that was asked for."""
    if not layer.transposed:
        return [0] * (g.dim() - 2)
    sizes = zip(
        g.shape[2:], x.shape[2:], layer.stride, layer.padding, layer.dilation, layer.kernel_size, strict=True
    )
    return [after - ((before - 1) * s - 2 * p + d * (k - 1) + 1) for after, before, s, p, d, k in sizes]


def _rounding(layer: _ConvNd, x: Tensor, g: Tensor) -> Tensor:
    """`sums.rounding`, of the positions on one side and their patches on the other: (n, 1)."""
    (into, out), margins = (
        (g, x) if layer.transposed else (_padded(layer, x), g),
        layer.padding if layer.transposed else 0,
    )
    ones = x.new_ones(1, 1, *layer.kernel_size)
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[x.dim() - 3]
    patches = convolve(into.square().sum(1, keepdim=True), ones, None, layer.stride, margins, layer.dilation)
    for axis, size in enumerate(out.shape[2:], start=2):
        patches = patches.narrow(axis, 0, size)
    each, met = (t.flatten(1).sqrt() for t in (out.square().sum(1), patches))
    return sums.rounding(each, met, x.dtype)
