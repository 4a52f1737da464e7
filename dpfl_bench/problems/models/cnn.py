"""Convolutional networks for images and for maps of features. What a dry run reads of them is here,
so torch is imported where they are built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from dpfl_bench.checks import ranges
from dpfl_bench.checks.ranges import ACTIVATION, HIDDEN, NORM, POOLED
from dpfl_bench.checks.signatures import checked_by
from dpfl_bench.problems.models.mlp import linear_layers
from dpfl_bench.problems.models.sizes import POOL, STRIDE, PerLayer, convolutions

if TYPE_CHECKING:
    from torch import nn

_OF_MAPS = ("channels", "kernel", "padding", "stride", "pool", "pool_stride", "input_groups")


def check(model: Mapping[str, Any], shape: Sequence[int] | None, eps: float) -> None:
    """Whether images of this shape are large enough for all layers, and the layers may be trained
    with this eps.
    """
    if eps != math.inf and model.get("norm") == "batch":
        raise ValueError(
            f"model.norm=batch: no clipping bounds BatchNorm's batch statistics, and eps={eps:g} is finite;"
            " use model.norm=group or eps=inf"
        )
    maps = {key: model[key] for key in _OF_MAPS if key in model}
    if shape is not None and len(shape) == 3 and {"channels", "kernel"} <= maps.keys():
        convolutions(shape, **maps)


@checked_by(check)
def cnn(
    shape: list[int],
    classes: int,
    channels: list[int],
    kernel: PerLayer,
    norm: Annotated[str, NORM],
    padding: PerLayer = None,
    stride: PerLayer = STRIDE,
    pool: PerLayer = POOL,
    pool_stride: PerLayer = None,
    pooled: Annotated[int | None, POOLED] = None,
    hidden: Annotated[list[int] | None, HIDDEN] = None,
    activation: Annotated[str, ACTIVATION] = "relu",
    s: float = 2.0,
    temp: float = 2.0,
    o: float = 1.0,
    input_groups: int = 0,
) -> nn.Module:
    """Convolutions, each with `norm`, activation and max pooling; then linear layers of sizes
    *hidden, classes.

    padding: None is kernel // 2. pool: 1 is none. pool_stride: None is the pool's size. pooled: the
    maps are averaged to this height and width before the linear layers. input_groups: the input is
    normalised in so many groups of channels (0: not), each record by itself and without parameters.
    norm=batch normalises by the batch at hand (no running statistics) and is for eps=inf only. What
    a YAML file leaves out is a plain network: stride 1, 2x2 pooling, ReLU, no hidden layer.
    """
    from torch import nn

    from dpfl_bench.problems.models.activations import activation as activation_of

    if len(shape) != 3:
        raise ValueError(
            f"dataset.shape={list(shape)}: expected images of shape [channels, height, width] for model=cnn"
            " and its like (use model=mlp or model=logreg)"
        )
    active = activation_of(activation, s, temp, o)
    ranges.check("model.pooled", pooled, POOLED)
    convolved, size = convolutions(shape, channels, kernel, padding, stride, pool, pool_stride, input_groups)
    inputs = shape[0]
    layers: list[nn.Module] = [nn.GroupNorm(input_groups, inputs, affine=False)] if input_groups else []
    for layer in convolved:
        convolution = nn.Conv2d(inputs, layer.channels, layer.kernel, layer.stride, layer.padding)
        layers += [convolution, *norm_layers(norm, layer.channels), active()]
        if layer.pool > 1 or layer.pool_stride > 1:
            layers.append(nn.MaxPool2d(layer.pool, layer.pool_stride))
        inputs = layer.channels
    if pooled is not None and size != [pooled, pooled]:
        layers.append(nn.AdaptiveAvgPool2d(pooled))
        size = [pooled, pooled]
    sizes = [inputs * size[0] * size[1], *(hidden or []), classes]
    return nn.Sequential(*layers, nn.Flatten(), *linear_layers(sizes, active))


def norm_layers(kind: str, channels: int) -> list[nn.Module]:
    """The layer that normalises this many channels, if any. Groups are of images or volumes,
    batches of images.
    """
    from torch import nn

    ranges.check("model.norm", kind, NORM)
    if kind == "batch":
        return [nn.BatchNorm2d(channels, track_running_stats=False)]
    if kind == "group":
        return [nn.GroupNorm(next(g for g in (8, 4, 2, 1) if channels % g == 0), channels)]
    return []
