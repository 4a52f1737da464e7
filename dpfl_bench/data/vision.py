"""MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100, EMNIST balanced and EMNIST bymerge: torchvision's
files, addresses and checksums.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dpfl_bench.checks.ranges import COUNT, Range
from dpfl_bench.data import source as sources
from dpfl_bench.data.folder import data_root
from dpfl_bench.data.image_sets import SETS, ZIP, ImageSet, find
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.source import FETCH, MISMATCH, MISSING, OK, UNVERIFIED, Dataset, Presence, Source
from dpfl_bench.data.torchvision_import import import_torchvision

if TYPE_CHECKING:
    import numpy as np


KNOWN = Range(lambda name: find(name) is not None, f"one of {', '.join(SETS)}")


def load(
    *,
    name: Annotated[str, KNOWN],
    root: str | None,
    download: bool,
    verify: bool,
    keep: Annotated[int | None, COUNT] = None,
    seed: int = 0,
) -> Records:
    """Images as uint8 (n, channels, height, width), upright. name: one of SETS (any case, with or
    without underscores).

    verify: the files must be the whole set's, by torchvision's checksums. Without it the parts that
    are there are taken, unchecked: `Records.subset` says how many, `source` says if only the
    training or only the test files are there. The latter's images are then training records.

    keep: how many of the training images there are to be, drawn at random by `seed`; None: all.
    Both have defaults for users' own files, which may be older than these keys.
    """
    from dpfl_bench.data import image_download, image_files  # with numpy, which a dry run does without

    kind = find(name)
    if kind is None:
        raise DataError(f"dataset.name={name}: expected one of {', '.join(SETS)}")
    folder = data_root(root)
    source = getattr(import_torchvision().datasets, kind.source)
    image_download.complete(kind, source, folder, download, verify)
    train, test = (
        [part for part in parts if image_download.there(kind, folder, part)]
        for parts in (kind.train, kind.test)
    )
    note = (
        ""
        if train and test
        else (
            ", training files only"
            if train
            else ", test files only: taken as training records, without a test set"
        )
    )
    checked = "" if verify else ", checksums not verified"
    both = (train, test) if train else (test, train)
    (train_x, train_y), (test_x, test_y) = (image_files.read(kind, source, folder, part) for part in both)
    where = f"torchvision {kind.title} in {folder / kind.folder}{note}{checked}"
    if keep is not None:
        kept = _drawn(len(train_y), keep, seed)
        where += f", {keep} of {len(train_y)} training images"
        train_x, train_y = train_x[kept], train_y[kept]
    return Records(train_x, train_y, test_x, test_y, None, kind.classes, where, sum(kind.records))


def _drawn(images: int, keep: int, seed: int) -> np.ndarray:
    """Places of `keep` images, in their order."""
    import numpy as np

    from dpfl_bench.rng import generator

    if not 1 <= keep <= images:
        raise DataError(f"dataset.keep={keep}: expected 1 to {images}, the training images that are there")
    return np.sort(generator(seed, "kept").permutation(images)[:keep])


# what is known without loading


def _presence(dataset: Dataset) -> Presence | None:
    kind = find(dataset.get("name"))
    if kind is None:
        return None
    folder = data_root(dataset.get("root")) / kind.folder
    read = [folder / file for file in kind.read]
    missing = tuple(file for file in kind.files if not (folder / file).is_file())
    packed = [folder / f"{file.name}.gz" for file in read]
    there = sources.existing([*(folder / file for file in kind.files), *packed])
    complete = all(file.is_file() for file in read)
    least = sum(kind.records) * prod(kind.image)
    return Presence(folder, there, missing, sources.too_small(read, least) if complete else ())


def _read_files(dataset: Dataset) -> dict[str, Path] | None:
    """Without `verify` a part of them will do."""
    kind = find(dataset.get("name"))
    if kind is None:
        return None
    folder = data_root(dataset.get("root")) / kind.folder
    there = {name: folder / name for name in kind.read if (folder / name).is_file()}
    return there if there and (len(there) == len(kind.read) or not dataset.get("verify")) else None


def _verdicts(dataset: Dataset, loaded: bool) -> dict[str, str]:
    """By torchvision's checksums. After a load they are right, where the loader verifies them."""
    kind = find(dataset.get("name"))
    if kind is None:
        return {}
    folder = data_root(dataset.get("root")) / kind.folder
    if loaded:
        verdicts = dict.fromkeys(kind.files, OK if dataset["verify"] else UNVERIFIED)
    else:
        verdicts = _compared(kind, folder)
    return {file: word if (folder / file).is_file() else MISSING for file, word in verdicts.items()}


def _compared(kind: ImageSet, folder: Path) -> dict[str, str]:
    """A verdict for each file as if it were there."""
    from dpfl_bench.data import image_files

    try:
        wrong = image_files.differing(kind, getattr(import_torchvision().datasets, kind.source), folder)
    except image_files.UNREADABLE:
        return dict.fromkeys(kind.files, UNVERIFIED)
    # EMNIST's archive holds the checksums of its files
    unread = ZIP in wrong or (bool(kind.split) and not (folder / ZIP).is_file())
    return {file: MISMATCH if file in wrong else UNVERIFIED if unread else OK for file in kind.files}


SOURCE = Source(how=FETCH, presence=_presence, files=_read_files, verdicts=_verdicts)
