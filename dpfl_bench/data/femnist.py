"""FEMNIST: LEAF's handwritten digits and letters, 28x28, 62 classes (0-9, A-Z, a-z), by 3550
writers.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from dpfl_bench.checks.ranges import FRACTION
from dpfl_bench.data import leaf
from dpfl_bench.data.records import Records

_PIXELS = 28 * 28
_CLASSES = 62
_SAMPLES = 805_263
SOURCE = leaf.source("femnist", _SAMPLES, _PIXELS)
_STEPS = leaf.PREPROCESS.format(name="femnist", arguments="-s niid --sf 1.0 -k 0 -t sample")


def load(*, root: str | None, fraction: Annotated[float, FRACTION], seed: int) -> Records:
    """uint8 images (n, 1, 28, 28), writers as owners.

    LEAF writes grey levels k/255, white paper 1.0 and ink 0.0; k is stored, and what is no k/255 is
    refused. Nothing is inverted: divided by 255 the images are LEAF's, unlike EMNIST's, which are
    white on black. `balancing` takes fraction=0.05: 40263 of the 805263 images.
    """
    kind = leaf.Kind("femnist", _STEPS, _images, _CLASSES, samples=_SAMPLES, users=3_550)
    return leaf.read(kind, root, fraction, seed)


def _images(x: list[Any], y: list[Any]) -> leaf.Arrays:
    for image in x:
        if not isinstance(image, list) or len(image) != _PIXELS:
            length = len(image) if isinstance(image, list) else type(image).__name__
            raise ValueError(f"expected images of {_PIXELS} pixels, found {length}")
    for label in y:
        if type(label) is not int or not 0 <= label < _CLASSES:
            raise ValueError(f"expected labels 0..{_CLASSES - 1}, found {label!r}")
    pixels = np.array(x, np.float64).reshape(-1, 1, 28, 28)
    levels = np.nan_to_num(pixels * 255).round().clip(0, 255)
    wrong = ~(
        abs(pixels * 255 - levels) < 1e-3
    )  # also where not a number; a thousandth of a level is a float32's rounding
    if wrong.any():
        raise ValueError(f"expected grey levels k/255 in 0..1, found {pixels[wrong][0]:g}")
    return levels.astype(np.uint8), np.array(y, np.int64)
