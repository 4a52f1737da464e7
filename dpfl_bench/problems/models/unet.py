"""3D U-Net in the shape of FLamby's baseline for Fed-IXI (Terrail et al. 2022), with GroupNorm.

Deviations: GroupNorm in place of BatchNorm, as in `balancing`; one logit per voxel in place of a
softmax over two. What is upsampled takes the size of what it is joined with, so that sizes need not
be divisible.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl_bench.problems.models.cnn import norm_layers


class UNet3d(nn.Module):
    def __init__(self, inputs: int, first: int, blocks: int):
        super().__init__()
        widths = [first * 2**block for block in range(blocks)]
        downs = [
            nn.Sequential(
                *_convolution(inputs if block == 0 else width, width, norm=block > 0),
                *_convolution(width, 2 * width),
            )
            for block, width in enumerate(widths)
        ]
        ups = [
            nn.Sequential(*_convolution(3 * skip, skip), *_convolution(skip, skip))
            for skip in (2 * w for w in widths[-2::-1])
        ]
        self.down, self.up = nn.ModuleList(downs), nn.ModuleList(ups)
        self.out = nn.Conv3d(2 * first, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for block in self.down:
            x = block(functional.max_pool3d(x, 2) if skips else x)
            skips.append(x)
        skips.pop()
        for block in self.up:
            skip = skips.pop()
            x = functional.interpolate(x, size=skip.shape[2:], mode="trilinear")
            x = block(torch.cat([skip, x], 1))
        logits: Tensor = self.out(x)
        return logits[:, 0]


def _convolution(inputs: int, outputs: int, norm: bool = True) -> list[nn.Module]:
    """3x3x3, of the same size."""
    normed = norm_layers("group" if norm else "none", outputs)
    return [nn.Conv3d(inputs, outputs, 3, padding=1, bias=not norm), *normed, nn.PReLU()]
