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
