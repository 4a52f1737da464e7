"""Records' gradients of convolutions' weights, in any number of dimensions.

Each position of the output has seen a patch of the input: G'A with A (positions, kernel x channels). Where one record's patches are too
many to lay out, for groups and for transposed convolutions, torch's own gradient of the weight is asked for each record alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from dpfl_bench.problems.bookkeeping.sums import Found, Gradients, Positions, Room, formed, over_positions, squares

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
        lay_out = _rows_first if _has_long_rows(layer, g.shape[-1]) else _channels_last
        yield layer.weight, lay_out(layer, _padded(layer, x), g.shape[2:], outputs, room)


def _has_long_rows(layer: _ConvNd, positions: int) -> bool:
    """Whether a row of positions is more to copy at once than a row of a patch."""
    kernel, stride = layer.kernel_size[-1], layer.stride[-1]
    return positions > kernel * layer.in_channels and (stride == 1 or (layer.dilation[-1] == 1 and kernel % stride == 0))


def _channels_last(layer: _ConvNd, x: Tensor, size: torch.Size, outputs: Tensor, room: Room) -> Found:
    """A copied from a view in which patches overlap: (n, *positions, *kernel, c)."""
    o, c, *kernel = shape = layer.weight.shape
    p, k = outputs.shape[1], c * math.prod(kernel)
    x = x.movedim(1, -1).contiguous()
    record, *steps, _ = x.stride()
    patches = x.as_strided((len(x), *size, *kernel, c), (record, *_times(steps, layer.stride), *_times(steps, layer.dilation), 1))
    found = over_positions(Positions(outputs, lambda some: patches[some].reshape(-1, p, k), k), room)

    def add(scales: Tensor, total: Tensor) -> None:
        laid_out = torch.zeros_like(total)
        found.add(scales, laid_out)
        total.view(shape).add_(laid_out.view(o, *kernel, c).movedim(-1, 1))

    return Found(found.squares, add)


def _rows_first(layer: _ConvNd, x: Tensor, size: torch.Size, outputs: Tensor, room: Room) -> Found:
    """A' copied from a view in which patches overlap: (n, c, *kernel, *positions).

    Every stride-th column is put side by side, so that a row of positions is too: the kernel's columns become (columns / stride, stride).
    """
    p, k, stride = outputs.shape[1], layer.weight.numel() // layer.weight.shape[0], layer.stride[-1]
    if rest := -x.shape[-1] % stride:
        x = functional.pad(x, (0, rest))
    x = x.reshape(*x.shape[:-1], -1, stride).transpose(-1, -2).contiguous()
    record, channel, *steps, column, _ = x.stride()
    kernel = (*layer.kernel_size[:-1], layer.kernel_size[-1] // stride, stride)
    dilated = (*_times(steps, layer.dilation[:-1]), layer.dilation[-1], column)
    patches = x.as_strided((*x.shape[:2], *kernel, *size), (record, channel, *dilated, *_times(steps, layer.stride[:-1]), 1))
    return over_positions(Positions(outputs, lambda some: patches[some].reshape(-1, k, p).transpose(1, 2), k), room)


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
    found = torch.cat([squares(one) for one in alone])
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
