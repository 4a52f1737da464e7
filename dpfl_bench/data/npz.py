"""numpy arrays of one's own, in a file that `numpy.savez` writes."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dpfl_bench.checks import nearest
from dpfl_bench.data import own_file
from dpfl_bench.data.files import ALWAYS, PACKED_TEXT
from dpfl_bench.data.own_file import FILE, REMEDY, Part, found, refuse
from dpfl_bench.data.records import DataError, Records

SOURCE = own_file.source(".npz file")
NEEDED, TEST, CLIENTS = ("x", "y"), ("test_x", "test_y"), ("client", "test_client")
IMAGES = 4  # axes of records, their number among them: bytes stay bytes


def load(*, path: Annotated[str, FILE], classes: int | None) -> Records:
    """The arrays x (n, ...) and y (n,), and where they are there test_x, test_y, client and
    test_client, which name each record's client for partition=natural. y holds classes, or numbers
    where `classes` is 0.
    """
    file = found(path)
    arrays = _arrays(file)
    parts = [_part(file, arrays, "")]
    if "test_x" in arrays:
        parts.append(_part(file, arrays, "test_"))
        if ("client" in arrays) != ("test_client" in arrays):
            refuse(file, "expected client and test_client, or neither")
    return own_file.records(parts, f"npz: {file}", "y", classes)


def _arrays(file: Path) -> dict[str, np.ndarray]:
    _check_size(file)
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (ValueError, OSError, EOFError, KeyError, MemoryError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{file}: expected what numpy.savez writes, without objects ({error}): {REMEDY}"
        ) from None
    known = (*NEEDED, *TEST, *CLIENTS)
    for name in arrays:
        if name not in known:
            meant = nearest.did_you_mean(nearest.choice(name, known))
            refuse(file, f"array {name!r}; expected {', '.join(known)}{meant}")
    needed = NEEDED if arrays.keys().isdisjoint((*TEST, "test_client")) else (*NEEDED, *TEST)
    if missing := [name for name in needed if name not in arrays]:
        refuse(file, f"expected the array {missing[0]!r}; found {', '.join(arrays) or 'none'}")
    return arrays


def _check_size(file: Path) -> None:
    """Before anything is unpacked."""
    if not zipfile.is_zipfile(file):
        refuse(file, "expected what numpy.savez writes")
    with zipfile.ZipFile(file) as packed:
        size = sum(entry.file_size for entry in packed.infolist())
    most = max(ALWAYS, PACKED_TEXT * file.stat().st_size)
    if size > most:
        refuse(file, f"expected at most {most} bytes once unpacked, got {size}")


def _part(file: Path, arrays: dict[str, np.ndarray], prefix: str) -> Part:
    x, y, client = (arrays.get(f"{prefix}{name}") for name in ("x", "y", "client"))
    assert x is not None
    assert y is not None
    for name, column in ((f"{prefix}y", y), (f"{prefix}client", client)):
        if column is not None and column.shape != x.shape[:1]:
            refuse(file, f"{name} has shape {list(column.shape)}, expected one for each of {len(x)} records")
        if column is not None and column.dtype.kind not in "biufU":
            refuse(file, f"{name} holds {column.dtype}, expected numbers or words")
    return Part(_features(file, f"{prefix}x", x), y, client)


def _features(file: Path, name: str, x: np.ndarray) -> Any:
    if x.ndim < 2 or 0 in x.shape[1:]:
        refuse(file, f"{name} has shape {list(x.shape)}, expected (records, features) or more axes")
    if x.dtype.kind not in "biuf":
        refuse(file, f"{name} holds {x.dtype}, expected numbers")
    if x.dtype == np.uint8 and x.ndim == IMAGES:
        return x
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused with what is not finite
        return x.astype(np.float32)
