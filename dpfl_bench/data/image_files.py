"""The files of the image sets: their checksums, and the images and labels in them.

CIFAR's files are pickles, which torchvision opens as they are. Here they are read by `pickled`,
which runs nothing that is in them.
"""

from __future__ import annotations

import http.client
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from dpfl_bench.data import pickled
from dpfl_bench.data.download import file_checksum
from dpfl_bench.data.folder import fetch_command
from dpfl_bench.data.image_sets import ZIP, Files, ImageSet
from dpfl_bench.data.records import DataError

_CHUNK = 1 << 20
# what readers of cut or foreign files raise
UNREADABLE = (
    *pickled.UNREADABLE,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    http.client.HTTPException,
)
# torchvision has the md5 of the .gz only; these are of what the .gz with torchvision's md5 hold
_UNPACKED = {
    "MNIST": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    "FashionMNIST": {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
}


def differing(kind: ImageSet, source: Any, raw: Path) -> list[str]:
    """The files there whose checksums are not the whole set's."""
    if kind.split:
        return _differing_emnist(kind, source, raw)
    sums = _UNPACKED.get(kind.source)
    if sums is None:
        sums = dict([*source.train_list, *source.test_list, (source.meta["filename"], source.meta["md5"])])
    return [
        file
        for file in kind.files
        if (raw / file).is_file() and file_checksum(raw / file, "md5") != sums[file]
    ]


def _differing_emnist(kind: ImageSet, source: Any, raw: Path) -> list[str]:
    """The zip against torchvision's md5, and the unpacked files against the CRC32 and size that end
    the zip's .gz members.
    """
    if not (raw / ZIP).is_file():
        return []
    if file_checksum(raw / ZIP, "md5") != source.md5:
        return [ZIP]
    files = [file for file in kind.read if (raw / file).is_file()]
    with zipfile.ZipFile(raw / ZIP) as archive:
        return [file for file in files if _gzip_end(archive, f"gzip/{file}.gz") != _crc(raw / file)]


def _gzip_end(archive: zipfile.ZipFile, member: str) -> tuple[int, int]:
    end = b""
    with archive.open(member) as file:
        while chunk := file.read(_CHUNK):
            end = (end + chunk)[-8:]
    return int.from_bytes(end[:4], "little"), int.from_bytes(end[4:], "little")


def _crc(path: Path) -> tuple[int, int]:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return crc, path.stat().st_size


def read(kind: ImageSet, source: Any, folder: Path, parts: list[Files]) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of these files. Several are copied one after another into one array, so
    memory holds one file twice.
    """
    if len(parts) == 1:
        return _checked(kind, source, folder, parts[0])
    images = np.empty((max(kind.records) if parts else 0, *kind.image), np.uint8)
    labels = [np.empty(0, np.int64)]
    count = 0
    for part in parts:
        x, y = _checked(kind, source, folder, part)
        if count + len(x) > len(images):
            raise DataError(
                f"{kind.title}: {folder / kind.folder} has more images than the whole set:"
                f" {remedy(kind, folder)}"
            )
        images[count : count + len(x)] = x
        count += len(x)
        labels.append(y)
        del x  # before the next file is opened
    images.resize((count, *kind.image), refcheck=False)  # gives the rest back; a slice would hold it
    return images, np.concatenate(labels)


def _checked(kind: ImageSet, source: Any, folder: Path, files: Files) -> tuple[np.ndarray, np.ndarray]:
    """What torchvision reads from these files, or a DataError that names them."""
    try:
        x, y = (
            _cifar_part(kind, folder, files[0])
            if kind.image[0] == 3
            else _idx_part(kind, source, folder, files)
        )
        if x.dtype != np.uint8 or x.shape[1:] != kind.image or y.shape != x.shape[:1]:
            raise ValueError(
                f"images {x.dtype} {x.shape} with labels {y.shape}, expected uint8 {('n', *kind.image)} with"
                " labels (n,)"
            )
    except UNREADABLE as error:
        raw = folder / kind.folder
        problem = f"{kind.title}: cannot read {raw} ({', '.join(files)}: {line_of(error)})"
        raise DataError(f"{problem}: delete the folder, then {remedy(kind, folder)}") from error
    return x, y


def _cifar_part(kind: ImageSet, folder: Path, file: str) -> tuple[np.ndarray, np.ndarray]:
    """One pickle, whether its checksum was asked for or not."""
    with (folder / kind.folder / file).open("rb") as opened:
        entry = pickled.load(opened)
    images = np.array(entry["data"])  # a copy, in memory of its own
    labels = entry["labels" if "labels" in entry else "fine_labels"]
    return images.reshape(-1, *kind.image), np.asarray(labels).astype(np.int64, casting="safe")


def _idx_part(kind: ImageSet, source: Any, folder: Path, files: Files) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels through torchvision's class, which looks neither for the other part nor for
    a cache of older versions.
    """
    one = {"_check_exists": lambda self: True, "_check_legacy_exist": lambda self: False}
    read = type(source.__name__, (source,), one)(str(folder), train=files in kind.train, **kind.split)
    images: np.ndarray = read.data.numpy()
    if kind.split:  # EMNIST's files are transposed; in place, block by block: bymerge is 550 MB
        for start in range(0, len(images), 4096):
            block = images[start : start + 4096]
            block[:] = block.transpose(0, 2, 1).copy()
    return images[:, None], read.targets.numpy().astype(np.int64, copy=False)


def remedy(kind: ImageSet, folder: Path) -> str:
    take = "set dataset.verify=false to take the part that is there, as a subset"
    return (
        f"go online and run `{fetch_command(kind.name, folder)}`; or copy the files ({', '.join(kind.files)})"
        f" to {folder / kind.folder}, set dataset.root or DPFL_DATA_DIR to where they are, {take}"
    )


def line_of(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
