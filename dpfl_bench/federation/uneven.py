"""Sizes of clients that differ at random."""

from __future__ import annotations

import numpy as np

DRAWS = 1000  # until every client has a record


def uneven_sizes(records: int, clients: int, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Sizes that add up to `records`, each at least 1, whose standard deviation (of n - 1) is
    `spread` times their mean up to whole records: (clients,).

    Drawn from a Gamma law, then stretched to that deviation; draws that would leave a client
    nothing are drawn again.
    """
    if clients == 1 or spread == 0:
        return _whole(np.full(clients, records / clients), records)
    for _ in range(DRAWS):
        drawn = rng.gamma(1 / spread**2, size=clients)
        shares = 1 + spread * (drawn - drawn.mean()) / drawn.std(ddof=1)
        sizes = _whole(records / clients * shares, records)
        if sizes.min() >= 1:
            return sizes
    raise ValueError(
        f"partition.spread={spread:g}: {records} records in {clients} shares that far apart leave a client"
        " without any; expected a smaller spread or fewer clients"
    )


def _whole(sizes: np.ndarray, records: int) -> np.ndarray:
    """Rounded so that they add up to `records`: those that lose most by rounding down go up."""
    floor: np.ndarray = np.floor(sizes).astype(np.int64)
    up = np.argsort(floor - sizes, kind="stable")[: records - floor.sum()]
    floor[up] += 1
    return floor
