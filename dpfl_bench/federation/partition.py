"""How training records are dealt to clients.

Every function returns one array of record indices (int64, sorted) for each client, none empty;
disjoint, but for `overlap`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from dpfl_bench.checks import ranges
from dpfl_bench.federation import shares

Parts = list[np.ndarray]


def iid(labels: np.ndarray, owners: np.ndarray | None, clients: int, rng: np.random.Generator) -> Parts:
    """All records at random, in equal shares (sizes differ by at most 1)."""
    shares.enough(len(labels), clients)
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]


def shards(
    labels: np.ndarray,
    owners: np.ndarray | None,
    clients: int,
    rng: np.random.Generator,
    shards_per_client: int,
) -> Parts:
    """Sorted by label, cut into equal shards, and `shards_per_client` of them dealt to each client
    at random.

    normalized, appendix H, uses 5. A shard that spans a border between classes holds both.
    """
    _classes(labels, "shards")
    ranges.check("partition.shards_per_client", shards_per_client, ranges.COUNT)
    shares.enough(len(labels), clients, shards_per_client)
    order, hands = _hands(len(labels), clients, rng, shards_per_client)
    pieces = np.array_split(_by_label(order, labels), clients * shards_per_client)
    return [np.sort(np.concatenate([pieces[shard] for shard in hand])) for hand in hands]


def smallest_by_shards(records: int, clients: int, rng: np.random.Generator, shards_per_client: int) -> int:
    """How many of so many records `shards` deals to the smallest client; their labels do not
    matter.
    """
    hands = _hands(records, clients, rng, shards_per_client)[1]
    return int(_equal_sizes(records, clients * shards_per_client)[hands].sum(axis=1).min())


def _hands(
    records: int, clients: int, rng: np.random.Generator, shards_per_client: int
) -> tuple[np.ndarray, np.ndarray]:
    """The records in the order that equal labels keep, and each client's shards: (clients,
    shards_per_client).
    """
    order = rng.permutation(records)
    return order, rng.permutation(clients * shards_per_client).reshape(clients, shards_per_client)


def similarity(
    labels: np.ndarray, owners: np.ndarray | None, clients: int, rng: np.random.Generator, percent: float
) -> Parts:
    """`percent` % of each client's records at random, the rest contiguous in label order (SCAFFOLD,
    dpscaffold).
    """
    _classes(labels, "similarity")
    ranges.check("partition.percent", percent, ranges.SIMILARITY)
    shares.enough(len(labels), clients)
    order = rng.permutation(len(labels))
    sizes = _equal_sizes(len(labels), clients)
    random = np.floor(sizes * percent / 100 + 0.5).astype(np.int64)
    alike = np.split(order[: random.sum()], np.cumsum(random)[:-1])
    skewed = np.split(_by_label(order[random.sum() :], labels), np.cumsum(sizes - random)[:-1])
    return [np.sort(np.concatenate(pair)) for pair in zip(alike, skewed, strict=True)]


def dirichlet(
    labels: np.ndarray, owners: np.ndarray | None, clients: int, rng: np.random.Generator, alpha: float
) -> Parts:
    """Equal shares (sizes differ by at most 1), each client's classes drawn from its own symmetric
    Dirichlet(alpha).

    Hsu et al. 2019, without replacement: when a class has run out, its mass goes to the remaining
    ones in proportion. Every class has concentration `alpha` (in Hsu et al.'s notation Dir(alpha p)
    with p = 1, not 1/classes).
    """
    _classes(labels, "dirichlet")
    ranges.check("partition.alpha", alpha, ranges.ALPHA)
    shares.enough(len(labels), clients)
    values, stock = np.unique(labels, return_counts=True)
    order = _by_label(rng.permutation(len(labels)), labels)
    begin = np.cumsum(stock) - stock
    parts: Parts = []
    for size in _equal_sizes(len(labels), clients):
        take = _draw(size, rng.dirichlet(np.full(len(values), alpha)), stock, rng)
        pieces = [order[first : first + count] for first, count in zip(begin, take, strict=True)]
        parts.append(np.sort(np.concatenate(pieces)))
        begin, stock = begin + take, stock - take
    return parts


def overlap(
    labels: np.ndarray, owners: np.ndarray | None, clients: int, rng: np.random.Generator, percent: float
) -> Parts:
    """Each client draws `percent` % of all records for itself, so a record may sit in several
    clients or in none (`pfl`).

    It depends on the number of records alone, so the accountant can ask how many clients hold one
    before any data loads.
    """
    return held(len(labels), clients, rng, percent)


def held(records: int, clients: int, rng: np.random.Generator, percent: float) -> Parts:
    """`overlap` of so many records."""
    size = shares.overlapping(records, percent)
    return [np.sort(rng.choice(records, size, replace=False)) for _ in range(clients)]


def natural(labels: np.ndarray, owners: np.ndarray | None, clients: int, rng: np.random.Generator) -> Parts:
    """Each client keeps its own records."""
    owned = np.empty(0, np.int64) if owners is None else owners
    shares.natural(len(np.unique(owned)), clients)
    return by_owner(owned)


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


def _draw(size: int, share: np.ndarray, stock: np.ndarray, rng: np.random.Generator) -> np.ndarray:
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


def _by_label(indices: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The indices in label order; equal labels keep the order of `indices`."""
    return indices[np.argsort(labels[indices], kind="stable")]


def _equal_sizes(records: int, clients: int) -> np.ndarray:
    return records // clients + (np.arange(clients) < records % clients)


def _classes(labels: np.ndarray, name: str) -> None:
    shares.classes(labels.dtype.kind in "iu" and labels.ndim == 1, name)
