"""Records' gradients of convolutions' weights, in any number of dimensions.

Records are the groups of one convolution, whose gradients come apart. Where there are few positions, each of which has seen a patch of the
input, they are G'A with A (positions, kernel x channels), and may need not be formed (`sums.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from dpfl_bench.problems.bookkeeping import sums
from dpfl_bench.problems.bookkeeping.sums import Found, Gradients, Positions, Room, formed, joined, lengths_of, over_positions
from dpfl_bench.problems.products import bmm, packed

MANY_POSITIONS = 40  # a group's weights are turned into the order of memory: for fewer that is more than is won
FEW_CHANNELS, MANY_PLACES = 8, 16  # less than a processor's vectors hold, and as many


def convolution(room: Room, layer: _ConvNd, x: Tensor, g: Tensor) -> Gradients:
    """x: (n, c, *size), g: (n, o, *positions)."""
    if layer.bias is not None:
        yield layer.bias, formed(g.flatten(2).sum(2))
    o, k, p = layer.out_channels, layer.weight.numel() // layer.out_channels, math.prod(g.shape[2:])
    plain = layer.groups == 1 and not layer.transposed
    few = p < MANY_POSITIONS or sums.are_few(p, o, k)
    yield layer.weight, (_over_patches if plain and few else _apart)(layer, x, g, room)


def _over_patches(layer: _ConvNd, x: Tensor, g: Tensor, room: Room) -> Found:
    """A copied from a view in which patches overlap: (n, *positions, *kernel, c)."""
    o, c, *kernel = shape = layer.weight.shape
    x, outputs = _padded(layer, x).movedim(1, -1).contiguous(), g.flatten(2).transpose(1, 2)
    record, *steps, _ = x.stride()
    patches = x.as_strided((len(x), *g.shape[2:], *kernel, c), (record, *_times(steps, layer.stride), *_times(steps, layer.dilation), 1))
    p, k = outputs.shape[1], c * math.prod(kernel)
    found = over_positions(Positions(outputs, lambda some: packed(patches[some]).view(-1, p, k), k), room)

    def add(scales: Tensor, total: Tensor) -> None:
        found.add(scales, laid_out := torch.zeros_like(total))
        total.view(shape).add_(laid_out.view(o, *kernel, c).movedim(-1, 1))

    return Found(found.lengths, add)


def _apart(layer: _ConvNd, x: Tensor, g: Tensor, room: Room) -> Found:
    numbers, unfolds = layer.weight.numel(), _unfolds(layer)
    gradients = partial(_unfolded_gradients if unfolds else _gradients, layer)
    some = sums.pieces(len(x), max(x[0].numel(), g[0].numel(), numbers), sums.WORKING_NUMBERS)
    if not room.take(len(x) * numbers):
        lengths = joined([*lengths_of(gradients(x[part], g[part])), _rounding(layer, x[part], g[part])] for part in some)
        each = (-1,) + (1,) * (g.dim() - 1)
        return Found(lengths, lambda scales, total: total.add_(_gradients(layer, x, g * scales.view(each), apart=False)[0]))
    rows = [gradients(x[part], g[part]) for part in some]
    found = formed(rows[0] if len(rows) == 1 else torch.cat(rows))
    return Found(found.lengths, partial(_add_unfolded, layer, found)) if unfolds else found


def _gradients(layer: _ConvNd, x: Tensor, g: Tensor, apart: bool = True) -> Tensor:
    """Each record's, (n, numbers); or their sum, (1, numbers)."""
    margins = layer._reversed_padding_repeated_twice
    padding, left_over = margins[::-2], _left_over(layer, x, g)
    if layer.padding_mode != "zeros" or margins[::2] != margins[1::2]:
        x, padding = _padded(layer, x), [0] * len(padding)
    n, (channels, *kernel) = len(x) if apart else 1, layer.weight.shape
    if apart:
        x, g = (t.reshape(1, -1, *t.shape[2:]) for t in (x, g))
    how = (layer.stride, padding, layer.dilation, layer.transposed, left_over, n * layer.groups)
    return _of_weight(x, g, (n * channels, *kernel), *how).reshape(n, -1)


