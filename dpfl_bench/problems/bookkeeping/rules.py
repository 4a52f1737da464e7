"""The rule of each kind of layer: a record's gradients of the layer's parameters, from the layer's
input x and the loss's gradient g by the layer's output.

| layer | gradient of a record |
|---|---|
| Linear | weight: sum_p g_p x_p' over the record's positions p; bias: sum_p g_p |
| Conv, ConvTranspose | the same with patches of x (`convolutions.py`) |
| Embedding | row v: sum of g_p over the positions p of token v, none for padding_idx |
| GroupNorm, InstanceNorm, LayerNorm, RMSNorm | weight: sum_p g_p z_p with the normalised z; bias:
sum_p g_p | | PReLU | sum_p g_p min(x_p, 0) | | LSTM | Linear's, twice in each of its layers
(`recurrent.py`) |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.instancenorm import _InstanceNorm

from dpfl_bench.machine import device
from dpfl_bench.problems.bookkeeping.convolutions import convolution
from dpfl_bench.problems.bookkeeping.sums import (
    Gradients,
    ParameterGradients,
    Positions,
    Room,
    add_product,
    formed,
    lengths_of,
    norms,
    over_positions,
)
from dpfl_bench.problems.problem import LONGEST, beyond, lengths


def linear(room: Room, layer: nn.Linear, x: Tensor, g: Tensor) -> Gradients:
    """x: (n, *positions, k), g: (n, *positions, o)."""
    if x.dim() == 2:
        bias, length = formed(g), norms(g)
        parts = lengths_of(x)
        products = [length * part for part in parts]
        if device.apart(x) or any([part.abs().max().item() > LONGEST[x.dtype] for part in parts]):
            products = [
                product + beyond(part, x.dtype) for product, part in zip(products, parts, strict=True)
            ]
        weight = ParameterGradients(products, lambda scales, total: add_product(g, x, scales[:, None], total))
    else:
        x, g = (t.reshape(len(t), -1, t.shape[-1]) for t in (x, g))
        bias = formed(g.sum(1))
        weight = over_positions(Positions(g, x.__getitem__, x.shape[2]), room)
    yield "weight", weight
    if layer._parameters["bias"] is not None:
        yield "bias", bias


def embedding(room: Room, layer: nn.Embedding, x: Tensor, g: Tensor) -> Gradients:
    """x: tokens, (n, *positions), g: (n, *positions, k). First the sum over a record's positions of
    the same token, then the norm.
    """
    n, words = len(x), layer.num_embeddings
    tokens, g = x.reshape(n, -1), g.reshape(n, -1, layer.embedding_dim)
    pairs = tokens + words * torch.arange(n, device=x.device)[:, None]  # (record, token) as one number
    if layer.padding_idx is not None:
        learnt = tokens != layer.padding_idx
        if device.apart(x):
            g = g.masked_fill(~learnt[:, :, None], 0)
        else:
            pairs, g = pairs[learnt], g[learnt]
    pairs, place = _distinct(pairs) if device.apart(x) else torch.unique(pairs, return_inverse=True)
    rows = g.new_zeros(len(pairs), layer.embedding_dim).index_add_(0, place.flatten(), g.flatten(0, -2))
    record, word, squares = pairs // words, pairs % words, lengths(rows).square()

    def add(scales: Tensor, total: Tensor) -> None:
        total.view(words, -1).index_add_(0, word, rows * scales[record, None])

    yield (
        "weight",
        ParameterGradients([squares.new_zeros(n).index_add_(0, record, squares).sqrt()[:, None]], add),
    )


def _distinct(pairs: Tensor) -> tuple[Tensor, Tensor]:
    """`torch.unique` for a GPU: as many places as there are pairs, so that nobody waits to learn
    how many are needed. The places that are left over hold 0.
    """
    ordered, order = pairs.flatten().sort()
    is_new = ordered[1:] != ordered[:-1]
    numbers = torch.cat([is_new.new_zeros(1), is_new]).cumsum(0)
    place = torch.empty_like(order).scatter_(0, order, numbers)
    return torch.zeros_like(ordered).scatter_(0, numbers, ordered), place


def channel_norm(room: Room, layer: nn.GroupNorm | _InstanceNorm, x: Tensor, g: Tensor) -> Gradients:
    """x, g: (n, channels, *positions)."""
    groups = layer.num_groups if isinstance(layer, nn.GroupNorm) else layer.num_features
    z = functional.group_norm(x, groups, eps=layer.eps)
    yield "weight", formed((g * z).reshape(*g.shape[:2], -1).sum(2))
    if layer._parameters["bias"] is not None:
        yield "bias", formed(g.reshape(*g.shape[:2], -1).sum(2))


def trailing_norm(room: Room, layer: nn.LayerNorm | nn.RMSNorm, x: Tensor, g: Tensor) -> Gradients:
    """x, g: (n, *positions, *shape)."""
    shape, by_position = list(layer.normalized_shape), (len(x), -1, *layer.normalized_shape)
    if isinstance(layer, nn.RMSNorm):
        z = functional.rms_norm(x, shape, eps=layer.eps)
    else:
        z = functional.layer_norm(x, shape, eps=layer.eps)
        if layer._parameters["bias"] is not None:
            yield "bias", formed(g.reshape(by_position).sum(1).flatten(1))
    yield "weight", formed((g * z).reshape(by_position).sum(1).flatten(1))


def prelu(room: Room, layer: nn.PReLU, x: Tensor, g: Tensor) -> Gradients:
    """x, g: (n, *positions), or (n, channels, *positions) with a slope for each channel."""
    slopes = (g * x.clamp(max=0)).reshape(len(x), layer.num_parameters, -1)
    yield "weight", formed(slopes.sum(2))


Rule = Callable[[Room, Any, Tensor, Tensor], Gradients]
RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    **dict.fromkeys(
        (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        convolution,
    ),
    nn.Embedding: embedding,
    **dict.fromkeys((nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), channel_norm),
    **dict.fromkeys((nn.LayerNorm, nn.RMSNorm), trailing_norm),
    nn.PReLU: prelu,
}
