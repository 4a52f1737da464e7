"""The layers of a convolutional network and the sizes of their maps, without torch: whether a
record fits is known before any layer is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PerLayer = Any  # a whole number for all convolutions, or a list of one for each
STRIDE, POOL = 1, 2  # of a plain network


@dataclass(frozen=True)
class Convolution:
    channels: int
    kernel: int
    padding: int
    stride: int
    pool: int
    pool_stride: int

    def left(self, size: int) -> int:
        """Of so many pixels in a row."""
        return (
            (size + 2 * self.padding - self.kernel) // self.stride + 1 - self.pool
        ) // self.pool_stride + 1


def convolutions(
    shape: Sequence[int],
    channels: list[int],
    kernel: PerLayer,
    padding: PerLayer = None,
    stride: PerLayer = STRIDE,
    pool: PerLayer = POOL,
    pool_stride: PerLayer = None,
    input_groups: int = 0,
) -> tuple[list[Convolution], list[int]]:
    """The convolutions, and the height and width of the last one's maps. A ValueError where images
    of this shape do not fit.
    """
    if input_groups < 0 or (input_groups and shape[0] % input_groups):
        raise ValueError(
            f"model.input_groups={input_groups}: expected 0 or what divides the {shape[0]} channels of"
            " dataset.shape"
        )
    layers = _layers(channels, kernel, padding, stride, pool, pool_stride)
    size = list(shape[1:])
    for layer in layers:
        size = [layer.left(n) for n in size]
        if min(size) < 1:
            raise ValueError(
                f"dataset.shape={list(shape)}: nothing is left of {shape[1]}x{shape[2]} after the"
                f" convolutions and pools of model.channels={list(channels)}; use larger images, fewer layers"
                " or model=mlp"
            )
    return layers, size


def _layers(
    channels: list[int],
    kernel: PerLayer,
    padding: PerLayer,
    stride: PerLayer,
    pool: PerLayer,
    pool_stride: PerLayer,
) -> list[Convolution]:
    count = len(channels)
    kernels, pools = _each("kernel", kernel, count), _each("pool", pool, count)
    columns = (
        _each("channels", channels, count),
        kernels,
        [k // 2 for k in kernels] if padding is None else _each("padding", padding, count, least=0),
        _each("stride", stride, count),
        pools,
        pools if pool_stride is None else _each("pool_stride", pool_stride, count),
    )
    return [Convolution(*layer) for layer in zip(*columns, strict=True)]


def _each(name: str, value: PerLayer, count: int, least: int = 1) -> list[int]:
    numbers = list(value) if isinstance(value, list) else [value] * count
    if len(numbers) != count or any(type(n) is not int or n < least for n in numbers):
        raise ValueError(
            f"model.{name}={value}: expected a whole number >= {least} or a list of {count}, one for each of"
            " model.channels"
        )
    return numbers
