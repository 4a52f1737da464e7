"""Pickles give arrays, numbers and text; nothing that is in them runs, whoever has verified
what.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.command import QUICK, call
from helpers.image_files import believe, load, write_images
from helpers.real_data import real_data

from dpfl_bench.data import pickled
from dpfl_bench.data.prepare import prepare
from dpfl_bench.data.records import DataError, Records


class Calls:
    """Pickled, it is a call of this function with these arguments."""

    def __init__(self, function: Any, *given: Any, state: Any = None) -> None:
        self.reduced = (function, given) if state is None else (function, given, state)

    def __reduce__(self) -> Any:
        return self.reduced


def touched(path: Path) -> dict[str, Callable[[], bytes]]:
    """Pickles that write a file, dressed up in several ways."""
    code = f"open({str(path)!r}, 'w').close()"
    array = np.zeros((3, 3072), np.uint8)

    def entry(data: Any) -> Callable[[], bytes]:
        return lambda: pickle.dumps({"data": data, "labels": [0, 1, 2]}, protocol=2)

    return {
        "os.system": entry(Calls(os.system, f"touch {path}")),
        "exec": entry(Calls(exec, code)),
        "numpy's own exec": entry([array, Calls(np.testing.runstring, code, {})]),
        "beside honest arrays": lambda: pickle.dumps(
            {"data": array, "labels": [0, 1, 2], "batch_label": Calls(exec, code)}, protocol=4
        ),
        "a dotted name": lambda: b"\x80\x04\x8c\x05numpy\x8c\x20testing._private.utils.runstring\x93.",
        "numpy.load": entry(Calls(np.fromfile, "/etc/hostname")),
        "an array of objects": lambda: pickle.dumps(
            {"data": np.array([Calls(exec, code)], object), "labels": [0]}, protocol=2
        ),
        "after the end of the data": lambda: pickle.dumps(
            {"data": array, "labels": (Calls(exec, code),)}, protocol=5
        ),
        "python 2's INST": lambda: f"(S'touch {path}'\nios\nsystem\n.".encode(),
    }


NAMES = list(touched(Path("x")))


def test_the_payloads_are_payloads(tmp_path: Path) -> None:
    """The negative control: what everybody else's reader does with them."""
    ran = 0
    for name, make in touched(tmp_path / "ran").items():
        content = make()
        try:
            pickle.loads(content, encoding="latin1")
        except Exception:  # some fail after, or without, what they do
            assert name in NAMES
        ran += (tmp_path / "ran").exists()
        (tmp_path / "ran").unlink(missing_ok=True)
    assert ran >= 6


@pytest.mark.parametrize("name", NAMES)
def test_nothing_runs(name: str, tmp_path: Path) -> None:
    content = touched(tmp_path / "ran")[name]()
    with pytest.raises(pickle.UnpicklingError, match=r"it asks for |it has an array of"):
        pickled.load(io.BytesIO(content))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", ["os.system", "numpy's own exec"])
