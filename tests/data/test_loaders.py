"""The LIBSVM and image readers, and that every YAML says what its loader gives."""

from __future__ import annotations

import importlib
import inspect
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.real_data import real_data, whole_here
from omegaconf import OmegaConf

from dpfl_bench.data import libsvm, vision
from dpfl_bench.data.folder import data_root
from dpfl_bench.data.prepare import prepare
from dpfl_bench.data.records import DataError

FILES = sorted((Path(__file__).parents[2] / "conf/dataset").glob("[!_]*.yaml"))
OWN = ("csv", "libsvm", "npz")  # of a user's own file
PREPARE = ("test_fraction", "standardise", "unit_norm", "seed", "centres", "scales", "limit")
LIBSVM: dict[str, Any] = dict.fromkeys(inspect.signature(libsvm.load).parameters) | {
    "name": "toy",
    "verify": True,
}


@pytest.mark.parametrize("names", [("-1", "+1"), ("1", "2"), ("0", "3", "7")])
def test_libsvm_labels_are_counted_from_zero(names: tuple[str, ...], tmp_path: Path) -> None:
    file, test = tmp_path / "train", tmp_path / "test"
    file.write_text("".join(f"{name} 1:0.5 3:{i}\n" for i, name in enumerate(names * 2)))
    test.write_text(f"{names[-1]} 4:1\n")
    one = libsvm.load(**LIBSVM | {"path": str(file), "features": 5, "expected": 10})
    assert one.train_y.tolist() == list(range(len(names))) * 2
    assert one.train_x.shape == (2 * len(names), 5)
    assert one.train_x.dtype == np.float32
    assert one.train_x[1].tolist() == [0.5, 0, 1, 0, 0]
    assert one.subset == f"subset {2 * len(names)} of 10"
    both = libsvm.load(**LIBSVM | {"path": str(file), "test_path": str(test)})
    assert both.test_x.tolist() == [[0, 0, 0, 1]]
    assert both.test_y.tolist() == [len(names) - 1]
    assert both.train_x.shape[1] == 4  # the wider of the two


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        (None, {}, "no file .*libsvm/toy: put it there .LIBSVM text., or set dataset.path"),
        ("1 1:0.5\n2 garbage\n", {}, "expected LIBSVM text, indices from 1 .*: replace the file"),
        ("\x00\xff binary", {}, "expected LIBSVM text"),
        ("1 1:1\n2 9:1\n", {"features": 5}, "correct dataset.features"),
        (
            "1 1:1\n2 0:1\n",
            {"features": 5},
            r"expected LIBSVM text, indices from 1 \(Invalid index 0",
        ),  # moved everybody's columns
        ("0.5 1:1\n0.7 2:1\n", {}, "whole-number labels, found 0.5, 0.7"),
        ("1 1:1\n1 2:1\n", {}, "two or more whole-number labels, found 1:"),
        (
            "1 1:1\n2 2:1\n",
            {"sha256": "0000"},
            "expected 0000: delete it, then go online and run .* dataset.verify=false",
        ),
    ],
)
def test_libsvm_refusals(text: str | None, change: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "libsvm").mkdir()
    if text is not None:
        (tmp_path / "libsvm/toy").write_text(text, encoding="latin1")
    with pytest.raises(DataError, match=message) as caught:
        libsvm.load(**LIBSVM | {"root": str(tmp_path)} | change)
    assert "\n" not in str(caught.value)
    if "sha256" in change:
        assert len(libsvm.load(**LIBSVM | {"root": str(tmp_path), "verify": False} | change).train_y) == 2


def test_data_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DPFL_DATA_DIR", str(tmp_path))
    assert data_root("/explicit") == Path("/explicit")
    assert data_root(None) == tmp_path
    monkeypatch.delenv("DPFL_DATA_DIR")
    assert data_root(None).parts[-2:] == ("dpfl-bench", "data")


def test_images_missing(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"MNIST/raw lacks train-images-idx3-ubyte, .*dataset.download=true"
    ) as caught:
        vision.load(name="mnist", root=str(tmp_path), download=False, verify=True, keep=None, seed=0)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="name=cifar: expected one of MNIST, FashionMNIST"):
        vision.load(name="cifar", root=str(tmp_path), download=False, verify=True, keep=None, seed=0)


