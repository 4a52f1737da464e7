"""How records are dealt: exact counts, who holds which classes, determinism, and what is
refused.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from dpfl_bench.checks import ranges, signatures
from dpfl_bench.federation import dealing, partition
from dpfl_bench.federation.parts import Parts, counted, digest
from dpfl_bench.rng import generator

LABELS = np.repeat(np.arange(10), [130, 70, 100, 100, 100, 120, 80, 100, 100, 103])  # 1003 records
CLASSED = {
    "iid": {},
    "shards": {"shards_per_client": 2},
    "similarity": {"percent": 10.0},
    "dirichlet": {"alpha": 0.3},
    "uneven": {"spread": 0.0},
}


def deal(name: str, labels: np.ndarray = LABELS, clients: int = 20, seed: int = 0, **own: float) -> Parts:
    return getattr(partition, name)(labels, None, clients, generator(seed, "partition"), **own)


def histogram(part: np.ndarray, labels: np.ndarray = LABELS) -> np.ndarray:
    return np.bincount(labels[part], minlength=10)


@pytest.mark.parametrize("name", CLASSED)
@pytest.mark.parametrize("clients", [1, 7, 20, 500])
def test_every_record_goes_to_exactly_one_client(name: str, clients: int) -> None:
    parts = deal(name, clients=clients, **CLASSED[name])
    assert len(parts) == clients
    assert all(part.dtype == np.int64 and len(part) for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(LABELS)))
    spread = 2 if name == "shards" else 1  # each of two shards may have one record more
    assert np.ptp([len(part) for part in parts]) <= spread


@pytest.mark.parametrize("name", CLASSED)
def test_same_seed_same_digest_other_seed_differs(name: str) -> None:
    digests = [digest(deal(name, seed=seed, **CLASSED[name])) for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]
    assert len(digests[0]) == 16


@pytest.mark.parametrize(
    ("clients", "records", "spread"), [(6, 36774, 0.3125), (2, 30, 0.4), (100, 5000, 0.3)]
)
def test_uneven_sizes_keep_mean_and_deviation(clients: int, records: int, spread: float) -> None:
    """`balancing`'s FEMNIST: 6129 +- 1915 records in 6 hands."""
    smallest = partition.uneven.dealing.drawn  # type: ignore[attr-defined]
    assert smallest is not None
    firsts = set()
    for seed in range(5):
        parts = deal("uneven", np.zeros(records, np.int64), clients, seed, spread=spread)
        sizes = np.array([len(part) for part in parts])
        assert sizes.sum() == records
        assert sizes.min() >= 1
        assert sizes.std(ddof=1) == pytest.approx(spread * records / clients, abs=1)
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(records))
        assert min(sizes) == smallest(records, clients, {"seed": seed, "spread": spread})
        firsts.add(sizes[0])
    assert len(firsts) > 1


@pytest.mark.parametrize("clients", [3, 20])
def test_uneven_sizes_that_cannot_be_are_refused(clients: int) -> None:
    with pytest.raises(ValueError, match=r"spread=2: .* leave a client without any"):
        deal("uneven", np.zeros(clients, np.int64), clients, spread=2.0)
    with pytest.raises(ValueError, match=r"partition.spread=3: expected 0 <= spread <= 2"):
        deal("uneven", clients=clients, spread=3.0)


def test_digest_tells_owners_and_order_apart() -> None:
    a, b, c = np.array([0, 1]), np.array([2]), np.array([1, 2])
    assert len({digest(parts) for parts in ([a, b], [b, a], [a[:1], c])}) == 3


def test_shards_hold_one_class_each_where_the_sizes_divide() -> None:
    labels = generator(0, "labels").permutation(np.repeat(np.arange(10), 600))
    parts = deal("shards", labels, clients=60, shards_per_client=5)
    counts = np.array([histogram(part, labels) for part in parts])
    assert (counts.sum(axis=1) == 100).all()
    assert (counts % 20 == 0).all()  # whole shards of 20
    assert ((counts > 0).sum(axis=1) <= 5).all()
    # 300 shards, 30 of each class, 5 drawn without replacement: E[classes seen] = 10 (1 -
    # C(270,5)/C(300,5)) = 4.122
    miss = np.prod([(270 - k) / (300 - k) for k in range(5)])
    assert (
        abs((counts > 0).sum(axis=1).mean() - 10 * (1 - miss)) < 5 * 0.71 / 60**0.5
    )  # .71: deviation for one client


