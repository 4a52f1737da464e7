"""Convolutional networks for images and for maps of features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from dpfl_bench.problems.models.activations import activation as activation_of
from dpfl_bench.problems.models.mlp import linear_layers

NORMS = ("none", "group", "batch")
PerLayer = Any  # a whole number for all convolutions, or a list of one for each


def cnn(
    shape: list[int],
    classes: int,
    channels: list[int],
    kernel: PerLayer,
    norm: str,
    padding: PerLayer = None,
    stride: PerLayer = 1,
    pool: PerLayer = 2,
    pool_stride: PerLayer = None,
    pooled: int | None = None,
    hidden: list[int] | None = None,
    activation: str = "relu",
    s: float = 2.0,
    temp: float = 2.0,
    o: float = 1.0,
    input_groups: int = 0,
) -> nn.Module:
    """Convolutions, each with `norm`, activation and max pooling; then linear layers of sizes *hidden, classes.

    padding: None is kernel // 2. pool: 1 is none. pool_stride: None is the pool's size. pooled: the maps are averaged to this height
    and width before the linear layers. input_groups: the input is normalised in so many groups of channels (0: not), each record by
    itself and without parameters. norm=batch normalises by the batch at hand (no running statistics) and is for eps=inf only.
    What a YAML file leaves out is a plain network: stride 1, 2x2 pooling, ReLU, no hidden layer.
    """
    if len(shape) != 3:
        raise ValueError(
            f"dataset.shape={list(shape)}: expected images of shape [channels, height, width] for model=cnn and its like "
            "(use model=mlp or logreg)"
        )
    active = activation_of(activation, s, temp, o)
    inputs, *size = shape
    layers = _input_norm(input_groups, inputs)
    for outputs, width, margin, step, window, stride_of_pool in _plan(channels, kernel, padding, stride, pool, pool_stride):
        layers += [nn.Conv2d(inputs, outputs, width, step, margin), *norm_layers(norm, outputs), active()]
        if window > 1 or stride_of_pool > 1:
            layers.append(nn.MaxPool2d(window, stride_of_pool))
        size = [((n + 2 * margin - width) // step + 1 - window) // stride_of_pool + 1 for n in size]
        inputs = outputs
        if min(size) < 1:
            raise ValueError(
                f"dataset.shape={list(shape)}: nothing is left of {shape[1]}x{shape[2]} after the convolutions and pools of "
                f"model.channels={list(channels)}; use larger images, fewer layers or model=mlp"
            )
    if pooled is not None and pooled < 1:
        raise ValueError(f"model.pooled={pooled}: expected at least 1 (null: as large as the maps are)")
    if pooled is not None and size != [pooled, pooled]:
        layers.append(nn.AdaptiveAvgPool2d(pooled))
        size = [pooled, pooled]
    sizes = [inputs * size[0] * size[1], *(hidden or []), classes]
    return nn.Sequential(*layers, nn.Flatten(), *linear_layers(sizes, active))


def norm_layers(kind: str, channels: int) -> list[nn.Module]:
    """The layer that normalises this many channels, if any. Groups are of images or volumes, batches of images."""
    if kind not in NORMS:
        raise ValueError(f"model.norm={kind}: expected one of {', '.join(NORMS)}")
    if kind == "batch":
        return [nn.BatchNorm2d(channels, track_running_stats=False)]
    if kind == "group":
        return [nn.GroupNorm(next(g for g in (8, 4, 2, 1) if channels % g == 0), channels)]
    return []


def _plan(channels: list[int], kernel: Any, padding: Any, stride: Any, pool: Any, pool_stride: Any) -> Iterator[tuple[int, ...]]:
    """Of each convolution: channels, kernel, padding, stride, pool's size and stride."""
    count = len(channels)
    kernels, pools = _each("kernel", kernel, count), _each("pool", pool, count)
    return zip(
        _each("channels", channels, count),
        kernels,
        [k // 2 for k in kernels] if padding is None else _each("padding", padding, count, least=0),
        _each("stride", stride, count),
        pools,
        pools if pool_stride is None else _each("pool_stride", pool_stride, count),
        strict=True,
    )


def _each(name: str, value: Any, count: int, least: int = 1) -> list[int]:
    numbers = list(value) if isinstance(value, list) else [value] * count
    if len(numbers) != count or any(type(n) is not int or n < least for n in numbers):
        raise ValueError(f"model.{name}={value}: expected a whole number >= {least} or a list of {count}, one for each of model.channels")
    return numbers


def _input_norm(groups: int, channels: int) -> list[nn.Module]:
    if groups == 0:
        return []
    if groups < 0 or channels % groups:
        raise ValueError(f"model.input_groups={groups}: expected 0 or what divides the {channels} channels of dataset.shape")
    return [nn.GroupNorm(groups, channels, affine=False)]