def test_corrupt_images_are_named(tmp_path: Path) -> None:
    root = real_data("MNIST/raw/train-images-idx3-ubyte")
    for file in (root / "MNIST/raw").glob("t*-ubyte"):
        (tmp_path / "MNIST/raw").mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tmp_path / "MNIST/raw")
    with (tmp_path / "MNIST/raw/train-images-idx3-ubyte").open("r+b") as images:
        images.truncate(1000)
    with pytest.raises(DataError, match=r"cannot read .*MNIST/raw .*: delete the folder") as caught:
        vision.load(name="mnist", root=str(tmp_path), download=False, verify=True, keep=None, seed=0)
    assert "\n" not in str(caught.value)


# records of each class in the training files and, where there is one, in the test file
LABELS = {
    "mushrooms": [[3916, 4208]],  # poisonous, edible
    "phishing": [[4898, 6157]],
    "a9a": [[24720, 7841], [12435, 3846]],
    "digits": [[178, 182, 177, 183, 181, 182, 181, 179, 174, 180]],
    "breast_cancer": [[212, 357]],
}


@pytest.mark.parametrize("name", LABELS)
def test_real_labels(name: str) -> None:
    _, function, own = loader(next(file for file in FILES if file.stem == name))
    if "url" in own:
        real_data(*[f"libsvm/{name}{end}" for end in ("", ".t")[: len(LABELS[name])]])
    raw = function(**own)
    found = [np.bincount(y).tolist() for y in (raw.train_y, raw.test_y) if len(y)]
    assert found == LABELS[name]


def loader(file: Path) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """A YAML's values, its loader, and the loader's arguments."""
    made = OmegaConf.load(file)
    made.pop("defaults", None)
    config = OmegaConf.to_container(made, resolve=True)
    assert isinstance(config, dict)
    module, _, name = config["_target_"].rpartition(".")
    function = getattr(importlib.import_module(module), name)
    return config, function, {key: config[key] for key in inspect.signature(function).parameters}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_have_every_key(file: Path) -> None:
    config, function, own = loader(file)
    common = (
        "_target_ name shape classes records clients lr test_fraction split standardise unit_norm seed"
        " max_row_norm gram transform holds licence address"
    )
    some = {
        "task",
        "unknown",
        "dimensions",
        "weights",
        "augment",
        *PREPARE[4:],
        "vocabulary_from",
    }  # what only some data sets have
    assert set(config) - some == (set(common.split()) | set(own)) - some
    assert config["name"] == file.stem
    assert file.read_text().startswith("# ")
    parameters = inspect.signature(function).parameters
    assert [p.name for p in parameters.values() if p.default is not inspect.Parameter.empty] == (
        ["keep", "seed"] if "keep" in parameters else []  # came later: a user's own file may lack them
    )


@pytest.mark.parametrize("file", [f for f in FILES if f.stem not in OWN], ids=lambda file: file.stem)
def test_files_say_what_the_loader_gives(file: Path) -> None:
    """Where the whole set is here. Of a sample, test_vision.py, test_leaf.py and test_medical.py
    say what is in it.
    """
    config, function, own = loader(file)
    whole_here(config)
    thinner = 100 if file.stem == "synthetic_logistic" else 1  # the whole set takes ten seconds
    if thinner > 1:
        own["records_per_client"] //= thinner
    raw = function(**own)
    done = prepare(raw, **{key: config.get(key) for key in PREPARE})
    assert done.subset == ""
    assert list(done.train_x.shape[1:]) == config["shape"]
    assert done.classes == config["classes"]
    if config["records"] is not None:  # null where it follows from other keys
        assert len(done.train_y) == config["records"]
    assert raw.owners is None or raw.owners.max() + 1 == config["clients"]
    rows = done.train_x.reshape(len(done.train_x), -1).astype(float)
    if config["max_row_norm"] is not None:
        assert np.linalg.norm(rows, axis=1).max() == pytest.approx(config["max_row_norm"], abs=1e-6)
    if config["gram"] is not None:
        rows = raw.train_x.astype(float) if file.stem == "mushrooms" else rows
        assert np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1] == pytest.approx(config["gram"], abs=1e-6)
