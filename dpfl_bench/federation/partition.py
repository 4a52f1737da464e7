"""How training records are dealt to clients.

Every function returns one array of record indices (int64, sorted) for each client, none empty. They
are disjoint, but for `overlap`. labels: (n,), or (n, length) where a record has several. owners:
(n,) the natural client of each record, None where there is none.

`@deals` says what is known before any record is there, and `Annotated` gives the range of a
parameter. A dry run reads both, so numpy is imported where records are dealt.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from dpfl_bench.checks import ranges
from dpfl_bench.checks.ranges import ALPHA, COUNT, OVERLAP, SIMILARITY, SPREAD
from dpfl_bench.federation import preconditions
from dpfl_bench.federation.dealing import Node, deals

if TYPE_CHECKING:
    import numpy as np

    from dpfl_bench.federation.parts import Parts


@deals()
def iid(labels: np.ndarray, owners: np.ndarray | None, clients: int, rng: np.random.Generator) -> Parts:
    """All records at random, in equal shares (sizes differ by at most 1)."""
    import numpy as np

    preconditions.enough(len(labels), clients)
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]


# shards


def _enough_for_shards(records: int, clients: int, node: Node) -> None:
    preconditions.enough(records, clients, node["shards_per_client"])


def _smallest_shards(records: int, clients: int, node: Node) -> int:
    """Shards differ by a record, and a client may get the smaller ones only."""
    each = int(node["shards_per_client"])
    return each * (records // (clients * each)) if each > 0 else 0


def _drawn_shards(records: int, clients: int, node: Node) -> int:
    return _by_seed(records, clients, node["shards_per_client"], node["seed"])


@lru_cache(maxsize=1000)
def _by_seed(records: int, clients: int, shards_per_client: int, seed: int) -> int:
    from dpfl_bench.rng import generator

    return smallest_by_shards(records, clients, generator(seed, "partition"), shards_per_client)


@deals(check=_enough_for_shards, smallest=_smallest_shards, drawn=_drawn_shards, by_class=True)
def shards(
    labels: np.ndarray,
    owners: np.ndarray | None,
    clients: int,
    rng: np.random.Generator,
    shards_per_client: Annotated[int, COUNT],
) -> Parts:
    """Sorted by label, cut into equal shards, and `shards_per_client` of them dealt to each client
    at random.

    normalized, appendix H, uses 5. A shard that spans a border between classes holds both.
    """
    import numpy as np

    from dpfl_bench.federation.parts import by_label

    _classes(labels, "shards")
    ranges.check("partition.shards_per_client", shards_per_client, COUNT)
    preconditions.enough(len(labels), clients, shards_per_client)
    order, hands = _hands(len(labels), clients, rng, shards_per_client)
    pieces = np.array_split(by_label(order, labels), clients * shards_per_client)
    return [np.sort(np.concatenate([pieces[shard] for shard in hand])) for hand in hands]


def smallest_by_shards(records: int, clients: int, rng: np.random.Generator, shards_per_client: int) -> int:
    """How many of so many records `shards` deals to the smallest client. Their labels do not
    matter.
    """
    from dpfl_bench.federation.parts import equal_sizes

    hands = _hands(records, clients, rng, shards_per_client)[1]
    return int(equal_sizes(records, clients * shards_per_client)[hands].sum(axis=1).min())


def _hands(
    records: int, clients: int, rng: np.random.Generator, shards_per_client: int
) -> tuple[np.ndarray, np.ndarray]:
    """The records in the order that equal labels keep, and each client's shards: (clients,
    shards_per_client).
    """
    order = rng.permutation(records)
    return order, rng.permutation(clients * shards_per_client).reshape(clients, shards_per_client)


@deals(by_class=True)
def similarity(
    labels: np.ndarray,
    owners: np.ndarray | None,
    clients: int,
    rng: np.random.Generator,
    percent: Annotated[float, SIMILARITY],
) -> Parts:
    """`percent` % of each client's records at random, the rest contiguous in label order (SCAFFOLD,
    dpscaffold).
    """
    import numpy as np

    from dpfl_bench.federation.parts import by_label, equal_sizes

    _classes(labels, "similarity")
    ranges.check("partition.percent", percent, SIMILARITY)
    preconditions.enough(len(labels), clients)
    order = rng.permutation(len(labels))
    sizes = equal_sizes(len(labels), clients)
    random = np.floor(sizes * percent / 100 + 0.5).astype(np.int64)
    alike = np.split(order[: random.sum()], np.cumsum(random)[:-1])
    skewed = np.split(by_label(order[random.sum() :], labels), np.cumsum(sizes - random)[:-1])
    return [np.sort(np.concatenate(pair)) for pair in zip(alike, skewed, strict=True)]


def _not_known(records: int, clients: int, node: Node) -> None:
    """The records alone say how many a client gets."""


@deals(smallest=_not_known, by_class=True)
def one_label(
    labels: np.ndarray,
    owners: np.ndarray | None,
    clients: int,
    rng: np.random.Generator,
    percent: Annotated[float, SIMILARITY],
) -> Parts:
    """`percent` % of each client's records at random, the rest of one class: client i has class i %
    classes (the code of dpscaffold's authors; `similarity` is what the paper says).

    A client has n / clients records, fewer where its class runs out: the clients of a class share
    it evenly. Records that are left over are dealt to nobody, such as all of class 40 and up at 40
    clients and percent 0.
    """
    import numpy as np

    from dpfl_bench.federation.parts import equal_sizes

    _classes(labels, "one_label")
    ranges.check("partition.percent", percent, SIMILARITY)
    preconditions.enough(len(labels), clients)
    order, size, values = rng.permutation(len(labels)), len(labels) // clients, np.unique(labels)
    random = int(size * percent / 100 + 0.5)
    parts = np.split(order[: clients * random], clients)
    rest = order[clients * random :]
    for place, value in enumerate(values[:clients]):
        own = np.arange(place, clients, len(values))
        left = rest[labels[rest] == value]
        sizes = equal_sizes(min(len(left), len(own) * (size - random)), len(own))
        for client, piece in zip(own, np.split(left[: sizes.sum()], np.cumsum(sizes)[:-1]), strict=True):
            parts[client] = np.concatenate([parts[client], piece])
    return [np.sort(part) for part in parts]


@deals(by_class=True)
def dirichlet(
    labels: np.ndarray,
    owners: np.ndarray | None,
    clients: int,
    rng: np.random.Generator,
    alpha: Annotated[float, ALPHA],
) -> Parts:
    """Equal shares (sizes differ by at most 1), each client's classes drawn from its own symmetric
    Dirichlet(alpha).

    Hsu et al. 2019, without replacement: when a class has run out, its mass goes to the remaining
    ones in proportion. Every class has concentration `alpha` (in Hsu et al.'s notation Dir(alpha p)
    with p = 1, not 1/classes).
    """
    import numpy as np

    from dpfl_bench.federation.parts import by_label, drawn_by_class, equal_sizes

    _classes(labels, "dirichlet")
    ranges.check("partition.alpha", alpha, ALPHA)
    preconditions.enough(len(labels), clients)
    values, stock = np.unique(labels, return_counts=True)
    order = by_label(rng.permutation(len(labels)), labels)
    begin = np.cumsum(stock) - stock
    parts: Parts = []
    for size in equal_sizes(len(labels), clients):
        take = drawn_by_class(size, rng.dirichlet(np.full(len(values), alpha)), stock, rng)
        pieces = [order[first : first + count] for first, count in zip(begin, take, strict=True)]
        parts.append(np.sort(np.concatenate(pieces)))
        begin, stock = begin + take, stock - take
    return parts


# uneven


def _drawn_uneven(records: int, clients: int, node: Node) -> int:
    from dpfl_bench.rng import generator

    draw = generator(node["seed"], "partition")
    from dpfl_bench.federation.uneven import uneven_sizes

    return int(uneven_sizes(records, clients, node["spread"], draw).min())


@deals(smallest=lambda records, clients, node: 1, drawn=_drawn_uneven)
def uneven(
    labels: np.ndarray,
    owners: np.ndarray | None,
    clients: int,
    rng: np.random.Generator,
    spread: Annotated[float, SPREAD],
) -> Parts:
    """All records at random, in unequal shares: their standard deviation over the clients is
    `spread` times their mean (`balancing`: FEMNIST's 6129 +- 1915 are spread .3125).
    """
    import numpy as np

    from dpfl_bench.federation.uneven import uneven_sizes

    ranges.check("partition.spread", spread, SPREAD)
    preconditions.enough(len(labels), clients)
    sizes = uneven_sizes(len(labels), clients, spread, rng)
    order = rng.permutation(len(labels))
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]


# overlap


def _enough_to_overlap(records: int, clients: int, node: Node) -> None:
    preconditions.overlapping(records, node["percent"])


def _share(records: int, clients: int, node: Node) -> int:
    return int(records * node["percent"] / 100)


def _foreseen(records: int, clients: int, node: Node) -> Parts:
    from dpfl_bench.rng import generator

    return overlap_of(records, clients, generator(node["seed"], "partition"), node["percent"])


@deals(check=_enough_to_overlap, smallest=_share, mean=_share, parts=_foreseen)
def overlap(
    labels: np.ndarray,
    owners: np.ndarray | None,
    clients: int,
    rng: np.random.Generator,
    percent: Annotated[float, OVERLAP],
) -> Parts:
    """Each client draws `percent` % of all records for itself, so a record may sit in several
    clients or in none (`pfl`).

    It depends on the number of records alone, so the accountant can ask how many clients hold one
    before any data loads.
    """
    return overlap_of(len(labels), clients, rng, percent)


def overlap_of(records: int, clients: int, rng: np.random.Generator, percent: float) -> Parts:
    """`overlap` of so many records."""
    import numpy as np

    size = preconditions.overlapping(records, percent)
    return [np.sort(rng.choice(records, size, replace=False)) for _ in range(clients)]


# natural


def _no_check(records: int, clients: int, node: Node) -> None:
    """How many natural clients there are does not follow from the number of records."""


@deals(check=_no_check, smallest=_not_known, natural=True)
def natural(labels: np.ndarray, owners: np.ndarray | None, clients: int, rng: np.random.Generator) -> Parts:
    """Each client keeps its own records."""
    import numpy as np

    from dpfl_bench.federation.parts import by_owner

    owned = np.empty(0, np.int64) if owners is None else owners
    preconditions.natural(len(np.unique(owned)), clients)
    return by_owner(owned)


def _classes(labels: np.ndarray, name: str) -> None:
    preconditions.classes(labels.dtype.kind in "iu" and labels.ndim == 1, name)