def test_ties_are_dealt_in_random_order() -> None:
    parts = deal("shards", np.zeros(1000, int), clients=2, shards_per_client=1)
    assert 0 < np.median(parts[0]) - 250 < 500  # contiguous indices would give 249.5 or 749.5


def test_similarity_from_sorted_to_iid() -> None:
    labels = generator(0, "labels").permutation(np.repeat(np.arange(10), 1000))
    sorted_only, tenth, alike = (
        np.array([histogram(p, labels) for p in deal("similarity", labels, 10, percent=percent)])
        for percent in (0, 10, 100)
    )
    assert np.array_equal(sorted_only, 1000 * np.eye(10, dtype=int))
    # client k: 100 records at random, the 900 others from a contiguous stretch of the sorted rest
    assert (np.diag(tenth) > 850).all()
    assert ((tenth > 0).sum(axis=1) > 5).all()
    # hypergeometric count of a class among 1000 of 10000: mean 100, deviation sqrt(1000 .1 .9 .9) =
    # 9
    assert abs(alike - 100).max() < 5 * 9


def test_one_label_a_client() -> None:
    """dpscaffold's code: 13 clients of 100 records and 10 classes; 0 to 2 have two clients each."""
    labels = generator(0, "labels").permutation(np.repeat(np.arange(10), 130))
    pure, tenth, alike = (
        [histogram(part, labels) for part in deal("one_label", labels, 13, percent=percent)]
        for percent in (0, 10, 100)
    )
    for client in range(13):
        shared = client % 10 < 3  # 130 records of the class for two clients
        assert np.array_equal(pure[client], (65 if shared else 100) * np.eye(10, dtype=int)[client % 10])
        assert tenth[client].argmax() == client % 10
        assert 0 < tenth[client].sum() - tenth[client].max() <= 10
        assert alike[client].sum() == 100
        assert (alike[client] > 0).all()


def test_one_label_gives_nobody_the_classes_that_are_left() -> None:
    parts = deal("one_label", clients=7, percent=0)
    assert [set(LABELS[part]) for part in parts] == [{k} for k in range(7)]
    # 1003 records of 7 clients: 143 each, of a class that has so many; else all of the class
    assert [len(part) for part in parts] == [130, 70, 100, 100, 100, 120, 80]
    counts = counted(parts, len(LABELS))
    assert set(counts[LABELS >= 7]) == {0}
    assert counts.max() == 1


