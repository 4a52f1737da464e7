"""Every model of conf/model on its papers' data: what tests/federation/test_rounds.py plays a round
of and scripts/bench_models.py times.

Real files are in a folder as CONTRIBUTING.md has it. Three sets are not taken as they stand: of
MNIST and CIFAR-10 a few images are enough (ScatterNet's features take a while), and Messidor's
photographs are shared without grades, so they get made-up ones.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TRAINING, TEST = 300, 60  # images of a small MNIST or CIFAR-10
TAKEN = ("dataset.verify=false", "dataset.download=false")  # what is there
SPLIT = ("dataset.split=client", "dataset.test_fraction=0.2", "partition=similarity")  # dpscaffold's
SCALED = ("dataset.standardise=data", "dataset.unit_norm=true")
PROJECTED = ("dataset.transform=pca", "dataset.dimensions=60")
SCATTERED = ("dataset.transform=scatternet",)


class Case(NamedTuple):
    model: str
    dataset: str
    clients: int
    overrides: tuple[str, ...] = ()
    lot: int = 16  # records of a local step

    @property
    def name(self) -> str:
        return f"{self.model}-{self.dataset}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """For the command line, but for the algorithm, the lots and the rounds."""
        return f"model={self.model}", f"dataset={self.dataset}", f"clients={self.clients}", *self.overrides


def _mnist(model: str, *overrides: str) -> Case:
    return Case(model, "mnist", 10, (*TAKEN, "partition=iid", *overrides))


def _cifar(model: str, *overrides: str) -> Case:
    return Case(model, "cifar10", 5, (*TAKEN, "partition=iid", *overrides))


CASES = {
    case.name: case
    for case in (
        Case("linreg", "synthetic_linear", 1000, lot=1),  # fedexp: one record a client
        Case("linreg", "quadratics", 100),  # normalized
        Case("logreg", "mushrooms", 10),  # balancing
        Case("logreg", "emnist_balanced", 40, (*TAKEN, *SPLIT, *SCALED)),
        Case("dnn_200", "mnist", 10, (*TAKEN, *SPLIT, *SCALED, *PROJECTED)),
        _mnist("mlp"),
        _mnist("cnn"),
        _mnist("fedexp_cdp"),
        _mnist("fedexp_ldp"),
        _mnist("pfl_cnn_mnist"),
        _mnist("pfl_sn_linear", *SCATTERED),
        _mnist("pfl_sn_cnn_mnist", *SCATTERED),
        _cifar("pfl_cnn_cifar"),
        _cifar("pfl_sn_linear", *SCATTERED),
        _cifar("pfl_sn_cnn_cifar", *SCATTERED),
        _cifar("balancing_cnn"),
        Case("balancing_cnn", "femnist", 6, ("partition=iid",)),
        Case("lstm", "reddit", 3, ("dataset.fraction=0.02", "dataset.clients=3")),
        Case("lstm", "shakespeare", 3, ("dataset.fraction=0.005", "partition=iid")),
        Case("unet3d", "ixi", 3, ("dataset.owners=3",), lot=2),
        Case("vgg11_light", "messidor", 3, lot=4),  # as balancing's lots
        Case("vgg11", "messidor", 3, lot=4),
    )
}
_IDX = ("images-idx3-ubyte", "labels-idx1-ubyte")
FILES = {  # what has to be in the folder of real data; the other sets are generated
    "mushrooms": ("libsvm/mushrooms",),
    "emnist_balanced": tuple(
        f"EMNIST/raw/emnist-balanced-{part}-{file}" for part in ("train", "test") for file in _IDX
    ),
    "mnist": tuple(f"MNIST/raw/{part}-{file}" for part in ("train", "t10k") for file in _IDX),
    "cifar10": ("cifar-10-batches-py/data_batch_1", "cifar-10-batches-py/test_batch"),
    "femnist": ("femnist/data/train", "femnist/data/test"),
    "reddit": ("reddit/data/train", "reddit/data/test"),
    "shakespeare": ("shakespeare/data/train", "shakespeare/data/test"),
    "ixi": ("IXI/IXI_sample",),
    "messidor": ("Messidor/images_512",),
}


def sample(dataset: str, root: Path, folder: Path) -> Path:
    """The data folder for `dataset`: the real one, or one in `folder` into which the set's sample
    is written, once.
    """
    if dataset not in _WRITERS:
        return root
    made = folder / dataset
    if not made.exists():
        _WRITERS[dataset]([root / file for file in FILES[dataset]], [made / file for file in FILES[dataset]])
    return made


def _small_mnist(sources: list[Path], targets: list[Path]) -> None:
    """The first images and labels, with their count in the header."""
    for source, target in zip(sources, targets, strict=True):
        count = TRAINING if "train" in source.name else TEST
        header, size = (16, 28 * 28) if "images" in source.name else (8, 1)
        with source.open("rb") as file:
            content = file.read(header + count * size)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content[:4] + count.to_bytes(4, "big") + content[8:])


def _small_cifar(sources: list[Path], targets: list[Path]) -> None:
    for source, target, count in zip(sources, targets, (TRAINING, TEST), strict=True):
        whole = pickle.loads(source.read_bytes(), encoding="latin1")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(pickle.dumps({key: whole[key][:count] for key in ("data", "labels")}))


def _graded(sources: list[Path], targets: list[Path]) -> None:
    """Links to the photographs, and a table that deals grades 0 and 1 and three hospitals in turn."""
    (photographs,), (target,) = sources, targets
    target.mkdir(parents=True)
    lines = ["image,grade,hospital"]
    for photograph, grade, hospital in zip(
        sorted(photographs.glob("*.jpg")), itertools.cycle("01"), itertools.cycle("ABC")
    ):
        (target / photograph.name).symlink_to(photograph.resolve())
        lines.append(f"{photograph.name},{grade},{hospital}")
    (target.parent / "labels.csv").write_text("\n".join(lines))


_WRITERS: dict[str, Callable[[list[Path], list[Path]], None]] = {
    "mnist": _small_mnist,
    "cifar10": _small_cifar,
    "messidor": _graded,
}
