"""What a file must be before a loader reads it: a file, no pipe, and not endless once unpacked."""

from __future__ import annotations

import bz2
import filecmp
import gzip
import zlib
from pathlib import Path

from dpfl_bench.data.records import DataError

PACKED_TEXT = 200  # times its own size: text that is packed better is made to fill a machine
ALWAYS = 10**9  # bytes that may be unpacked whatever the ratio
_BLOCK = 1 << 20


def check_regular(file: Path, remedy: str) -> None:
    """Raise DataError for a pipe or a device, which would be waited for."""
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise DataError(f"{file}: expected a file, it is a pipe or a device: {remedy}")


def check_unpacked(file: Path, remedy: str) -> None:
    """Raise DataError for a .gz or .bz2 that is cut short, damaged, or a bomb. Others pass."""
    if file.suffix not in (".gz", ".bz2"):
        return
    most, size = max(ALWAYS, PACKED_TEXT * file.stat().st_size), 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else bz2.open(file) as packed:
            while block := packed.read(_BLOCK):
                size += len(block)
                if size > most:
                    raise DataError(
                        f"{file}: expected at most {most} bytes once unpacked, got more: {remedy}"
                    )
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: cannot unpack it ({error}): {remedy}") from None


def check_no_copies(folder: Path, train: str, test: str, remedy: str) -> None:
    """Raise DataError for a test file with the bytes of a training file: what is tested would be
    trained on.
    """
    trained = sorted((folder / train).glob("*.json"))
    for file in sorted((folder / test).glob("*.json")):
        twin = next((one for one in trained if filecmp.cmp(one, file, shallow=False)), None)
        if twin is not None:
            raise DataError(f"{file}: the same bytes as {twin}, expected other records: {remedy}")
