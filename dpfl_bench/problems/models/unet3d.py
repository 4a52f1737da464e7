"""3D U-Nets for volumes. What a dry run reads of them is here; unet.py has the network, with
torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dpfl_bench.checks.ranges import COUNT

if TYPE_CHECKING:
    from torch import nn

Count = Annotated[int, COUNT]


def unet3d(shape: list[int], classes: int, channels: Count, blocks: Count) -> nn.Module:
    """Volumes (n, inputs, d, h, w) to logits (n, d, h, w).

    channels: the first convolution's, doubled by each block; blocks: the encoder's, with 2x2x2
    pooling between them.
    """
    from dpfl_bench.problems.models.unet import UNet3d

    if len(shape) != 4:
        raise ValueError(
            f"dataset.shape={list(shape)}: expected volumes of shape [channels, depth, height, width] for"
            " model=unet3d"
        )
    if classes != 1:
        raise ValueError(
            f"model=unet3d: expected masks of 0 and 1, that is one class, got {classes} (use model=mlp or"
            " logreg to classify whole records)"
        )
    if channels < 1 or blocks < 1:
        raise ValueError(f"model.channels={channels}, model.blocks={blocks}: expected both at least 1")
    if min(shape[1:]) < 2 ** (blocks - 1):
        raise ValueError(
            f"dataset.shape={list(shape)}: expected at least {2 ** (blocks - 1)} voxels a side for {blocks}"
            " blocks; lower model.blocks"
        )
    return UNet3d(shape[0], channels, blocks)
