"""The noise that makes a release private. Each client draws from its own stream, so no two clients, rounds or seeds share noise.

Simulation noise: Philox is statistically sound but not cryptographic; a deployment needs a secure generator.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dpfl_bench import rng


def client_gaussian(seed: int, round: int, clients: Iterable[int], dimension: int, std: float) -> np.ndarray:
    """N(0, std^2 I) for each client: (c, dimension), float32."""
    rows = [rng.generator(seed, "noise", round, int(i)).standard_normal(dimension, dtype=np.float32) for i in clients]
    return np.stack(rows) * np.float32(std)


def server_gaussian(seed: int, round: int, dimension: int, std: float) -> np.ndarray:
    """N(0, std^2 I) drawn once at a trusted server: (dimension,), float32."""
    return rng.generator(seed, "server-noise", round).standard_normal(dimension, dtype=np.float32) * np.float32(std)


def privunit_streams(seed: int, round: int, clients: Iterable[int]) -> list[np.random.Generator]:
    """Each client's own generator for PrivUnit and ScalarDP."""
    return [rng.generator(seed, "privunit", round, int(i)) for i in clients]


def server_scalar(seed: int, round: int, what: str, std: float) -> float:
    """N(0, std^2) on one number of a round's sum, e.g. its squared norms. Shares of it would add up to the same."""
    return std * float(rng.generator(seed, what, round).standard_normal())


class RecordGaussian:
    """N(0, I) for each client at each local step of one round, each client from its own stream."""

    def __init__(self, seed: int, round: int, clients: Iterable[int]) -> None:
        self._streams = [rng.generator(seed, "gradient-noise", round, int(i)) for i in clients]

    def draw(self, dimension: int) -> np.ndarray:
        """(c, dimension), float32: the next local step's."""
        return np.stack([stream.standard_normal(dimension, dtype=np.float32) for stream in self._streams])
