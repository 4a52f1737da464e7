"""MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100, EMNIST balanced and EMNIST bymerge: which files each
has, and what is in them.
"""

from __future__ import annotations

from typing import NamedTuple

ZIP = "gzip.zip"  # all of EMNIST, and the only file of it whose md5 torchvision has
Files = tuple[str, ...]  # that are read together


class ImageSet(NamedTuple):
    source: str  # torchvision's class
    folder: str  # of the files, in the data folder
    train: list[Files]
    test: list[Files]
    beside: list[str]  # expected too, but not read for records
    image: tuple[int, int, int]
    classes: int
    records: tuple[int, int]  # of the whole set: training, test
    split: dict[str, str]  # torchvision's argument

    @property
    def name(self) -> str:
        """The data set's."""
        return {"FashionMNIST": "fashion_mnist"}.get(
            self.source, "_".join([self.source, *self.split.values()]).lower()
        )

    @property
    def title(self) -> str:
        return " ".join([self.source, *self.split.values()])

    @property
    def read(self) -> list[str]:
        """The files that hold its records."""
        return [file for part in (*self.train, *self.test) for file in part]

    @property
    def files(self) -> list[str]:
        return [*self.read, *self.beside]


def _idx(
    source: str, train: str, test: str, classes: int, records: tuple[int, int], split: str = ""
) -> ImageSet:
    """A set in MNIST's format."""
    parts: list[list[Files]] = [
        [(f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")] for part in (train, test)
    ]
    beside, chosen = ([ZIP], {"split": split}) if split else ([], {})
    return ImageSet(
        source, f"{source}/raw", parts[0], parts[1], beside, (1, 28, 28), classes, records, chosen
    )


def _emnist(split: str, records: tuple[int, int]) -> ImageSet:
    return _idx("EMNIST", f"emnist-{split}-train", f"emnist-{split}-test", 47, records, split)


def _cifar(source: str, folder: str, train: list[str], test: str, meta: str, classes: int) -> ImageSet:
    return ImageSet(
        source,
        folder,
        [(file,) for file in train],
        [(test,)],
        [meta],
        (3, 32, 32),
        classes,
        (50000, 10000),
        {},
    )


SETS = {
    "MNIST": _idx("MNIST", "train", "t10k", 10, (60000, 10000)),
    "FashionMNIST": _idx("FashionMNIST", "train", "t10k", 10, (60000, 10000)),
    "CIFAR10": _cifar(
        "CIFAR10",
        "cifar-10-batches-py",
        [f"data_batch_{i}" for i in range(1, 6)],
        "test_batch",
        "batches.meta",
        10,
    ),
    "CIFAR100": _cifar("CIFAR100", "cifar-100-python", ["train"], "test", "meta", 100),
    "EMNIST_balanced": _emnist("balanced", (112800, 18800)),
    "EMNIST_bymerge": _emnist("bymerge", (697932, 116323)),
}


def find(name: object) -> ImageSet | None:
    """The set of this name, in any case, with or without underscores."""
    sets = {title.replace("_", "").lower(): kind for title, kind in SETS.items()}
    return sets.get(str(name).replace("_", "").lower())
