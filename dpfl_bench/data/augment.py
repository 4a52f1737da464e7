"""Images flipped and turned at random: `balancing`, appendix A, of Messidor.

Deviation: each image is drawn once, by its pixels and the seed, and stays so for the run. The paper
does not say when it draws; transforms in PyTorch draw anew whenever an image is read. A run's
records thus stay the same bytes for every algorithm, round and evaluation, at the price of less
variety: an image is seen in one of its forms.
"""

from __future__ import annotations

import hashlib

import numpy as np

from dpfl_bench.rng import generator

DEGREES = 10.0


def augmented(images: np.ndarray, seed: int) -> np.ndarray:
    """(n, 3, h, w) uint8: each flip with probability 1/2, then a turn of -10 to 10 degrees; the
    corners become black.
    """
    drawn = np.empty_like(images, order="C")
    for index, image in enumerate(images):
        drawn[index] = _augmented(image, generator(seed, "augment", _own_number(image)))
    return drawn


def _own_number(image: np.ndarray) -> int:
    """Of the image alone. By its place, how many records another client holds would decide how this
    one is turned.
    """
    return int.from_bytes(hashlib.blake2b(image.tobytes(), digest_size=6).digest())


def _augmented(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    import PIL.Image  # there where images were read from files

    picture = PIL.Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
    for flip in (PIL.Image.Transpose.FLIP_LEFT_RIGHT, PIL.Image.Transpose.FLIP_TOP_BOTTOM):
        if rng.random() < 0.5:
            picture = picture.transpose(flip)
    turned = picture.rotate(rng.uniform(-DEGREES, DEGREES), PIL.Image.Resampling.BILINEAR)
    return np.asarray(turned).transpose(2, 0, 1)