def _of_weight(x: Tensor, g: Tensor, shape: Sequence[int], *how: object) -> Tensor:
    """torch asks for the weight's shape, not for its numbers."""
    found: Tensor = torch.ops.aten.convolution_backward(g, x, x.new_empty(shape), None, *how, [False, True, False])[1]
    return found


def _unfolds(layer: _ConvNd) -> bool:
    """Whether strides and few channels leave a group's vectors empty, and the kernel's places as channels would fill them."""
    if layer.transposed or layer.groups > 1 or layer.dilation[0] > 1 or layer.kernel_size[0] % layer.stride[0]:
        return False
    places = layer.stride[0] * math.prod(layer.kernel_size[1:]) * layer.in_channels
    return max(layer.stride) > 1 and layer.in_channels < FEW_CHANNELS and places >= MANY_PLACES


def _unfolded_gradients(layer: _ConvNd, x: Tensor, g: Tensor) -> Tensor:
    """(n, numbers), in the order of `_add_unfolded`: batched products, one for each `stride` rows of the kernel.

    Every stride-th row of positions follows the one before, so that what one product meets is what the one before did, a row further on.
    """
    x = _padded(layer, x).contiguous()
    (n, c), (rows, *kernel), (stride, *across), (height, *positions) = x.shape[:2], layer.kernel_size, layer.stride, g.shape[2:]
    record, channel, row, *others = x.stride()
    patches = x.as_strided(
        (n, stride, *kernel, c, height + rows // stride - 1, *positions),
        (record, row, *_times(others, layer.dilation[1:]), channel, stride * row, *_times(others, across)),
    )
    x, g = packed(patches).view(n, stride * math.prod(kernel) * c, -1), g.flatten(2)
    shifted = x.as_strided((rows // stride, *x.shape[:2], g.shape[2]), (math.prod(positions), *x.stride()))
    found = x.new_empty(n, len(shifted), g.shape[1], x.shape[1])
    bmm(g, shifted.transpose(2, 3), out=found.transpose(0, 1))
    return found.flatten(1)


def _add_unfolded(layer: _ConvNd, found: Found, scales: Tensor, total: Tensor) -> None:
    o, c, rows, *kernel = layer.weight.shape
    stride = layer.stride[0]
    found.add(scales, unfolded := torch.zeros_like(total))
    total.view(o, c, rows // stride, stride, *kernel).add_(unfolded.view(-1, o, stride, *kernel, c).movedim((1, -1), (0, 1)))


def _times(steps: Iterable[int], by: Iterable[int]) -> list[int]:
    return [step * times for step, times in zip(steps, by, strict=True)]


def _padded(layer: _ConvNd, x: Tensor) -> Tensor:
    margins = layer._reversed_padding_repeated_twice
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(x, margins, mode) if any(margins) else x


def _left_over(layer: _ConvNd, x: Tensor, g: Tensor) -> list[int]:
    """A transposed convolution's output padding, which may depend on the size that was asked for."""
    if not layer.transposed:
        return [0] * (g.dim() - 2)
    sizes = zip(g.shape[2:], x.shape[2:], layer.stride, layer.padding, layer.dilation, layer.kernel_size, strict=True)
    return [after - ((before - 1) * s - 2 * p + d * (k - 1) + 1) for after, before, s, p, d, k in sizes]


def _rounding(layer: _ConvNd, x: Tensor, g: Tensor) -> Tensor:
    """`sums.rounding`, of the positions on one side and their patches on the other: (n, 1)."""
    (into, out), margins = (g, x) if layer.transposed else (_padded(layer, x), g), layer.padding if layer.transposed else 0
    ones = x.new_ones(1, 1, *layer.kernel_size)
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[x.dim() - 3]
    patches = convolve(into.square().sum(1, keepdim=True), ones, None, layer.stride, margins, layer.dilation)
    for axis, size in enumerate(out.shape[2:], start=2):
        patches = patches.narrow(axis, 0, size)
    each, met = (t.flatten(1).sqrt() for t in (out.square().sum(1), patches))
    return sums.rounding(each, met, x.dtype)
