"""The records of each client, as one array of places (int64) for each: what partitions give, and
what is asked of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

Parts = list[np.ndarray]


def by_owner(owners: np.ndarray) -> Parts:
    """The records of owner 0, of owner 1, ..."""
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(owners[order])) + 1)


def counted(parts: Sequence[np.ndarray], records: int) -> np.ndarray:
    """How many clients hold each of so many records, (records,). Raises ValueError for parts that
    no partition may deal.
    """
    for client, part in enumerate(parts):
        if (
            part.ndim != 1
            or part.dtype.kind not in "iu"
            or (len(part) and not 0 <= int(part.min()) <= int(part.max()) < records)
        ):
            raise ValueError(
                f"client {client}: expected one row of whole numbers in 0..{records - 1}; correct the"
                " partition"
            )
        own = np.sort(part)
        twice = own[1:][own[1:] == own[:-1]]
        if len(twice):
            raise ValueError(
                f"client {client} holds record {twice[0]} more than once: expected each record once in a"
                " client, for what bounds the part of one would not bound it; correct the partition"
            )
    return (
        np.bincount(np.concatenate(parts), minlength=records) if len(parts) else np.zeros(records, np.int64)
    )


def digest(parts: Parts) -> str:
    """16 hex digits that name a partition: sha256 over the sizes and the indices."""
    sizes = np.array([len(part) for part in parts])
    content = np.concatenate([sizes, *parts]).astype("<i8")
    return hashlib.sha256(content.tobytes()).hexdigest()[:16]


def drawn_by_class(size: int, share: np.ndarray, stock: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How many records of each class: `size` draws from `share`, at most `stock` each, the excess
    drawn again.
    """
    take = np.zeros_like(stock)
    while (need := size - take.sum()) > 0:
        left = take < stock
        mass = np.where(left, share, 0.0)
        if mass.sum() <= 0:  # a small alpha leaves exactly nothing for the classes that remain
            mass = left.astype(float)
        take = np.minimum(take + rng.multinomial(need, mass / mass.sum()), stock)
    return take


def by_label(indices: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The indices in label order; equal labels keep the order of `indices`."""
    return indices[np.argsort(labels[indices], kind="stable")]


def equal_sizes(records: int, clients: int) -> np.ndarray:
    """(clients,): sizes that differ by at most 1."""
    return records // clients + (np.arange(clients) < records % clients)
