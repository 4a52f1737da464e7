"""Splitting, standardising, normalising; and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.data import features
from dpfl_bench.data import prepare as preparing
from dpfl_bench.data.prepare import prepare
from dpfl_bench.data.records import DataError, Records


def toy(labels: list[int], owners: list[int] | None = None) -> Records:
    """Records whose first feature is their own number."""
    y = np.array(labels, np.int64)
    x = np.stack(
        [np.arange(len(y)), np.full(len(y), 0.1), np.random.default_rng(0).normal(5, 3, len(y))], axis=1
    )
    x = x.astype(np.float32)
    return Records(x, y, x[:0], y[:0], None if owners is None else np.array(owners), 3, "toy", len(y))


def split(raw: Records, fraction: float = 0.2, seed: int = 0) -> Records:
    return prepare(raw, test_fraction=fraction, standardise="none", unit_norm=False, seed=seed)


def test_split_is_stratified_and_leaks_nothing() -> None:
    done = split(toy([0] * 50 + [1] * 23 + [2] * 1))
    assert np.bincount(done.test_y, minlength=3).tolist() == [10, 5, 0]
    assert np.bincount(done.train_y, minlength=3).tolist() == [40, 18, 1]
    numbers = np.concatenate([done.train_x[:, 0], done.test_x[:, 0]])
    assert np.array_equal(np.sort(numbers), np.arange(74))
    assert done.subset == ""
    again, other = split(toy([0] * 50 + [1] * 23 + [2])), split(toy([0] * 50 + [1] * 23 + [2]), seed=1)
    assert np.array_equal(done.test_x, again.test_x)
    assert not np.array_equal(done.test_x, other.test_x)


def test_split_within_natural_clients() -> None:
    owners = [0] * 10 + [1] * 1 + [2] * 4
    done = split(toy([0, 1, 2] * 5, owners), fraction=0.9)
    assert done.owners is not None
    assert np.bincount(done.owners).tolist() == [1, 1, 1]
    assert np.array_equal(done.owners, np.array(owners)[done.train_x[:, 0].astype(int)])
    with pytest.raises(DataError, match=r"test_fraction=0.2 of at most 2 records.*larger fraction, or 0"):
        split(toy([0, 1, 2, 0], [0, 0, 1, 1]))


def test_split_of_regression_is_plain_random() -> None:
    raw = toy([0] * 100)
    raw = replace(
        raw, train_y=np.linspace(0, 1, 100, dtype=np.float32), test_y=np.empty(0, np.float32), classes=0
    )
    done = split(raw)
    assert (len(done.train_y), len(done.test_y)) == (80, 20)
    assert np.allclose(done.train_y, done.train_x[:, 0] / 99)


def test_own_test_records_are_kept() -> None:
    raw = replace(toy([0, 1, 2]), test_x=np.ones((2, 3), np.float32), test_y=np.array([0, 1]))
    done = split(raw, fraction=0.5)
    assert (len(done.train_y), len(done.test_y)) == (3, 2)
    assert done.subset == "subset 5 of 3"


def test_statistics_come_from_the_training_records_only() -> None:
    raw = replace(toy([0, 1, 2] * 20), test_x=np.full((4, 3), 7, np.float32), test_y=np.zeros(4, np.int64))
    done = prepare(raw, test_fraction=0, standardise="data", unit_norm=False, seed=0)
    mean, deviation = raw.train_x.mean(axis=0, dtype=float), raw.train_x.std(axis=0, dtype=float)
    assert np.allclose(done.train_x[:, [0, 2]].mean(axis=0), 0, atol=1e-6)
    assert np.allclose(done.train_x[:, [0, 2]].std(axis=0), 1, atol=1e-6)
    assert np.allclose(done.test_x[:, [0, 2]], ((7 - mean[[0, 2]]) / deviation[[0, 2]]), rtol=1e-5)
    assert (done.train_x[:, 1] == 0).all()  # constant, though .1 has no exact mean
    assert (done.test_x[:, 1] == 0).all()
    shifted = prepare(
        replace(raw, test_x=raw.test_x * 100), test_fraction=0, standardise="data", unit_norm=False, seed=0
    )
    assert np.array_equal(done.train_x, shifted.train_x)


def test_unit_norm_keeps_zero_rows() -> None:
    raw = toy([0, 1, 2] * 3)
    raw.train_x[4] = 0
    done = prepare(raw, test_fraction=0, standardise="none", unit_norm=True, seed=0)
    assert np.allclose(np.linalg.norm(done.train_x, axis=1), np.arange(9) != 4, atol=1e-6)
    assert done.train_x.dtype == np.float32


def test_images_stay_uint8_unless_scaled() -> None:
    x = np.random.default_rng(0).integers(0, 256, (6, 1, 2, 2), dtype=np.uint8)
    raw = replace(toy([0, 1, 2, 0, 1, 2]), train_x=x, test_x=x[:0])
    assert split(raw, 0.0).train_x.dtype == np.uint8
    done = prepare(raw, test_fraction=0, standardise="none", unit_norm=True, seed=0)
    norms = (x.astype(float) ** 2).sum(axis=(1, 2, 3), keepdims=True) ** 0.5
    assert np.allclose(done.train_x, x / norms, atol=1e-6)


def test_pca_stands_between_standardising_and_norms() -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 1, 4, 4), dtype=np.uint8)
    y = np.arange(40) % 3
    raw = Records(x[:30], y[:30], x[30:], y[30:], None, 3, "toy", 40)
    done = prepare(
        raw, test_fraction=0, standardise="data", unit_norm=True, seed=0, transform="pca", dimensions=3
    )
    assert (done.train_x.shape, done.test_x.shape, done.train_x.dtype) == ((30, 3), (10, 3), np.float32)
    assert np.allclose(np.linalg.norm(done.train_x, axis=1), 1, atol=1e-6)
    scaled = prepare(raw, test_fraction=0, standardise="data", unit_norm=False, seed=0)
    for ours, projected in zip(
        (done.train_x, done.test_x), features.projected(scaled.train_x, scaled.test_x, 3), strict=True
    ):
        assert np.allclose(ours, projected / np.linalg.norm(projected, axis=1, keepdims=True), atol=1e-6)
    assert done.source == "toy, projected on 3 dimensions by PCA"
    plain = prepare(
        raw, test_fraction=0, standardise="none", unit_norm=False, seed=0, transform="pca", dimensions=3
    )
    grey = x.astype(np.float32) / 255
    assert np.allclose(plain.train_x, features.projected(grey[:30], grey[30:], 3)[0], atol=1e-6)
    half = replace(raw, train_x=x[:15], train_y=y[:15])
    with pytest.raises(DataError, match="dimensions=16: expected at most the number of training records, 15"):
        prepare(
            half, test_fraction=0, standardise="none", unit_norm=False, seed=0, transform="pca", dimensions=16
        )


def test_pca_sees_no_record_that_was_split_off() -> None:
    raw = toy([0, 1, 2] * 10)
    done = prepare(
        raw, test_fraction=0.2, standardise="none", unit_norm=False, seed=0, transform="pca", dimensions=2
    )
    alone = split(raw)
    assert np.array_equal(done.train_x, features.projected(alone.train_x, alone.test_x[:0], 2)[0])
    assert np.array_equal(done.train_y, alone.train_y)
    everyone = features.projected(raw.train_x, raw.test_x, 2)[0]  # the negative control
    assert not np.allclose(
        done.train_x[0], everyone[np.flatnonzero(raw.train_x[:, 0] == alone.train_x[0, 0])[0]], atol=1e-3
    )


def many(count: int = 50, **change: np.ndarray) -> Records:
    """Tokens (count, 3), targets alike, owners; each row is told by its first number."""
    x = np.arange(3 * count, dtype=np.int16).reshape(count, 3)
    raw = Records(x, x + 1, x[:0], x[:0], np.arange(count) % 7, 3 * count, "toy", None, "next_token")
    return replace(raw, **change)  # type: ignore[arg-type]


PERMUTED = np.array_split(np.random.default_rng(1).permutation(50), 4)


@pytest.mark.parametrize("at_once", [1, 300, 2**24], ids=["a column at a time", "two at a time", "all"])
@pytest.mark.parametrize("kind", ["tokens", "images", "numbers"])
def test_records_are_put_in_order_in_their_own_memory(
    kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_AT_ONCE", at_once)
    draw, raw = np.random.default_rng(0), many()
    if kind != "tokens":
        x = (
            draw.integers(0, 256, (50, 3, 4, 5), dtype=np.uint8)
            if kind == "images"
            else draw.normal(size=(50, 8)).astype(np.float32)
        )
        raw = replace(raw, train_x=x, train_y=draw.integers(0, 3, 50), test_x=x[:0], test_y=np.empty(0, int))
    order = np.concatenate(PERMUTED)
    expected = [column[order] for column in (raw.train_x, raw.train_y, raw.owners) if column is not None]
    made, parts = preparing.arranged(raw, PERMUTED)
    assert made.owners is not None
    for column, wanted in zip((made.train_x, made.train_y, made.owners), expected, strict=True):
        assert np.array_equal(column, wanted)
    assert made.train_x is raw.train_x  # no second store
    assert np.array_equal(np.concatenate(parts), np.arange(50))
    assert [len(part) for part in parts] == [len(part) for part in PERMUTED]


def read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


WHOLE = many()
UNMOVED = {
    "overlapping": (WHOLE, [np.arange(30), np.arange(20, 50)]),
    "partial": (WHOLE, [np.arange(10, 20), np.arange(10)]),
    "one twice, one never": (WHOLE, [np.array([0, *range(49)])]),
    "read-only features": (many(train_x=read_only(WHOLE.train_x)), PERMUTED),
    "read-only labels": (many(train_y=read_only(WHOLE.train_y)), PERMUTED),
    "transposed": (many(train_x=np.asfortranarray(WHOLE.train_x)), PERMUTED),
    "owners that are the labels": (many(train_y=WHOLE.train_y[:, 0], owners=WHOLE.train_y[:, 0]), PERMUTED),
    "test records that are the training records": (
        many(train_x=WHOLE.train_x, test_x=WHOLE.train_x),
        PERMUTED,
    ),
}


@pytest.mark.parametrize("name", UNMOVED)
def test_records_that_cannot_be_put_in_order_stay_as_they_are(name: str) -> None:
    raw, parts = UNMOVED[name]
    before = raw.train_x.copy(), raw.train_y.copy()
    made, same = preparing.arranged(raw, parts)
    assert made is raw
    assert same is parts
    assert np.array_equal(raw.train_x, before[0])
    assert np.array_equal(raw.train_y, before[1])


DEALT = np.array_split(np.random.default_rng(2).permutation(60), 3)


def test_each_client_splits_its_own_records() -> None:
    raw = replace(toy([0, 1, 2] * 20), test_x=np.ones((9, 3), np.float32), test_y=np.zeros(9, np.int64))
    done = split(preparing.owned(raw, DEALT))
    assert done.owners is not None
    assert done.test_owners is not None
    assert np.bincount(done.owners).tolist() == [16] * 3
    assert np.bincount(done.test_owners).tolist() == [4] * 3
    for client, part in enumerate(DEALT):
        own = np.concatenate(
            [done.train_x[done.owners == client, 0], done.test_x[done.test_owners == client, 0]]
        )
        assert np.array_equal(np.sort(own), np.sort(part))
    assert done.source == "toy, its 9 test records left out"
    again, other = split(preparing.owned(raw, DEALT)), split(preparing.owned(raw, DEALT), seed=1)
    assert np.array_equal(done.test_x, again.test_x)
    assert not np.array_equal(done.test_x, other.test_x)
    posts = preparing.owned(replace(raw, expected=1000, counted=(23, "posts")), DEALT)
    assert posts.subset == "subset 20 of 1000 posts"  # 60 of the 69 records


def test_a_whole_set_whose_test_records_are_left_out_stays_whole() -> None:
    raw = replace(toy([0, 1, 2] * 20), test_x=np.ones((9, 3), np.float32), test_y=np.zeros(9, np.int64))
    whole, part, unknown = (preparing.owned(replace(raw, expected=count), DEALT) for count in (69, 700, None))
    assert (whole.expected, whole.subset, split(whole).subset) == (60, "", "")
    assert (part.subset, split(part).subset) == ("subset 60 of 700", "subset 60 of 700")
    assert (unknown.expected, unknown.subset) == (None, "")
    posts = preparing.owned(replace(raw, expected=23, counted=(23, "posts")), DEALT)
    assert (posts.expected, posts.subset) == (20, "")


@pytest.mark.parametrize(
    "parts", [[np.arange(60), np.arange(3)], [np.arange(59), np.arange(58, 60)], [np.array([0, *range(59)])]]
)
def test_splits_of_shared_records_are_refused(parts: list[np.ndarray]) -> None:
    with pytest.raises(DataError, match="expected a partition that deals no record to two clients"):
        preparing.owned(toy([0, 1, 2] * 20), parts)


def test_records_that_nobody_has_are_left_out() -> None:
    raw = replace(toy([0, 1, 2] * 20), expected=60)
    parts = [np.arange(1, 20), np.arange(30, 60)]
    done = preparing.owned(raw, parts)
    assert done.taken is not None
    assert done.taken.tolist() == [*range(1, 20), *range(30, 60)]
    assert done.owners is not None
    assert done.owners.tolist() == [0] * 19 + [1] * 30
    assert np.array_equal(done.train_x, raw.train_x[done.taken])
    assert np.array_equal(done.train_y, raw.train_y[done.taken])
    assert done.subset == "subset 49 of 60"
    assert done.source == "toy, 11 training records dealt to nobody"


def test_clients_that_have_test_records_keep_them() -> None:
    owners = np.arange(60) % 3
    raw = replace(
        toy([0, 1, 2] * 20),
        owners=owners,
        test_x=np.ones((2, 3), np.float32),
        test_y=np.zeros(2, int),
        test_owners=np.array([0, 2]),
    )
    with pytest.raises(
        DataError, match=r"toy: each client has test records of its own already: use dataset.split=global"
    ):
        preparing.owned(raw, [np.flatnonzero(owners == i) for i in range(3)])
    assert split(preparing.owned(raw, DEALT)).test_owners is not None  # dealt anew


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_y": np.empty(0, np.int64), "train_x": np.empty((0, 3), np.float32)}, "found none"),
        ({"train_x": np.full((3, 3), np.nan, np.float32)}, "a training record is not finite"),
        ({"train_y": np.array([0, 1, 3])}, r"whole training labels in 0\.\.2"),
        ({"train_y": np.array([0, 1, -1])}, r"whole training labels in 0\.\.2"),
        ({"train_y": np.array([0, 1])}, "3 training records with 2 labels"),
        ({"test_x": np.empty((0, 4), np.float32)}, "shape"),
        ({"owners": np.array([0, 2, 2])}, "owner"),
    ],
)
def test_broken_records_are_refused(change: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        split(replace(toy([0, 1, 2]), **change))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^dataset.test_fraction=1: expected 0 <= test_fraction < 1$"):
        split(toy([0, 1, 2]), fraction=1.0)
