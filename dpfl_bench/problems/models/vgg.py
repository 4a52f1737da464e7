"""VGG (Simonyan and Zisserman 2015), with torchvision's initialisation.

Deviations: no Dropout, whose coins would be drawn from torch's global generator.
"""

from __future__ import annotations

from torch import nn

from dpfl_bench.problems.models.cnn import cnn
from dpfl_bench.problems.models.sizes import VGG_KERNEL, PerLayer


def vgg(
    shape: list[int],
    classes: int,
    channels: list[int],
    pool: PerLayer,
    pooled: int,
    hidden: list[int],
    norm: str,
) -> nn.Module:
    """3x3 convolutions with ReLU and 2x2 pooling where `pool` says 2; maps averaged to pooled x
    pooled; linear layers.

    torch's default initialisation divides the image's part of the activations by sqrt(6) in each
    layer: next to nothing is left of it.
    """
    module = cnn(shape, classes, channels, VGG_KERNEL, norm, pool=pool, pooled=pooled, hidden=hidden)
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0, 0.01)
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return module
