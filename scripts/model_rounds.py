"""Every model of conf/model on its papers' data: what tests/federation/test_rounds.py plays a round
of and scripts/bench_models.py times.

The head of a model's YAML file says what it is tried on, a line for each (indented lines go on):

    # Try: dataset=femnist clients=6 partition=iid batch_size=4

Real files are in a folder as CONTRIBUTING.md has it. Three sets are not taken as they stand: of
MNIST and CIFAR-10 a few images are enough (ScatterNet's features take a while), and Messidor's
photographs are shared without grades, so they get made-up ones.
"""

from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dpfl_bench import conf
from dpfl_bench.data import source as sources

CONF = Path(conf.__path__[0])
TRAINING, TEST = 300, 60  # images of a small MNIST or CIFAR-10
TAKEN = ("dataset.verify=false", "dataset.download=false")  # what is there, of what can be downloaded
LOT = 16  # records of a local step, where the head says no batch_size


class Case(NamedTuple):
    model: str
    dataset: str
    clients: int
    overrides: tuple[str, ...] = ()
    lot: int = LOT

    @property
    def name(self) -> str:
        return f"{self.model}-{self.dataset}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """For the command line, but for the algorithm, the lots and the rounds."""
        return f"model={self.model}", f"dataset={self.dataset}", f"clients={self.clients}", *self.overrides


def tried(folder: Path) -> Iterator[Case]:
    """What the heads of the models' files in this folder say."""
    for file in sorted(folder.glob("[!_]*.yaml")):
        head = "".join(itertools.takewhile(lambda line: line.startswith("#"), file.open()))
        lines = re.findall(r"^# Try: (.*(?:\n#  +.*)*)", head, re.MULTILINE)
        if not lines:
            raise ValueError(f"{file}: expected a line like `# Try: dataset=mnist clients=10` in its head")
        for line in lines:
            yield _case(file.stem, dict(word.split("=", 1) for word in line.replace("#", "").split()))


def _case(model: str, words: dict[str, str]) -> Case:
    dataset, clients = words.pop("dataset"), int(words.pop("clients"))
    lot = int(words.pop("batch_size", LOT))
    taken = TAKEN if "download" in keys_of(dataset) else ()
    return Case(model, dataset, clients, (*taken, *(f"{key}={value}" for key, value in words.items())), lot)


def keys_of(dataset: str) -> dict[str, Any]:
    """The keys of a data set's YAML file."""
    keys: dict[str, Any] = yaml.safe_load((CONF / "dataset" / f"{dataset}.yaml").read_text())
    return keys


CASES = {case.name: case for case in tried(CONF / "model")}


def lacking(dataset: str, root: Path) -> str:
    """What is not in the folder of real data; empty where the data set can be played."""
    if dataset in _WRITERS:
        return ", ".join(file for file in _WRITERS[dataset].files if not (root / file).exists())
    keys = {**keys_of(dataset), "root": str(root), "verify": False}
    source = sources.source_of(keys)
    presence = sources.presence_of(keys, source)
    if source is None or presence is None or sources.files_of(keys, source) is not None:
        return ""
    return ", ".join(presence.lacks)


def is_whole(dataset: str, root: Path) -> bool:
    """Whether every record of the set is played, and no sample of it."""
    presence = sources.presence_of(keys := {**keys_of(dataset), "root": str(root)}, sources.source_of(keys))
    return dataset not in _WRITERS and presence is not None and presence.state == "ready"


def sample(dataset: str, root: Path, folder: Path) -> Path:
    """The data folder for `dataset`: the real one, or one in `folder` into which the set's sample
    is written, once.
    """
    if dataset not in _WRITERS:
        return root
    writer, target = _WRITERS[dataset], folder / dataset
    if not target.exists():
        writer.write([root / file for file in writer.files], [target / file for file in writer.files])
    return target


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
    """Links to the photographs, and a table that deals grades 0 and 1 and three hospitals in
    turn.
    """
    (photographs,), (target,) = sources, targets
    target.mkdir(parents=True)
    lines = ["image,grade,hospital"]
    for photograph, grade, hospital in zip(
        sorted(photographs.glob("*.jpg")), itertools.cycle("01"), itertools.cycle("ABC")
    ):
        (target / photograph.name).symlink_to(photograph.resolve())
        lines.append(f"{photograph.name},{grade},{hospital}")
    (target.parent / "labels.csv").write_text("\n".join(lines))


class _Writer(NamedTuple):
    files: tuple[str, ...]  # in the folder of real data, and in that of the sample
    write: Callable[[list[Path], list[Path]], None]


_IDX = ("images-idx3-ubyte", "labels-idx1-ubyte")
_WRITERS = {
    "mnist": _Writer(
        tuple(f"MNIST/raw/{part}-{file}" for part in ("train", "t10k") for file in _IDX), _small_mnist
    ),
    "cifar10": _Writer(("cifar-10-batches-py/data_batch_1", "cifar-10-batches-py/test_batch"), _small_cifar),
    "messidor": _Writer(("Messidor/images_512",), _graded),
}
