"""The noise that makes a release private. Each client draws from its own stream, so no two clients,
rounds or seeds share noise.

Noise is drawn in the format (`dtype`) of what it is added to. If a float32 number were added to a
float64 sum, then subtracting the right update would leave a float32 number, and subtracting any
other candidate would not. What the last bits of a format still reveal is the subject of the other
file on noise, `noise_grid.py`.

Simulation noise: Philox is statistically sound but not cryptographic; a deployment needs a secure
generator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from dpfl_bench import rng

BLOCK = 2**16  # numbers of one stream that are drawn at once; other blocks give other numbers
Format = type[np.float32] | type[np.float64]
# numbers of several streams that are drawn at once: drawing takes eight times the memory of the
# result, and all of it should fit in a core's cache
AT_ONCE = 3 * 2**14


def client_gaussian(
    seed: int, round: int, clients: Iterable[int], dimension: int, std: float, dtype: Format
) -> np.ndarray:
    """N(0, std^2 I) for each client of a round, from the client's own stream: (c, dimension)."""
    return normals([rng.generator(seed, "noise", round, int(i)) for i in clients], dimension, dtype) * dtype(
        std
    )


def server_gaussian(seed: int, round: int, dimension: int, std: float, dtype: Format) -> np.ndarray:
    """N(0, std^2 I) drawn once at a trusted server: (dimension,)."""
    drawn: np.ndarray = normals([rng.generator(seed, "server-noise", round)], dimension, dtype)[0]
    return drawn * dtype(std)


def privunit_streams(seed: int, round: int, clients: Iterable[int]) -> list[np.random.Generator]:
    """Each client's own generator for PrivUnit and ScalarDP."""
    return [rng.generator(seed, "privunit", round, int(i)) for i in clients]


def server_scalar(seed: int, round: int, what: str, std: float) -> float:
    """N(0, std^2) on one further number of a round's sum, e.g. the sum of squared norms. `what`
    names its stream. It is drawn once, as clients' shares would add up to the same distribution.
    """
    return std * float(rng.generator(seed, what, round).standard_normal())


class RecordGaussian:
    """N(0, I) for each client at each local step of one round, each client from its own stream."""

    def __init__(self, seed: int, round: int, clients: Iterable[int]) -> None:
        self._streams = [rng.generator(seed, "gradient-noise", round, int(i)) for i in clients]

    def draw(self, dimension: int, dtype: Format) -> np.ndarray:
        """The noise of the next local step: (c, dimension)."""
        return normals(self._streams, dimension, dtype)


def normals(streams: Sequence[np.random.Generator], dimension: int, dtype: Format) -> np.ndarray:
    """N(0, I) from each stream: (c, dimension).

    By Box and Muller's method, whose functions numpy computes many at a time. In float32 that takes
    a third of the time of numpy's own normal numbers.
    """
    drawn, draw = np.empty((len(streams), dimension), dtype), _draw if dtype is np.float32 else _draw_wide
    for column in range(0, dimension, BLOCK):
        block = drawn[:, column : column + BLOCK]
        rows = max(1, AT_ONCE // block.shape[1])
        for row in range(0, len(streams), rows):
            draw(streams[row : row + rows], block[row : row + rows])
    return drawn


def _draw(streams: Sequence[np.random.Generator], out: np.ndarray) -> None:
    """r cos a and r sin a, with r^2 / 2 exponential and a uniform. A radius takes 64 bits, so it
    ends at 9.4: what is missing beyond is less than any delta.
    """
    pairs, left = (out.shape[1] + 1) // 2, out.shape[1] // 2
    words = [stream.bit_generator.random_raw(pairs + (pairs + 1) // 2) for stream in streams]
    bits = np.stack(words) if len(words) > 1 else words[0][None]
    radius = np.abs(bits[:, :pairs].view(np.int64).astype(np.float32))
    angle = bits[:, pairs:].view(np.int32)[:, :pairs].astype(np.float32)
    radius += np.float32(0.5)
    radius *= np.float32(2.0**-63)  # uniform in (0, 1]
    np.log(radius, out=radius)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    angle *= np.float32(math.pi * 2.0**-31)
    np.multiply(radius, np.cos(angle), out=out[:, :pairs])
    np.sin(angle, out=angle)
    np.multiply(radius[:, :left], angle[:, :left], out=out[:, pairs:])


def _draw_wide(streams: Sequence[np.random.Generator], out: np.ndarray) -> None:
    """The numbers of `_draw` in float64. The angles get 32 more bits behind the 32 of `_draw`, so a
    run has the same noise in either format.
    """
    pairs, left = (out.shape[1] + 1) // 2, out.shape[1] // 2
    more = np.stack([_further(stream, (pairs + 1) // 2) for stream in streams])
    bits = np.stack([stream.bit_generator.random_raw(pairs + (pairs + 1) // 2) for stream in streams])
    radius = np.abs(bits[:, :pairs].view(np.int64).astype(np.float64))
    radius += 0.5
    radius *= 2.0**-63  # uniform in (0, 1]
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    angle = more.view(np.uint32)[:, :pairs] * 2.0**-32
    angle += bits[:, pairs:].view(np.int32)[:, :pairs]
    angle *= math.pi * 2.0**-31
    np.multiply(radius, np.cos(angle), out=out[:, :pairs])
    np.sin(angle, out=angle)
    np.multiply(radius[:, :left], angle[:, :left], out=out[:, pairs:])


def _further(stream: np.random.Generator, count: int) -> np.ndarray:
    """Words of the same stream 2^128 further on, which nobody else reads.

    The stream itself advances by more words than are taken here, so the next call's words begin
    behind these. The jump forgets where in a block of four words the stream is, so that many words
    are left out. The stream jumps and comes back: another one for the jump would take three times
    as long.
    """
    bits = cast(np.random.Philox, stream.bit_generator)
    here = bits.state
    place: int = here["buffer_pos"]
    bits.advance(2**128)
    words: np.ndarray = bits.random_raw(place + count)[place:]
    bits.state = here
    return words
