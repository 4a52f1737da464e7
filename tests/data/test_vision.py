"""The image sets through torchvision: checksums, subsets, downloads, unreadable files, and what the
real files hold.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import multiprocessing
import os
import pickle
import struct
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.image_files import believe, idx, load, md5, write_images
from helpers.real_data import real_data
from helpers.served import serving

from dpfl_bench.data import download, image_download, image_files, image_sets, vision
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.torchvision_import import import_torchvision

WHOLE = {
    "MNIST": 70000,
    "FashionMNIST": 70000,
    "CIFAR10": 60000,
    "CIFAR100": 60000,
    "EMNIST_balanced": 131600,
    "EMNIST_bymerge": 814255,
}


STEMS = dict(
    zip(
        WHOLE,
        ("mnist", "fashion_mnist", "cifar10", "cifar100", "emnist_balanced", "emnist_bymerge"),
        strict=True,
    )
)


def online(name: str, root: Path) -> str:
    """What is said of a set that can be downloaded."""
    return f"go online and run `dpfl-bench data fetch {STEMS[name]} dataset.root={root}`"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: object, **kwargs: object) -> None:
        raise OSError("no route\nto host")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    monkeypatch.setattr(download, "_PAUSES", ())


def refusal(message: str, *wanted: str) -> pytest.RaisesExc[DataError]:
    def names_all(error: DataError) -> bool:
        return "\n" not in str(error) and all(text in str(error) for text in wanted)

    return pytest.RaisesExc(DataError, match=message, check=names_all)


@pytest.mark.parametrize("name", WHOLE)
def test_checked_files_are_read_exactly_and_upright(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, images = write_images(name, tmp_path)
    believe(name, folder, monkeypatch)
    kind, got = image_sets.SETS[name], load(name, tmp_path)
    assert np.array_equal(got.train_x, np.concatenate([images[files[0]] for files in kind.train]))
    assert np.array_equal(got.test_x, images[kind.test[0][0]])
    assert got.train_y.tolist() == [
        i % kind.classes for files in kind.train for i in range(len(images[files[0]]))
    ]
    for x, y in ((got.train_x, got.train_y), (got.test_x, got.test_y)):
        assert (x.dtype.name, y.dtype.name) == ("uint8", "int64")
    assert got.train_x.flags.c_contiguous
    assert got.test_x.flags.c_contiguous
    assert got.expected == WHOLE[name]
    assert got.subset == f"subset {len(got.train_y) + len(got.test_y)} of {WHOLE[name]}"
    assert str(folder) in got.source
    assert "not verified" not in got.source
    assert "not verified" in load(name, tmp_path, verify=False).source


def test_a_part_of_the_training_images(tmp_path: Path) -> None:
    folder, _ = write_images("MNIST", tmp_path)
    draw = np.random.default_rng(1)
    images, labels = draw.integers(0, 256, (40, 28, 28), dtype=np.uint8), np.arange(40) % 10
    (folder / "train-images-idx3-ubyte").write_bytes(idx(images))
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(labels.astype(np.uint8)))

    def kept(keep: int | None, seed: int = 0) -> Records:
        return vision.load(
            name="mnist", root=str(tmp_path), download=False, verify=False, keep=keep, seed=seed
        )

    whole, some, other = kept(None), kept(15), kept(15, seed=1)
    places = [next(i for i, x in enumerate(whole.train_x) if np.array_equal(x, own)) for own in some.train_x]
    assert places == sorted(set(places))
    assert some.train_y.tolist() == whole.train_y[places].tolist()
    assert len(some.train_y) == 15
    assert not np.array_equal(some.train_x, other.train_x)
    assert np.array_equal(some.train_x, kept(15).train_x)
    assert np.array_equal(some.test_x, whole.test_x)
    assert some.subset == f"subset {15 + len(some.test_y)} of 70000"
    assert "15 of 40 training images" in some.source
    with refusal(r"dataset.keep=41: expected 1 to 40, the training images that are there"):
        kept(41)


@pytest.mark.parametrize("name", WHOLE)
def test_another_checksum_is_refused_even_where_a_download_may_help(
    name: str, tmp_path: Path, no_network: None
) -> None:
    folder, _ = write_images(name, tmp_path)
    before = {file: file.read_bytes() for file in folder.iterdir()}
    wanted = (
        *image_sets.SETS[name].files,
        f"delete the folder, then {online(name, tmp_path)}",
        "dataset.verify=false",
    )
    for allowed in (False, True):
        with refusal(f"cannot read {folder} as the whole set .checksum differs", *wanted):
            load(name, tmp_path, download=allowed)
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_one_changed_byte_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in (
        ("MNIST", "t10k-labels-idx1-ubyte"),
        ("CIFAR10", "data_batch_3"),
        ("EMNIST_bymerge", "emnist-bymerge-test-images-idx3-ubyte"),
    ):
        folder, _ = write_images(name, tmp_path / name)
        believe(name, folder, monkeypatch)
        data = bytearray((folder / file).read_bytes())
        data[-1] ^= 1
        (folder / file).write_bytes(data)
        with refusal(rf"torchvision's: {file}\)"):
            load(name, tmp_path / name)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", WHOLE)
def test_a_missing_folder(name: str, verify: bool, tmp_path: Path, no_network: None) -> None:
    kind, root = image_sets.SETS[name], tmp_path / "new"
    folder = root / kind.folder
    copied = f"or copy the files ({', '.join(kind.files)}) to {folder}"
    remedies = (online(name, root), copied, "dataset.root", "DPFL_DATA_DIR", "dataset.verify=false")
    with refusal(f"{folder} lacks {', '.join(kind.files)}: ", *remedies, "dataset.download=true"):
        load(name, root, verify=verify)
    with refusal("cannot download http.* .no route to host.: ", *remedies):
        load(name, root, verify=verify, download=True)
    assert list(tmp_path.iterdir()) == []


def test_a_part_is_taken_when_told_and_says_so(tmp_path: Path) -> None:
    folder, images = write_images("CIFAR10", tmp_path)
    for file in ("data_batch_4", "data_batch_5", "batches.meta"):
        (folder / file).unlink()
    got = load("CIFAR10", tmp_path, verify=False, download=True)  # what is there, no network asked
    assert np.array_equal(got.train_x, np.concatenate([images[f"data_batch_{i}"] for i in (1, 2, 3)]))
    assert got.subset == f"subset {3 + 4 + 5 + 8} of 60000"
    (folder / "test_batch").unlink()
    got = load("CIFAR10", tmp_path, verify=False)
    assert got.test_x.shape == (0, 3, 32, 32)
    assert "training files only" in got.source


@pytest.mark.parametrize("name", WHOLE)
def test_the_test_files_alone_become_the_records(name: str, tmp_path: Path) -> None:
    folder, images = write_images(name, tmp_path)
    kind = image_sets.SETS[name]
    for files in kind.train:
        (folder / files[-1]).unlink()  # images without labels are no part either
    got = load(name, tmp_path, verify=False)
    assert np.array_equal(got.train_x, images[kind.test[0][0]])
    assert got.test_x.shape == (0, *kind.image)
    assert got.test_y.shape == (0,)
    assert "test files only: taken as training records, without a test set" in got.source
    assert got.subset == f"subset {len(got.train_y)} of {WHOLE[name]}"
    with refusal("lacks|cannot read"):
        load(name, tmp_path)


@pytest.mark.parametrize("cut", [0, 3, 100, -1])
@pytest.mark.parametrize("name", WHOLE)
def test_a_cut_file_is_named(name: str, cut: int, tmp_path: Path) -> None:
    folder, _ = write_images(name, tmp_path)
    file = folder / image_sets.SETS[name].train[-1][0]
    file.write_bytes(file.read_bytes()[:cut])
    with refusal(rf"cannot read {folder} \({file.name}.*: delete the folder", online(name, tmp_path)):
        load(name, tmp_path, verify=False)


@pytest.mark.parametrize(
    "entry",
    [
        {"data": np.zeros((2, 3072), np.uint8), "labels": [0]},
        {"data": np.zeros((2, 3072), np.float32), "labels": [0, 1]},
        {"data": np.zeros((2, 3000), np.uint8), "labels": [0, 1]},
        {"data": np.zeros((2, 3072), np.uint8), "labels": [0.5, 1.5]},
        {"data": np.zeros((2, 3072), np.uint8)},
        {"labels": [0]},
        [1, 2],
        {"data": np.zeros((50001, 3072), np.uint8), "labels": [0] * 50001},
    ],
    ids=["labels", "float", "width", "half", "no_labels", "no_data", "list", "many"],
)
def test_a_pickle_of_something_else(entry: Any, tmp_path: Path) -> None:
    folder, _ = write_images("CIFAR10", tmp_path)
    (folder / "data_batch_2").write_bytes(pickle.dumps(entry, protocol=2))
    with refusal(f"{folder} .*data_batch_2|{folder} has more images than the whole set"):
        load("CIFAR10", tmp_path, verify=False)


def test_labels_that_do_not_fit_the_images(tmp_path: Path) -> None:
    folder, _ = write_images("EMNIST_balanced", tmp_path)
    (folder / "emnist-balanced-train-labels-idx1-ubyte").write_bytes(idx(np.zeros(2, np.uint8)))
    with refusal(
        r"emnist-balanced-train-images.*\(3, 28, 28\)|images uint8 \(3, 1, 28, 28\) with labels \(2,\)"
    ):
        load("EMNIST_balanced", tmp_path, verify=False)


def test_an_old_cache_of_torchvision_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = write_images("MNIST", tmp_path)
    believe("MNIST", folder, monkeypatch)
    (folder.parent / "processed").mkdir()
    for part in ("training.pt", "test.pt"):
        (folder.parent / "processed" / part).write_bytes(b"not what was verified")
    assert len(load("MNIST", tmp_path).train_y) == 3


@pytest.mark.parametrize("name", WHOLE)
def test_archives_in_place_are_unpacked_without_network(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None
) -> None:
    folder, _ = write_images(name, tmp_path)
    believe(name, folder, monkeypatch)
    whole = load(name, tmp_path)
    kind = image_sets.SETS[name]
    for file in [file for file in kind.files if file != "gzip.zip"]:
        (folder / file).unlink()
    (folder / "other").write_text("the user's")
    with refusal("lacks"):
        load(name, tmp_path)
    again = load(name, tmp_path, download=True)
    assert np.array_equal(again.train_x, whole.train_x)
    assert np.array_equal(again.test_y, whole.test_y)
    assert (folder / "other").read_text() == "the user's"
    assert not list(tmp_path.rglob(".*"))


def test_a_cut_archive_is_not_kept_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None
) -> None:
    folder, _ = write_images("CIFAR100", tmp_path)
    believe("CIFAR100", folder, monkeypatch)
    archive = tmp_path / "cifar-100-python.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-20])
    for file in folder.iterdir():
        file.unlink()
    with refusal("cannot download https://.*/cifar-100-python.tar.gz "):
        load("CIFAR100", tmp_path, download=True)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", WHOLE)
def test_dropped_downloads_are_resumed_and_unpacked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = write_images(name, tmp_path / "made")
    believe(name, folder, monkeypatch)
    whole = load(name, tmp_path / "made")
    kind = image_sets.SETS[name]
    source = getattr(import_torchvision().datasets, kind.source)
    archives = [archive for archive, _, _ in image_download.archives(kind, source)]
    with serving(
        {f"/{file.name}": (tmp_path / "made" / file).read_bytes() for file in archives}, monkeypatch
    ) as server:
        monkeypatch.setattr(source, "url", f"{server.url}/{archives[0].name}", raising=False)
        monkeypatch.setattr(source, "mirrors", [f"{server.url}/gone/", f"{server.url}/"], raising=False)
        server.drops, server.ranges = 1000, False
        root = tmp_path / "data"
        with refusal("cannot download .* bytes are kept to go on from", online(name, root)):
            load(name, root, download=True)
        left = [file.name for file in root.rglob("*") if file.is_file()]
        assert left == [f".{archives[0].name}.part"]
        server.drops, server.ranges = 1, True
        server.asked.clear()
        got = load(name, root, download=True)
        fetched = [asked for asked in server.asked if not asked[0].startswith("/gone/")]
        assert fetched[0][1] is not None
        assert [path for path, _ in fetched] == [
            f"/{archives[0].name}",
            *(f"/{file.name}" for file in archives),
        ]
    assert np.array_equal(got.train_x, whole.train_x)
    assert np.array_equal(got.test_y, whole.test_y)
    assert not list(root.rglob(".*"))


def test_what_cannot_be_written_is_one_line(tmp_path: Path, no_network: None) -> None:
    (tmp_path / "file").write_text("no folder")
    for name in ("MNIST", "CIFAR10"):
        with refusal(
            f"cannot unpack in {tmp_path}/file/data .*Not a directory",
            online(name, tmp_path / "file" / "data"),
        ):
            load(name, tmp_path / "file" / "data", download=True)


def test_two_processes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None) -> None:
    folder, _ = write_images("EMNIST_balanced", tmp_path)
    believe("EMNIST_balanced", folder, monkeypatch)
    expected = load("EMNIST_balanced", tmp_path).train_x.sum()
    for file in folder.glob("emnist-*"):
        file.unlink()
    context = multiprocessing.get_context("fork")  # keeps the believed checksums
    both = [context.Process(target=_load_or_fail, args=(tmp_path, int(expected))) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert not list(tmp_path.rglob(".*"))


def _load_or_fail(root: Path, expected: int) -> None:
    os._exit(0 if load("EMNIST_balanced", root, download=True).train_x.sum() == expected else 1)


def histogram(labels: np.ndarray, classes: int) -> list[int]:
    return [int(count) for count in np.bincount(labels, minlength=classes)]


@pytest.mark.slow
def test_real_whole_sets_and_their_checksums() -> None:
    root = real_data("MNIST/raw/train-images-idx3-ubyte.gz", "FashionMNIST/raw/train-images-idx3-ubyte.gz")
    for name in ("MNIST", "FashionMNIST"):
        for file, sum_of_gz in getattr(import_torchvision().datasets, name).resources:
            packed = root / name / "raw" / file
            assert md5(packed) == sum_of_gz  # torchvision's
            assert (
                hashlib.md5(gzip.decompress(packed.read_bytes())).hexdigest()
                == image_files._UNPACKED[name][packed.stem]
            )
        got = load(name, root)
        assert got.subset == ""
        assert got.source == f"torchvision {name} in {root / name / 'raw'}"
        assert (got.train_x.shape, got.test_x.shape) == ((60000, 1, 28, 28), (10000, 1, 28, 28))
        mnist = name == "MNIST"
        assert histogram(got.train_y, 10) == (
            [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949] if mnist else [6000] * 10
        )
        assert histogram(got.test_y, 10) == (
            [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009] if mnist else [1000] * 10
        )


@pytest.mark.slow
def test_real_cifar10() -> None:
    root = real_data("cifar-10-batches-py/data_batch_1", "cifar-10-batches-py/test_batch")
    got = load("CIFAR10", root, verify=False)
    assert histogram(got.test_y, 10) == [1000] * 10
    assert got.train_x.shape[1:] == (3, 32, 32)
    # colour planes and rows are where they belong: neighbours are far more alike than pixels half
    # an image away
    x = got.test_x.astype(np.int16)
    for axis in (2, 3):
        assert np.abs(np.diff(x, axis=axis)).mean() < 0.5 * np.abs(x - np.roll(x, 16, axis=axis)).mean()
    if (root / "cifar-10-batches-py/data_batch_5").exists():
        pytest.skip("the histograms below are of batches 1 to 3")
    assert got.subset == "subset 40000 of 60000"
    assert histogram(got.train_y, 10) == [2983, 3023, 3007, 3008, 2999, 2954, 3016, 3042, 2973, 2995]
    with refusal("checksum differs.*missing: data_batch_4, data_batch_5", str(root), "dataset.verify=false"):
        load("CIFAR10", root, download=True)


def test_real_cifar100() -> None:
    root = real_data("cifar-100-python/train")
    got = load("CIFAR100", root, verify=False)
    if len(got.train_y) != 1117:
        pytest.skip("the histograms below are of the sample with 1117 images")
    assert got.subset == "subset 2033 of 60000"
    assert (got.train_x.shape, got.test_x.shape) == ((1117, 3, 32, 32), (916, 3, 32, 32))
    counts = histogram(got.train_y, 100), histogram(got.test_y, 100)
    assert counts == CIFAR100
    with refusal("checksum differs", "train, test", "dataset.verify=false"):
        load("CIFAR100", root)


def test_real_emnist() -> None:
    root = real_data(
        "EMNIST/raw/emnist-bymerge-test-images-idx3-ubyte",
        "EMNIST/raw/emnist-balanced-train-images-idx3-ubyte",
    )
    if (root / "EMNIST/raw/emnist-bymerge-train-images-idx3-ubyte").exists():
        pytest.skip("the histograms below are of bymerge's test files and a sample of balanced")
    merged = load("EMNIST_bymerge", root, verify=False)
    assert merged.subset == "subset 116323 of 814255"
    assert "test files only" in merged.source
    assert (merged.train_x.shape, merged.test_x.shape) == ((116323, 1, 28, 28), (0, 1, 28, 28))
    assert histogram(merged.train_y, 47) == BYMERGE
    balanced = load("EMNIST_balanced", root, verify=False)
    assert balanced.subset == "subset 9424 of 131600"
    assert (histogram(balanced.train_y, 47), histogram(balanced.test_y, 47)) == BALANCED
    for name in ("EMNIST_bymerge", "EMNIST_balanced"):
        with refusal("lacks .*gzip.zip", "dataset.verify=false"):
            load(name, root)


@pytest.mark.parametrize("name", ["EMNIST_balanced", "EMNIST_bymerge"])
def test_real_emnist_is_upright(name: str) -> None:
    root = real_data(
        "MNIST/raw/train-images-idx3-ubyte", "EMNIST/raw/emnist-balanced-train-images-idx3-ubyte"
    )
    mnist, emnist = load("MNIST", root), load(name, root, verify=False)
    ours, theirs = (
        [x.train_x[x.train_y == digit].mean(axis=(0, 1)) for digit in range(10)] for x in (emnist, mnist)
    )
    turned = [
        [np.rot90(mean, turns).T if flip else np.rot90(mean, turns) for mean in ours]
        for flip in (0, 1)
        for turns in range(4)
    ]
    alike = np.array(
        [
            [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(theirs, means, strict=True)]
            for means in turned
        ]
    )
    assert (alike[0] > alike[4]).all()  # every digit's mean image is more like MNIST's than its transpose is
    assert alike.mean(axis=1).argmax() == 0  # and of the eight orientations this one is it
    assert alike.mean(axis=1)[0] > alike.mean(axis=1)[4] + 0.2


def as_python_2(content: Any) -> bytes:
    """A pickle with bytes as Python 2 wrote them, who made CIFAR's files: read, they are text
    first.
    """
    file = io.BytesIO()
    writer: Any = pickle._Pickler(file, 2)  # type: ignore[attr-defined]
    writer.dispatch = {
        **writer.dispatch,
        bytes: lambda self, text: self.write(b"T" + struct.pack("<i", len(text)) + text),
    }
    writer.dump(content)
    return file.getvalue()


PEAK = """
import gc
import sys
from pathlib import Path
from dpfl_bench.assembly import data
from dpfl_bench.config import compose, validate
from dpfl_bench.data import vision
vision.import_torchvision()
settings = validate.settings(compose.composed(["dataset=cifar10", "dataset.verify=false", "partition=iid",
                             "clients=5"], None))
