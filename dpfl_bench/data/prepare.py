"""From a source's records to what clients hold: check, extract features, split a test set off,
standardise, project, normalise, reorder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpfl_bench.checks import ranges
from dpfl_bench.data import features, published
from dpfl_bench.data import standardise as standardising
from dpfl_bench.data.augment import augmented
from dpfl_bench.data.records import DataError, Records, check_tokens
from dpfl_bench.problems.tasks import IGNORED
from dpfl_bench.rng import generator

_LARGEST = float(np.finfo(np.float32).max)
_AT_ONCE = 2**24  # bytes that are copied on the way to their new place


def prepare(
    raw: Records,
    *,
    test_fraction: float,
    standardise: standardising.Way,
    unit_norm: bool,
    seed: int,
    centres: Sequence[float] | None = None,
    scales: Sequence[float] | None = None,
    limit: float | None = None,
    transform: str | None = None,
    dimensions: int | None = None,
    weights: str | None = None,
    augment: bool = False,
) -> Records:
    """Records ready to be dealt to clients.

    The steps, in this order:

    1. `transform` scatternet or resnet18 puts features in place of images, each from its own image
       alone (resnet18 by `weights`, null for torchvision's). With `augment` step 2 comes first,
       because only training images are flipped and turned.
    2. Where the source has no test records, `test_fraction` of the records is split off: within
       each natural client where there are owners (who keep at least one record), else within each
       class.
    3. Features are standardised. `public`: by `centres` and `scales`, or by the law that the
       records bring, then clipped to [-limit, limit]. `data`: by the *training* mean and deviation
       (constant columns become 0).
    4. `transform` pca projects features on `dimensions` directions, found from *training* records.
    5. Each record is scaled to unit L2 norm (zero rows stay 0).

    Steps 3 to 5 turn uint8 images into floats in [0, 1]; without them images stay uint8. The
    training mean and deviation and the directions are taken without privacy: no eps covers them
    (`Settings.leaks`). Nothing else makes one record's numbers depend on another record.

    `dpscaffold` says "first standardized, then normalized to have unit L2 norm" and calls PCA a
    layer of its network, which leaves open whether norms are taken before or after it; its code
    (data/Mnist/data_generator.py) normalises what PCA gave, and so do we: what the model sees has
    unit norm. Its PCA is fitted before the split, on test records too; ours is not.
    """
    _check(raw)
    scaled = standardise != "none"
    _check_asked(raw, test_fraction, scaled or unit_norm, transform, dimensions)
    if augment:
        raw = _augmented(_split(raw, test_fraction, seed), seed)
    records = _split(features.extracted(raw, transform, weights), test_fraction, seed)
    train, test, source = records.train_x, records.test_x, records.source
    if scaled or unit_norm or transform == "pca":
        train, test = _float(train), _float(test)
    if standardise == "public":
        scaling, bound = published.constants(centres, scales, limit, raw.law, raw.source)
        train, test = standardising.by_constants(train, test, scaling, bound)
    if standardise == "data":
        train, test = standardising.by_training(train, test)
    if transform == "pca" and dimensions is not None:
        train, test = features.projected(train, test, dimensions)
        source = f"{source}, projected on {dimensions} dimensions by PCA"
    if unit_norm:
        train, test = _unit(train), _unit(test)
    if not (_finite(train) and _finite(test)):
        raise DataError(
            f"{source}: a prepared record is not finite as float32 numbers: replace the data, or prepare them"
            " otherwise"
        )
    return replace(records, train_x=train, test_x=test, source=source)


def owned(raw: Records, parts: list[np.ndarray]) -> Records:
    """Each record its client's own, so that `prepare` splits the test set off within each client.
    The source's test records are left out (`dpscaffold` deals the training files of MNIST and
    EMNIST alone). Leaving them out does not make the source a subset.
    """
    owners = np.full(len(raw.train_y), -1)
    for client, part in enumerate(parts):
        owners[part] = client
    if sum(map(len, parts)) != (owners >= 0).sum():
        raise DataError(
            "dataset.split=client: expected a partition that deals no record to two clients, such as"
            " partition=iid"
        )
    if owners.min() < 0:
        raw, owners = _taken(raw, owners >= 0), owners[owners >= 0]
    if raw.owners is not None and raw.test_owners is not None and np.array_equal(raw.owners, owners):
        raise DataError(
            f"dataset.split=client: {raw.source}: each client has test records of its own already: use"
            " dataset.split=global"
        )
    source = f"{raw.source}, its {len(raw.test_y)} test records left out" if len(raw.test_y) else raw.source
    kept = len(owners) / (len(owners) + len(raw.test_y))
    counted = raw.counted and (round(kept * raw.counted[0]), raw.counted[1])
    whole = raw.expected is not None and not raw.subset
    expected = (counted[0] if counted else len(owners)) if whole else raw.expected
    none = (raw.test_x[:0].copy(), raw.test_y[:0].copy())
    return replace(
        raw,
        test_x=none[0],
        test_y=none[1],
        owners=owners,
        test_owners=None,
        source=source,
        expected=expected,
        counted=counted,
    )


def _taken(raw: Records, dealt: np.ndarray) -> Records:
    """Without the training records that were dealt to nobody. dealt: a mask, (n,)."""
    source = f"{raw.source}, {int((~dealt).sum())} training records dealt to nobody"
    owners = None if raw.owners is None else raw.owners[dealt]
    taken = np.flatnonzero(dealt)
    return replace(
        raw, train_x=raw.train_x[dealt], train_y=raw.train_y[dealt], owners=owners, source=source, taken=taken
    )


def arranged(records: Records, parts: list[np.ndarray]) -> tuple[Records, list[np.ndarray]]:
    """The training records client after client, and which of them are whose. This happens in place,
    for two copies of a large data set may not fit: `records` are used up. Both come back as they
    are where a record is dealt to nobody or to several, and where the arrays share memory or are
    read-only.
    """
    order, ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])
    columns = [column for column in (records.train_x, records.train_y, records.owners) if column is not None]
    if not np.array_equal(np.sort(order), np.arange(len(records.train_y))) or not _movable(
        columns, [records.test_x, records.test_y]
    ):
        return records, parts
    for column in columns:
        _reorder(column, order)
    return records, np.split(np.arange(len(order)), ends[:-1])


def _movable(columns: list[np.ndarray], others: list[np.ndarray]) -> bool:
    shared = any(
        np.may_share_memory(one, other) for i, one in enumerate(columns) for other in (*columns[:i], *others)
    )
    return not shared and all(column.flags.writeable and column.flags.c_contiguous for column in columns)


def _reorder(rows: np.ndarray, order: np.ndarray) -> None:
    """rows[order] in place, a few columns at a time."""
    flat = rows.reshape(len(rows), -1)
    width = max(1, _AT_ONCE // (len(rows) * rows.itemsize))
    for start in range(0, flat.shape[1], width):
        columns = flat[:, start : start + width]
        columns[:] = columns[order]


def _check_asked(
    raw: Records, test_fraction: float, scaled: bool, transform: str | None, dimensions: int | None
) -> None:
    """What was asked for fits these records."""
    ranges.check("dataset.test_fraction", test_fraction, ranges.TEST_FRACTION)
    if raw.train_x.dtype.kind == "i":
        check_tokens(raw.source, scaled, transform)
    features.transformed_shape(raw.train_x.shape[1:], transform, dimensions)


def _check(raw: Records) -> None:
    """Raise DataError unless the records are complete, finite and labelled in range."""
    problem = _problem(raw)
    if problem:
        raise DataError(f"{raw.source}: {problem}: replace the data, or correct its loader")


def _problem(raw: Records) -> str:
    if len(raw.train_y) == 0:
        return "expected training records, found none"
    if raw.train_x.shape[1:] != raw.test_x.shape[1:]:
        return f"training records have shape {raw.train_x.shape[1:]}, test records {raw.test_x.shape[1:]}"
    for part, x, y in (("training", raw.train_x, raw.train_y), ("test", raw.test_x, raw.test_y)):
        if len(x) != len(y):
            return f"{len(x)} {part} records with {len(y)} labels"
        if not (_finite(x) and _finite(y)):
            return f"a {part} record is not finite as float32 numbers"
        least, most = {"next_token": (IGNORED, raw.classes - 1), "segment": (0, 1)}.get(
            raw.task, (0, raw.classes - 1)
        )
        if raw.classes and (y.dtype.kind not in "iu" or (len(y) and (y.min() < least or y.max() > most))):
            return f"expected whole {part} labels in {least}..{most}"
    if raw.owners is not None and not _counts_up(raw.owners, len(raw.train_y)):
        return "expected one owner 0..M-1 for each training record, and no owner without records"
    return ""


def _finite(values: np.ndarray) -> bool:
    """As float32: a float64 number beyond its range would become infinite on the way. Nothing is
    copied, for there may be many.
    """
    if values.dtype.kind in "iu" or values.size == 0:
        return True
    return bool(
        values.min() >= -_LARGEST and values.max() <= _LARGEST
    )  # neither holds for what is not a number


def _counts_up(owners: np.ndarray, records: int) -> bool:
    names = np.unique(owners)
    return len(owners) == records and bool((names == np.arange(len(names))).all())


def _augmented(records: Records, seed: int) -> Records:
    if records.train_x.dtype != np.uint8 or records.train_x.shape[1:2] != (3,):
        raise DataError(
            f"dataset.augment=true: expected images of three colours, {records.source} holds none"
        )
    return replace(
        records,
        train_x=augmented(records.train_x, seed),
        source=f"{records.source}, training images augmented",
    )


def _split(raw: Records, fraction: float, seed: int) -> Records:
    """Move a fraction of each group's records to the test set, if there is none yet; both keep the
    original order.
    """
    if fraction == 0 or len(raw.test_y):
        return raw
    by_label = raw.classes and raw.task == "classify"
    groups = (
        raw.owners if raw.owners is not None else raw.train_y if by_label else np.zeros(len(raw.train_y), int)
    )
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order])) + 1
    test = np.zeros(len(groups), bool)
    for members in np.split(order, starts):
        count = min(int(fraction * len(members) + 0.5), len(members) - 1)
        test[generator(seed, "split", int(groups[members[0]])).permutation(members)[:count]] = True
    if not test.any():
        largest = int(np.bincount(groups.astype(int)).max())
        advice = "choose a larger fraction, or 0 for no test set"
        raise DataError(
            f"dataset.test_fraction={fraction} of at most {largest} records each is no test record: {advice}"
        )
    return replace(
        raw,
        train_x=raw.train_x[~test],
        train_y=raw.train_y[~test],
        test_x=raw.train_x[test],
        test_y=raw.train_y[test],
        owners=None if raw.owners is None else raw.owners[~test],
        test_owners=None if raw.owners is None else raw.owners[test],
        split_off=test,
    )


def _float(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / 255 if x.dtype == np.uint8 else x.astype(np.float32, copy=False)


def _unit(x: np.ndarray) -> np.ndarray:
    """Each record divided by its L2 norm."""
    squares = np.square(x, dtype=np.float64).sum(axis=tuple(range(1, x.ndim)), keepdims=True)
    norms = np.sqrt(squares)
    return (x / np.where(norms > 0, norms, 1)).astype(np.float32)
