"""The only maker of random generators.

Every generator is derived from (seed, purpose, round, client, ...) alone, so a result does not
depend on the chunk size, the number of workers or the order of work, and two purposes never share a
stream. Streams are numpy's Philox keyed by 128 bits of BLAKE2b: torch's CPU generator keeps 32 bits
of a seed, so a million clients and rounds would share noise about a hundred times.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


def _key(seed: int, purpose: str, ids: tuple[int, ...]) -> bytes:
    packed = struct.pack(f"<{1 + len(ids)}q", seed, *ids)
    return hashlib.blake2b(packed, digest_size=16, person=purpose.encode()[:16]).digest()


def generator(seed: int, purpose: str, *ids: int) -> np.random.Generator:
    """The generator for one purpose (at most 16 letters), e.g. generator(seed, "noise", round,
    client).
    """
    if len(purpose) > 16:
        raise ValueError(f"purpose={purpose!r}: expected at most 16 letters")
    key: Any = _Key(
        np.frombuffer(_key(seed, purpose, ids), dtype=np.uint64)
    )  # numpy's types know of its own seeds only
    return np.random.Generator(np.random.Philox(key))


class _Key(ISeedSequence):
    """Philox(key=words) would ask the system for entropy first, and drop it: twice the time."""

    def __init__(self, words: np.ndarray):
        self.words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        return self.words


def initialised(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a module whose default initialisation draws from `seed` and leaves torch's global
    generator as it was.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int.from_bytes(_key(seed, "init", ())[:8], "little") >> 1)
        return make()
