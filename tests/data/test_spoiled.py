"""Data that were once taken without a word, or ended in a traceback or a hang: refused in one
line, or told.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfl_bench.data import files, ixi, libsvm, messidor
from dpfl_bench.data.records import DataError, Records

nibabel = pytest.importorskip("nibabel")
pil = pytest.importorskip("PIL.Image")

SHAPE = (6, 8, 5)
NAMES = ("IXI001-Guys-1", "IXI002-HH-2")


def volume(file: Path, data: np.ndarray, place: Any = (2.0, 2, 2, 1), slope: float | None = None) -> None:
    """slope: as it stands in the header, whatever nibabel thinks of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(data, np.diag(place)), file)
    if slope is not None:
        content = bytearray(file.read_bytes())
        content[112:116] = np.float32(slope).tobytes()
        file.write_bytes(content)


@pytest.fixture
def brains(tmp_path: Path) -> Path:
    """Two subjects of Fed-IXI."""
    for name in NAMES:
        values = np.random.default_rng(len(name)).normal(100, 10, SHAPE).astype(np.float32)
        at = tmp_path / "IXI/IXI_sample" / name
        volume(at / "T1/x.nii", values)
        volume(at / "label/x.nii", (values > 100).astype(np.uint8))
    return tmp_path / "IXI/IXI_sample"


def load_brains(folder: Path) -> Records:
    return ixi.load(root=str(folder.parents[1]), owners=None, normalise="zscore", expected=2)


def flat(folder: Path) -> None:
    """A header whose affine is all zeros."""
    file = folder / NAMES[0] / "T1/x.nii"
    content = bytearray(file.read_bytes())
    content[252:256] = np.array([0, 1], np.int16).tobytes()  # no qform, an sform
    content[280:328] = bytes(48)
    file.write_bytes(content)


def again(folder: Path) -> None:
    """The first subject once more, under another number."""
    for part in ("T1", "label"):
        to = folder / "IXI003-IOP-3" / part / "x.nii"
        to.parent.mkdir(parents=True)
        to.write_bytes((folder / NAMES[0] / part / "x.nii").read_bytes())


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def mask(value: int) -> Callable[[Path], None]:
    return lambda at: volume(at / NAMES[0] / "label/x.nii", np.full(SHAPE, value, np.uint8))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (mask(0), "expected some brain and some background"),
        (mask(1), "expected some brain and some background"),
        (flat, "its affine places all voxels on a plane"),
        (
            lambda at: volume(at / NAMES[0] / "T1/x.nii", np.ones(SHAPE, np.int16), slope=float("nan")),
            "scl_slope or scl_inter is no number",
        ),
        (again, "IXI003-IOP-3: the same volume as .*IXI001-Guys-1: remove one of the two"),
        (lambda at: fifo(at / NAMES[0] / "T1/x.nii"), "it is a pipe or a device"),
        (lambda at: fifo(at / NAMES[0] / "label/x.nii"), "it is a pipe or a device"),
    ],
    ids=["no brain", "all brain", "flat", "slope", "twice", "pipe", "pipe of a mask"],
)
def test_brains(spoil: Callable[[Path], None], message: str, brains: Path) -> None:
    assert len(load_brains(brains).train_y) == 2
    spoil(brains)
    with pytest.raises(DataError, match=message) as refused:
        load_brains(brains)
    assert "\n" not in str(refused.value)


@pytest.fixture
def eyes(tmp_path: Path) -> Path:
    """Two photographs of Messidor and their labels."""
    (tmp_path / "Messidor/images").mkdir(parents=True)
    for name in "ab":
        pixels = np.random.default_rng(ord(name)).integers(50, 200, (20, 20, 3)).astype(np.uint8)
        pil.fromarray(pixels).save(tmp_path / f"Messidor/images/{name}.png")
    (tmp_path / "Messidor/labels.csv").write_text("image,grade,hospital\na.png,0,A\nb.png,1,B\n")
    return tmp_path / "Messidor"


def load_eyes(folder: Path) -> Records:
    return messidor.load(root=str(folder.parent), owners=None, expected=2)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda at: pil.new("RGB", (1, 1), 99).save(at / "images/a.png"), "1 x 1 pixels, expected at least"),
        (lambda at: fifo(at / "labels.csv"), "labels are missing in"),
        (lambda at: fifo(at / "images/a.png"), "it is a pipe or a device"),
    ],
    ids=["one pixel", "pipe of labels", "pipe"],
)
def test_eyes(spoil: Callable[[Path], None], message: str, eyes: Path) -> None:
    assert "copies" not in load_eyes(eyes).source
    spoil(eyes)
    with pytest.raises(DataError, match=message):
        load_eyes(eyes)


def test_a_copied_photograph_is_told(eyes: Path) -> None:
    (eyes / "images/b.png").write_bytes((eyes / "images/a.png").read_bytes())
    assert load_eyes(eyes).source.endswith(", 1 images are copies of others")


def load_text(file: Path) -> Records:
    keys = ("root", "test_path", "features", "url", "sha256", "test_url", "test_sha256", "expected")
    return libsvm.load(**dict.fromkeys(keys), name="mine", path=str(file), verify=True)


TEXT = "1 1:1\n-1 2:1\n" * 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mine", f"{TEXT}1 {10**9}:1\n".encode(), "are .* numbers, expected at most"),
        ("mine", f"{TEXT}1 {10**19}:1\n".encode(), "expected LIBSVM text, indices from 1"),
        ("mine.gz", gzip.compress(TEXT.encode())[:-9], "cannot unpack it"),
        ("mine.gz", gzip.compress(b"1 1:1\n" * 10**5), "bytes once unpacked, got more"),
    ],
    ids=["10^9", "10^19", "cut", "bomb"],
)
def test_texts(
    name: str, content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ALWAYS", 10_000)
    file = tmp_path / name
    file.write_bytes(gzip.compress(TEXT.encode()) if name.endswith(".gz") else TEXT.encode())
    assert len(load_text(file).train_y) == 8
    file.write_bytes(content)
    with pytest.raises(DataError, match=message) as refused:
        load_text(file)
    assert "\n" not in str(refused.value)


def test_a_text_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine")
    with pytest.raises(DataError, match=r"no file .*mine: put it there"):
        load_text(tmp_path / "mine")
