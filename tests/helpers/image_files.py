"""Small image files in torchvision's formats, and the loader that reads them."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dpfl_bench.data import image_files, image_sets, vision
from dpfl_bench.data.records import Records
from dpfl_bench.data.torchvision_import import import_torchvision


def load(name: str, root: Path, *, download: bool = False, verify: bool = True) -> Records:
    return vision.load(name=name, root=str(root), download=download, verify=verify, keep=None, seed=0)


def md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes()).hexdigest()


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">{1 + values.ndim}I", 0x800 + values.ndim, *values.shape) + values.tobytes()


def write_images(name: str, root: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Small files of the set in its format under `root`; their folder, and each part's images as
    (n, c, h, w).
    """
    kind, draw, images = image_sets.SETS[name], np.random.default_rng(0), {}
    folder = root / kind.folder
    folder.mkdir(parents=True)
    for count, files in enumerate((*kind.train, *kind.test), start=3):
        x = draw.integers(0, 256, (count, *kind.image), dtype=np.uint8)
        y = np.arange(count) % kind.classes
        images[files[0]] = x
        if name.startswith("CIFAR"):
            key = "labels" if name == "CIFAR10" else "fine_labels"
            (folder / files[0]).write_bytes(
                pickle.dumps({"data": x.reshape(count, -1), key: y.tolist()}, protocol=2)
            )
        else:
            raw = x[:, 0].transpose(0, 2, 1) if kind.split else x[:, 0]
            (folder / files[0]).write_bytes(idx(np.ascontiguousarray(raw)))
            (folder / files[1]).write_bytes(idx(y.astype(np.uint8)))
    if name.startswith("CIFAR"):
        key = "label_names" if name == "CIFAR10" else "fine_label_names"
        (folder / kind.beside[0]).write_bytes(pickle.dumps({key: [str(i) for i in range(kind.classes)]}))
    elif kind.split:
        with zipfile.ZipFile(folder / "gzip.zip", "w") as archive:
            for file in sorted(folder.glob("emnist-*")):
                archive.writestr(f"gzip/{file.name}.gz", gzip.compress(file.read_bytes()))
    else:
        for file in sorted(folder.glob("*-ubyte")):
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    return folder, images


def believe(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torchvision's checksums be those of the made-up files; pack CIFAR's archive beside its
    folder.
    """
    kind = image_sets.SETS[name]
    source = getattr(import_torchvision().datasets, kind.source)
    if name.startswith("CIFAR"):
        with tarfile.open(folder.parent / source.filename, "w:gz") as archive:
            archive.add(folder, folder.name)
        for part in ("train", "test"):
            monkeypatch.setattr(
                source, f"{part}_list", [[file, md5(folder / file)] for (file,) in getattr(kind, part)]
            )
        monkeypatch.setattr(source, "meta", {**source.meta, "md5": md5(folder / kind.beside[0])})
        monkeypatch.setattr(source, "tgz_md5", md5(folder.parent / source.filename))
    elif kind.split:
        monkeypatch.setattr(source, "md5", md5(folder / "gzip.zip"))
    else:
        monkeypatch.setattr(
            source, "resources", [(f"{file}.gz", md5(folder / f"{file}.gz")) for file in kind.files]
        )
        monkeypatch.setitem(image_files._UNPACKED, name, {file: md5(folder / file) for file in kind.files})