def test_dirichlet_shares_have_the_moments_of_a_dirichlet() -> None:
    """While no class has run out, a client's class count is Dirichlet-multinomial."""
    classes, alpha, size, clients = 4, 0.5, 50, 2000
    # stock enough that no class runs out within the first 2000 of 20000 clients
    labels = np.repeat(np.arange(classes), 20000 * size // classes)
    parts = deal("dirichlet", labels, clients=20000, alpha=alpha)[:clients]
    shares = np.array([np.bincount(labels[part], minlength=classes) for part in parts]) / size
    total = alpha * classes
    expected = (1 / classes) * (1 - 1 / classes) / size * (size + total) / (1 + total)
    assert abs(shares.mean(axis=0) - 1 / classes).max() < 5 * (expected / clients) ** 0.5
    squares = (shares - 1 / classes) ** 2
    error = squares.std(axis=0) / clients**0.5
    assert (abs(squares.mean(axis=0) - expected) < 5 * error).all()
    narrower = expected * (1 + total) / (1 + 2 * total)  # the negative control: alpha = 1
    assert (abs(squares.mean(axis=0) - narrower) > 5 * error).all()


def test_dirichlet_gives_everything_out_even_for_tiny_alpha() -> None:
    counts = np.array([histogram(part) for part in deal("dirichlet", clients=17, alpha=1e-4)])
    assert np.array_equal(counts.sum(axis=0), np.bincount(LABELS))
    assert (counts[0] > 0).sum() == 1  # nearly all mass on one class


def test_dirichlet_with_huge_alpha_is_balanced() -> None:
    labels = np.repeat(np.arange(10), 5000)
    counts = np.array(
        [histogram(part, labels) for part in deal("dirichlet", labels, clients=50, alpha=1e6)[:25]]
    )
    assert abs(counts - 100).max() < 5 * (1000 * 0.1 * 0.9) ** 0.5  # multinomial, 1000 draws


def test_natural_keeps_owners() -> None:
    owners = np.array([2, 0, 1, 0, 2, 2])
    parts = partition.natural(np.zeros(6), owners, 3, generator(0, "partition"))
    assert [part.tolist() for part in parts] == [[1, 3], [2], [0, 4, 5]]
    with pytest.raises(ValueError, match=r"clients=4.*3 natural clients: set clients=3"):
        partition.natural(np.zeros(6), owners, 4, generator(0, "partition"))
    with pytest.raises(ValueError, match="no natural clients: use partition=iid"):
        partition.natural(np.zeros(6), None, 3, generator(0, "partition"))


@pytest.mark.parametrize(
    ("name", "own", "message"),
    [
        ("iid", {"clients": 1004}, "clients=1004 .*1003 training records: use fewer clients"),
        ("iid", {"clients": 0}, "clients=0: expected at least 1"),
        ("shards", {"clients": 600, "shards_per_client": 2}, "clients=600 with 2 shards.*use fewer clients"),
        ("shards", {"shards_per_client": 0}, "shards_per_client=0: expected at least 1"),
        ("similarity", {"percent": 101}, "percent=101: expected 0 <= percent <= 100"),
        ("dirichlet", {"alpha": 0.0}, "alpha=0: expected a finite alpha > 0"),
        ("dirichlet", {"alpha": 0.3, "clients": 2000}, "clients=2000"),
    ],
)
def test_refusals_say_what_to_change(name: str, own: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        deal(name, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["shards", "similarity", "dirichlet", "one_label"])
def test_regression_targets_have_no_classes(name: str) -> None:
    with pytest.raises(ValueError, match=f"partition={name}.*use partition=iid or partition=natural"):
        deal(name, np.linspace(0, 1, 100, dtype=np.float32), **CLASSED.get(name, {"percent": 0}))


def test_iid_takes_regression_targets() -> None:
    assert len(deal("iid", np.linspace(0, 1, 100, dtype=np.float32))) == 20


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[2] / "conf/partition").glob("*.yaml")), ids=lambda file: file.stem
)
def test_files_name_the_parameters_of_their_function(file: Path) -> None:
    config = OmegaConf.to_container(OmegaConf.load(file))
    assert isinstance(config, dict)
    module, _, name = config["_target_"].rpartition(".")
    function = getattr(importlib.import_module(module), name)
    own = set(inspect.signature(function).parameters) - {"labels", "owners", "clients", "rng"}
    assert own | {"_target_", "name", "seed"} == set(config)
    assert config["name"] == file.stem == name
    assert file.read_text().startswith("# ")


# what a partition says of itself before there are records

SAID = {**CLASSED, "overlap": {"percent": 20.0}}


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("clients", [3, 20, 90])
def test_what_a_partition_says_is_what_it_deals(name: str, clients: int) -> None:
    node = {"_target_": f"dpfl_bench.federation.partition.{name}", "seed": 0, **SAID[name]}
    says = dealing.of(node)
    assert says is not None
    parts = deal(name, clients=clients, **SAID[name])
    sizes = [len(part) for part in parts]
    known = len(LABELS)
    least, mean = says.smallest(known, clients, node), says.mean(known, clients, node)
    assert least is not None
    assert least <= min(sizes) <= mean <= sum(sizes) / clients < mean + 1
    assert says.overlapping == (max(counted(parts, known)) > 1)
    if says.drawn is not None:
        assert says.drawn(known, clients, node) == min(sizes)
    if says.parts is not None:
        assert digest(says.parts(known, clients, node)) == digest(parts)
    if says.by_class:
        with pytest.raises(ValueError, match="targets are no classes"):
            deal(name, LABELS / 2, clients, **SAID[name])


def test_natural_clients_say_nothing_of_their_sizes_and_foreign_partitions_nothing_at_all() -> None:
    says = dealing.of({"_target_": "dpfl_bench.federation.partition.natural"})
    assert says is not None
    assert (says.natural, says.overlapping, says.smallest(10, 2, {})) == (True, False, None)
    for foreign in ("mine.deal", "dpfl_bench.federation.partition.overlap_of", "dpfl_bench.nosuch.deal"):
        assert dealing.of({"_target_": foreign}) is None


def test_ranges_stand_with_the_parameters() -> None:
    assert signatures.ranges(partition.dirichlet) == {"alpha": ranges.ALPHA}
    assert signatures.types(partition.dirichlet) == {"alpha": float, "clients": int}
    assert signatures.ranges(partition.iid) == {}
