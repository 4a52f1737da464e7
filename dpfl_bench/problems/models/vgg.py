"""VGG (Simonyan and Zisserman 2015), with torchvision's initialisation.

Deviations: no Dropout, whose coins would be drawn from torch's global generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from dpfl_bench.checks.ranges import HIDDEN, NORM, POOLED
from dpfl_bench.checks.signatures import checked_by
from dpfl_bench.problems.models import cnn as convolutional
from dpfl_bench.problems.models.sizes import PerLayer

if TYPE_CHECKING:
    from torch import nn

KERNEL = 3


def check(model: Mapping[str, Any], shape: Sequence[int] | None, eps: float) -> None:
    """What `cnn` asks, for kernels of 3x3."""
    convolutional.check({"kernel": KERNEL, **model}, shape, eps)


@checked_by(check)
def vgg(
    shape: list[int],
    classes: int,
    channels: list[int],
    pool: PerLayer,
    pooled: Annotated[int, POOLED],
    hidden: Annotated[list[int], HIDDEN],
    norm: Annotated[str, NORM],
) -> nn.Module:
    """3x3 convolutions with ReLU and 2x2 pooling where `pool` says 2; maps averaged to pooled x
    pooled; linear layers.

    torch's default initialisation divides the image's part of the activations by sqrt(6) in each
    layer: next to nothing is left of it.
    """
    from torch import nn

    module = convolutional.cnn(
        shape, classes, channels, KERNEL, norm, pool=pool, pooled=pooled, hidden=hidden
    )
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0, 0.01)
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return module