# getrusage would count the parent's
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
for arranged in (data.arranged, lambda records, parts: (records, parts)):
    data.arranged, made = arranged, None
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is taken now
    before, made = peak(), data.load_data(settings)
    print(len(made.federation.targets), len(made.federation.test_targets), peak() - before)
"""


@pytest.mark.slow
def test_whole_cifar10_is_loaded_and_dealt_in_less_than_250_mb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the full size; the peak of a process of its own beyond that of its imports."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("reads its peak from Linux's /proc")
    folder, draw = tmp_path / "cifar-10-batches-py", np.random.default_rng(0)
    folder.mkdir()
    batch = {
        "data": draw.integers(0, 256, (10000, 3072), np.uint8),
        "labels": draw.integers(0, 10, 10000).tolist(),
    }
    (folder / "data_batch_1").write_bytes(as_python_2(batch))
    for (name,) in image_sets.SETS["CIFAR10"].train[1:] + image_sets.SETS["CIFAR10"].test:
        (folder / name).symlink_to(folder / "data_batch_1")
    monkeypatch.setenv("DPFL_DATA_DIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    in_place, copied = (tuple(map(float, line.split())) for line in done.stdout.splitlines())
    assert in_place[:2] == copied[:2] == (50000, 10000)
    assert 175 < in_place[2] < 250  # 176 MB are kept: the images
    assert copied[2] > 250  # the negative control: a second store


# images of each class in the real files
CIFAR100 = tuple(
    [int(n) for n in text.split()]
    for text in (
        (
            "12 9 8 10 13 15 7 13 13 7 8 22 12 7 11 9 5 7 10 14 11 8 9 13 10 "
            "5 12 11 11 11 10 12 12 13 7 10 11 11 8 14 10 11 14 10 11 12 16 5 14 11 "
            "11 12 6 17 17 7 14 12 6 14 9 9 14 15 17 17 18 14 11 9 10 20 9 13 13 "
            "11 12 10 9 12 11 12 12 9 17 11 8 12 8 15 15 7 8 7 8 11 10 12 16 5 "
        ),
        (
            "12 11 10 6 8 4 14 13 12 8 15 11 10 5 9 12 10 6 12 9 8 10 13 5 11 "
            "10 10 12 8 8 7 10 14 14 4 8 14 11 8 10 12 10 9 8 4 8 8 6 5 7 "
            "5 6 7 10 9 7 8 9 13 4 7 6 9 9 9 8 12 12 10 7 7 13 8 8 7 "
            "7 11 14 9 6 7 9 11 14 5 10 8 7 8 10 10 9 8 10 9 9 12 11 11 12 "
        ),
    )
)
BALANCED = tuple(
    [int(n) for n in text.split()]
    for text in (
        (
            "189 187 191 196 190 208 188 188 204 174 212 177 208 192 197 194 202 195 188 190 198 204 204 177"
            " 197 207 192 190 200 197 178 188 191 193 188 193 193 202 186 193 210 202 191 196 195 188 197 "
        ),
        (
            "11 4 4 5 5 8 5 3 8 7 7 6 8 6 8 9 7 5 6 8 10 7 10 5 5 3 7 4 4 4 7 12 10 10 6 5 3 6 3 7 7 5 11 9 2"
            " 6 6 "
        ),
    )
)
BYMERGE = [
    5745,
    6400,
    5765,
    5827,
    5498,
    5326,
    5787,
    5873,
    5655,
    5651,
    1058,
    652,
    2156,
    735,
    860,
    1524,
    430,
    576,
    2413,
    912,
    809,
    3358,
    1984,
    1351,
    4690,
    1812,
    415,
    835,
    3899,
    1630,
    2528,
    1223,
    1262,
    897,
    1195,
    925,
    1668,
    932,
    1708,
    4066,
    426,
    583,
    1535,
    1872,
    533,
    2365,
    2979,
]