def test_a_data_set_with_a_payload_is_refused_whatever_verify_says(
    name: str, verify: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = write_images("CIFAR10", tmp_path)
    (folder / "data_batch_2").write_bytes(touched(tmp_path / "ran")[name]())
    believe("CIFAR10", folder, monkeypatch)  # its checksum is the published one
    with pytest.raises(
        DataError,
        match=r"cannot read .* \(data_batch_2: it asks for .*: expected arrays, numbers and text alone\)",
    ):
        load("CIFAR10", tmp_path, verify=verify)
    for arguments in (
        ("data", "verify", "cifar10"),
        ("data", "fetch", "cifar10"),
        ("data", "show", "dataset=cifar10"),
        ("run", "dataset=cifar10", "model=logreg", "local_steps=1", "total_steps=1", *QUICK),
    ):
        said = call(*arguments, f"dataset.root={tmp_path}", f"dataset.verify={str(verify).lower()}")
        assert said.code == 2
        assert "data_batch_2: it asks for" in said.err
    assert not (tmp_path / "ran").exists()


def test_a_downloaded_archive_with_a_payload_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchvision opens the test part when it unpacks, and the names of the classes when it
    loads.
    """
    folder, _ = write_images("CIFAR10", tmp_path)
    for file in ("test_batch", "batches.meta"):
        (folder / file).write_bytes(touched(tmp_path / "ran")["os.system"]())
    believe("CIFAR10", folder, monkeypatch)
    folder.rename(tmp_path / "aside")  # the archive beside it stays
    with pytest.raises(DataError, match=r"test_batch: it asks for "):
        load("CIFAR10", tmp_path, download=True)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        path.name for path in (tmp_path / "aside").iterdir()
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("archive", [True, False], ids=["torch.save", "pickle"])
def test_weights_with_a_payload_run_nothing(archive: bool, tmp_path: Path) -> None:
    file, payload = tmp_path / "weights.pth", {"conv1.weight": Calls(os.system, f"touch {tmp_path / 'ran'}")}
    if archive:
        torch.save(payload, file)
    else:
        file.write_bytes(pickle.dumps(payload))
    x = np.zeros((2, 3, 8, 8), np.uint8)
    images = Records(x, np.zeros(2, np.int64), x[:0], np.zeros(0, np.int64), None, 2, "toy", None)
    with pytest.raises(DataError, match=r"dataset.weights=.*: cannot read it"):
        prepare(
            images,
            test_fraction=0.0,
            standardise="none",
            unit_norm=False,
            seed=0,
            transform="resnet18",
            weights=str(file),
        )
    assert not (tmp_path / "ran").exists()
    with contextlib.suppress(Exception):
        torch.load(file, weights_only=False)  # the negative control
    assert (tmp_path / "ran").exists()


def test_states_cannot_change_what_reads_them(tmp_path: Path) -> None:
    """A pickle may also set attributes of what it was given."""
    build = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n}U\x05_makecos\nsystem\nsb."
    with pytest.raises(pickle.UnpicklingError):
        pickled.load(io.BytesIO(build))
    function = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n}U\x05_makeU\x01xsb."
    with pytest.raises(pickle.UnpicklingError, match="it changes a function"):
        pickled.load(io.BytesIO(function))
    assert isinstance(round_trip({"data": np.arange(3)}, 2)["data"], np.ndarray)  # it still reads


def round_trip(given: Any, protocol: int) -> Any:
    return pickled.load(io.BytesIO(pickle.dumps(given, protocol)))


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_numbers_and_text_come_back(protocol: int) -> None:
    shared = [1, 2]
    given = {
        "big": np.arange(12, dtype=">i4").reshape(3, 4),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "bytes": np.arange(7, dtype=np.uint8),
        "nothing": np.zeros((0, 3), np.float32),
        "labels": [1, np.int64(3), np.float32(0.5)],
        "text": ("é", b"\xff\x00", None, True, 2.5),
        "twice": [shared, shared],
    }
    found = round_trip(given, protocol)
    for key in ("big", "columns", "bytes", "nothing"):
        assert np.array_equal(found[key], given[key])  # type: ignore[arg-type]
        assert found[key].dtype == given[key].dtype  # type: ignore[attr-defined]
    assert found["labels"] == [1, 3, 0.5]
    assert found["text"] == given["text"]
    assert found["twice"] == [[1, 2], [1, 2]]


def test_deep_circular_and_exponential_pickles_end() -> None:
    circle: list[Any] = []
    circle.append(circle)
    wide: list[Any] = [0] * 10
    for _ in range(7):
        wide = [wide] * 10  # ten million lists, if each were opened
    assert round_trip(wide, 4)[9][9][9][9][9][9][9] == [0] * 10
    for given in (circle, [[[[[[[[[[1]]]]]]]]]]):
        with pytest.raises(pickle.UnpicklingError, match="nested more than 8 deep"):
            round_trip(given, 4)


@pytest.mark.parametrize(
    "name", ["cifar-10-batches-py/data_batch_1", "cifar-10-batches-py/test_batch", "cifar-100-python/train"]
)
def test_real_files_are_read_as_python_reads_them(name: str) -> None:
    file = real_data(name) / name
    with file.open("rb") as one, file.open("rb") as other:
        expected, found = pickle.load(one, encoding="latin1"), pickled.load(other)
    assert expected.keys() == found.keys()
    assert all(np.array_equal(expected[key], found[key]) for key in expected)
