"""MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100, EMNIST balanced and EMNIST bymerge: torchvision's
files, addresses and checksums.

CIFAR's files are pickles, which torchvision opens as they are; here they are read by `pickled`,
which runs nothing that is in them.
"""

from __future__ import annotations

import contextlib
import http.client
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from dpfl_bench.data import pickled
from dpfl_bench.data.download import alone, fetch, file_checksum, made
from dpfl_bench.data.image_sets import SETS, ZIP, Files, ImageSet
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.root import data_root, fetch_command
from dpfl_bench.data.torchvision_import import import_torchvision

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


def load(*, name: str, root: str | None, download: bool, verify: bool) -> Records:
    """Images as uint8 (n, channels, height, width), upright. name: one of SETS (any case, with or
    without underscores).

    verify: the files must be the whole set's, by torchvision's checksums. Without it the parts that
    are there are taken, unchecked: `Records.subset` says how many, `source` says if only the
    training or only the test files are there. The latter's images are then training records.
    """
    sets = {title.replace("_", "").lower(): kind for title, kind in SETS.items()}
    kind = sets.get(name.replace("_", "").lower())
    if kind is None:
        raise ValueError(f"dataset.name={name}: expected one of {', '.join(SETS)}")
    folder = data_root(root)
    source = getattr(import_torchvision().datasets, kind.source)
    _complete(kind, source, folder, download, verify)
    train, test = (
        [part for part in parts if _there(kind, folder, part)] for parts in (kind.train, kind.test)
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
    (train_x, train_y), (test_x, test_y) = (_read(kind, source, folder, part) for part in both)
    where = f"torchvision {kind.title} in {folder / kind.folder}{note}{checked}"
    return Records(train_x, train_y, test_x, test_y, None, kind.classes, where, sum(kind.records))


def _there(kind: ImageSet, folder: Path, files: Files) -> bool:
    return all((folder / kind.folder / file).is_file() for file in files)


def _complete(kind: ImageSet, source: Any, folder: Path, download: bool, verify: bool) -> None:
    """Download where files are missing; raise DataError unless they are the whole set's, or without
    `verify` some of them.
    """
    if not verify and any(_there(kind, folder, part) for part in (*kind.train, *kind.test)):
        return
    missing = _missing(kind, source, folder, verify)
    if missing and download:
        _download(kind, source, folder)
        missing = _missing(kind, source, folder, verify)
    if missing:
        raise DataError(
            f"{kind.title}: {folder / kind.folder} lacks {', '.join(missing)}: {_remedy(kind, folder)}, or"
            " set dataset.download=true"
        )


def _missing(kind: ImageSet, source: Any, folder: Path, verify: bool) -> list[str]:
    """The files that are not there; those that are must match, before anything is downloaded over
    or beside them.
    """
    raw = folder / kind.folder
    missing = [file for file in kind.files if not (raw / file).is_file()]
    try:
        wrong = differing(kind, source, raw) if verify else []
    except UNREADABLE as error:
        raise DataError(
            f"{kind.title}: cannot read {raw} ({_line(error)}): {_remedy(kind, folder)}"
        ) from error
    if wrong:
        also = f"; missing: {', '.join(missing)}" if missing else ""
        found = (
            f"{kind.title}: cannot read {raw} as the whole set (checksum differs from torchvision's:"
            f" {', '.join(wrong)}{also})"
        )
        raise DataError(f"{found}: delete the folder, then {_remedy(kind, folder)}")
    return missing


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
    files = [file for part in (*kind.train, *kind.test) for file in part if (raw / file).is_file()]
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


def _read(kind: ImageSet, source: Any, folder: Path, parts: list[Files]) -> tuple[np.ndarray, np.ndarray]:
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
                f" {_remedy(kind, folder)}"
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
        found = f"{kind.title}: cannot read {raw} ({', '.join(files)}: {_line(error)})"
        raise DataError(f"{found}: delete the folder, then {_remedy(kind, folder)}") from error
    return x, y


def _cifar_part(kind: ImageSet, folder: Path, file: str) -> tuple[np.ndarray, np.ndarray]:
    """One pickle, whether its checksum was asked for or not."""
    with (folder / kind.folder / file).open("rb") as opened:
        entry = pickled.load(opened)
    images = np.array(entry["data"])  # a copy, in memory of its own
    labels = entry["labels" if "labels" in entry else "fine_labels"]
    return images.reshape(-1, *kind.image), np.asarray(labels).astype(np.int64, casting="safe")


def _idx_part(kind: ImageSet, source: Any, folder: Path, files: Files) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels through torchvision's class: told not to look for the other part, nor for a
    cache of older versions.
    """
    one = {"_check_exists": lambda self: True, "_check_legacy_exist": lambda self: False}
    read = type(source.__name__, (source,), one)(str(folder), train=files in kind.train, **kind.split)
    images: np.ndarray = read.data.numpy()
    if kind.split:  # EMNIST's files are transposed; in place, block by block: bymerge is 550 MB
        for start in range(0, len(images), 4096):
            block = images[start : start + 4096]
            block[:] = block.transpose(0, 2, 1).copy()
    return images[:, None], read.targets.numpy().astype(np.int64, copy=False)


def _download(kind: ImageSet, source: Any, folder: Path) -> None:
    """Fetch the archives and unpack them; a second process waits for the first."""
    try:
        with made(folder), alone(folder / f".{kind.name}.lock"):
            if all((folder / kind.folder / file).is_file() for file in kind.files):
                return
            for archive, urls, md5 in _archives(kind, source):
                _fetch_any(urls, folder / archive, md5, _remedy(kind, folder))
            _unpack(kind, source, folder)
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(
            f"{kind.title}: cannot unpack in {folder} ({_line(error)}): {_remedy(kind, folder)}"
        ) from error


def _unpack(kind: ImageSet, source: Any, folder: Path) -> None:
    """In a folder of our own, where torchvision may write over anything, then move what came out."""
    work = folder / f".{kind.name}.unpacked"
    shutil.rmtree(work, ignore_errors=True)  # of a process that was killed
    try:
        for archive, _, _ in _archives(kind, source):
            (work / archive).parent.mkdir(parents=True, exist_ok=True)
            (work / archive).symlink_to((folder / archive).absolute())
        if kind.image[0] == 3:
            _untar(kind, work / source.filename, work)
        else:
            source(
                str(work), train=False, download=True, **kind.split
            )  # reads the test part: the smaller one
        (folder / kind.folder).mkdir(parents=True, exist_ok=True)
        for file in (work / kind.folder).iterdir():
            target = folder / kind.folder / file.name
            if not file.is_symlink() and not target.exists():  # EMNIST's other splits may be the user's own
                file.replace(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _untar(kind: ImageSet, archive: Path, folder: Path) -> None:
    """The set's files and no others."""
    (folder / kind.folder).mkdir(parents=True)
    with tarfile.open(archive) as packed:
        for file in kind.files:
            member = packed.extractfile(f"{kind.folder}/{file}")
            if member is None:
                raise tarfile.TarError(f"{archive}: {file} is no file")
            with member, (folder / kind.folder / file).open("wb") as opened:
                shutil.copyfileobj(member, opened)


def _archives(kind: ImageSet, source: Any) -> list[tuple[Path, list[str], str]]:
    """What torchvision downloads: where it is kept in the data folder, whence, and its md5."""
    if kind.split:
        return [(Path(kind.folder, ZIP), [source.url], source.md5)]
    if kind.image[0] == 3:
        return [(Path(source.filename), [source.url], source.tgz_md5)]
    return [
        (Path(kind.folder, file), [mirror + file for mirror in source.mirrors], md5)
        for file, md5 in source.resources
    ]


def _fetch_any(urls: list[str], target: Path, md5: str, remedy: str) -> None:
    """From the first address that has it."""
    for url in urls[:-1]:
        with contextlib.suppress(DataError):
            fetch(url, target, md5, remedy, "md5")
            return
    fetch(urls[-1], target, md5, remedy, "md5")


def _remedy(kind: ImageSet, folder: Path) -> str:
    take = "set dataset.verify=false to take the part that is there, as a subset"
    return (
        f"go online and run `{fetch_command(kind.name, folder)}`; or copy the files ({', '.join(kind.files)})"
        f" to {folder / kind.folder}, set dataset.root or DPFL_DATA_DIR to where they are, {take}"
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
