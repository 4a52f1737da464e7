"""Records' gradients of convolutions' weights, in any number of dimensions.

With many positions, the records become the groups of one convolution: it returns each record's
gradient apart. With few positions, a record's gradient is G'A, where a row of A (positions, kernel
x channels) is the patch of the input that the position sees. Then the gradient need not always be
formed (`sums.py`).
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
    Gradients,
    ParameterGradients,
    Positions,
    Room,
    formed,
    joined,
    lengths_of,
    over_positions,
)
from dpfl_bench.problems.products import bmm, packed

MANY_POSITIONS = 40  # with fewer, reordering the groups' weights in memory costs more than groups save
FEW_CHANNELS, MANY_PLACES = 8, 16  # fewer than the SIMD lanes of a processor, and enough to fill them


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


def _unformed(layer: _ConvNd, x: Tensor, g: Tensor, room: Room, k: int) -> ParameterGradients:
    """Few positions: Gram matrices, or formed gradients where there is room. k: columns of A."""
    gradients = over_positions(
        Positions(g.flatten(2).transpose(1, 2), lambda some: _patches(layer, x[some], g), k), room
    )

    def add(scales: Tensor, total: Tensor) -> None:
        gradients.add(scales, summed := torch.zeros_like(total))
        _add_in_order(layer, summed, total)

    return ParameterGradients(gradients.lengths, add)


def _apart(
    layer: _ConvNd,
    x: Tensor,
    g: Tensor,
    room: Room,
    k: int,
    gradients: Callable[[_ConvNd, Tensor, Tensor], Tensor],
) -> ParameterGradients:
    """Formed gradients. gradients(layer, x, g): each record's, (n, o k); the channels come last,
    except by `_gradients`.
    """
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
        return ParameterGradients(
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
    return ParameterGradients(
        lengths_of(rows), lambda scales, total: _add_in_order(layer, torch.mv(rows.t(), scales), total)
    )


def _add_in_order(layer: _ConvNd, summed: Tensor, total: Tensor) -> None:
    """total += summed, whose channels come last. (o k,) each."""
    o, c, kernel = layer.out_channels, layer.in_channels, layer.kernel_size
    total.view(o, c, *kernel).add_(summed.view(o, *kernel, c).movedim(-1, 1))


def _patches(layer: _ConvNd, x: Tensor, g: Tensor, shifts: int = 1) -> Tensor:
    """The patch of the input that each position sees: (n, positions, kernel x channels), copied
    from a view in which patches overlap.

    shifts: of `_shifts`. If above 1, only the patches of the kernel's first part, with the further
    positions below that the other parts see.
    """
    x = _padded(layer, x).movedim(1, -1).contiguous()
    record, *steps, _ = x.stride()
    rows, height = layer.kernel_size[0] // shifts, g.shape[2] + shifts - 1
    where = ((height, *g.shape[3:]), (*map(mul, steps, layer.stride),))
    seen = ((rows, *layer.kernel_size[1:], x.shape[-1]), (*map(mul, steps, layer.dilation), 1))
    turned = _unfolds(layer)  # long runs of positions are copied faster than short runs of channels
    first, second = (seen, where) if turned else (where, seen)
    patches = packed(x.as_strided((x.shape[0], *first[0], *second[0]), (record, *first[1], *second[1])))
    flat = patches.view(x.shape[0], math.prod(first[0]), math.prod(second[0]))
    return flat.transpose(1, 2) if turned else flat


def _shifts(layer: _ConvNd) -> int:
    """Into how many parts the kernel's rows are cut. Each part sees at one row of positions what
    the part before it sees one row of positions further down, so the patches of one part serve all.

    Then fewer numbers are copied, but more products are computed. That pays where numpy multiplies,
    and for narrow products.
    """
    shared = layer.dilation[0] == 1 and layer.kernel_size[0] % layer.stride[0] == 0
    return (
        layer.kernel_size[0] // layer.stride[0]
        if shared and (device.numpy_multiplies() or _unfolds(layer))
        else 1
    )


def _patch_gradients(layer: _ConvNd, x: Tensor, g: Tensor) -> Tensor:
    """Each record's gradient by batched products of positions and patches: (n, o k), channels
    last.
    """
    shifts, across = _shifts(layer), math.prod(g.shape[3:])
    patches, g = _patches(layer, x, g, shifts), g.flatten(2)
    n, o, p = g.shape
    parts = patches.as_strided(
        (shifts, n, p, patches.shape[2]), (across * patches.stride(1), *patches.stride())
    )
    products = x.new_empty(n, o, shifts, patches.shape[2])
    bmm(g, parts, out=products.permute(2, 0, 1, 3))
    return products.flatten(1)


def _gradients(layer: _ConvNd, x: Tensor, g: Tensor, apart: bool = True) -> Tensor:
    """Each record's gradient, (n, numbers), as the groups of one convolution; or, unless `apart`,
    the gradients' sum, (1, numbers).
    """
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
    """The weight's gradient. torch asks for the weight's shape, not for its numbers."""
    gradient: Tensor = torch.ops.aten.convolution_backward(
        g, x, x.new_empty(shape), None, *how, [False, True, False]
    )[1]
    return gradient


def _unfolds(layer: _ConvNd) -> bool:
    """True if SIMD lanes are better filled by treating kernel positions as channels: with strides
    and few channels a group's lanes stay empty.
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
    """The output padding of a transposed convolution, which depends on the output's size."""
    if not layer.transposed:
        return [0] * (g.dim() - 2)
    sizes = zip(
        g.shape[2:], x.shape[2:], layer.stride, layer.padding, layer.dilation, layer.kernel_size, strict=True
    )
    return [after - ((before - 1) * s - 2 * p + d * (k - 1) + 1) for after, before, s, p, d, k in sizes]


def _rounding(layer: _ConvNd, x: Tensor, g: Tensor) -> Tensor:
    """`sums.rounding`, of each position's vector and its patch: (n, 1). The patches are of x; in a
    transposed convolution, of g.
    """
    (into, out), margins = (
        (g, x) if layer.transposed else (_padded(layer, x), g),
        layer.padding if layer.transposed else 0,
    )
    ones = x.new_ones(1, 1, *layer.kernel_size)
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[x.dim() - 3]
    patches = convolve(into.square().sum(1, keepdim=True), ones, None, layer.stride, margins, layer.dilation)
    for axis, size in enumerate(out.shape[2:], start=2):
        patches = patches.narrow(axis, 0, size)
    positions, seen = (t.flatten(1).sqrt() for t in (out.square().sum(1), patches))
    return sums.rounding(positions, seen, x.dtype)
