"""What a data set holds, by its bytes: two runs with one hash saw the same records.

Where a loader's module has a SOURCE, the hash is of the files that the loader reads. Nothing need
be loaded to ask, and whoever splits, draws or deals these records otherwise has the same hash. What
is generated has no files: its code and settings say all. Without a SOURCE the hash is of the
records that the loader gives.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl_bench.data.source import files_of, source_of

if TYPE_CHECKING:
    import numpy as np

    from dpfl_bench.data.records import Records

_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Contents:
    """`parts`: the hash of each file, or of each array, by name; so that it can be said what
    differs.
    """

    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        return _hex("\n".join(f"{name} {digest}" for name, digest in sorted(self.parts.items())).encode())


def has_known_files(dataset: Mapping[str, Any], own: bool = True) -> bool:
    """Whether it is known without loading what the loader reads. own: a user's own module may be
    imported to ask it.
    """
    source = source_of(dataset, own)
    return source is not None and source.presence(dataset) is not None


def of_files(dataset: Mapping[str, Any]) -> Contents | None:
    """Where `has_known_files`; None where some of them are missing."""
    files = _files(dataset)
    try:
        return (
            None
            if files is None
            else Contents({name: _digest(*_stamp(file)) for name, file in files.items()})
        )
    except FileNotFoundError:
        return None


def stamps(dataset: Mapping[str, Any]) -> object:
    """Differs after a file was written to; None where files are missing, or not known."""
    files = _files(dataset) if has_known_files(dataset) else None
    try:
        return None if files is None else [_stamp(file) for file in files.values()]
    except FileNotFoundError:
        return None


def of_records(records: Records) -> Contents:
    """Of what a loader gave, before anything is split off, prepared or dealt."""
    columns = ("train_x", "train_y", "test_x", "test_y", "owners", "test_owners")
    arrays = {name: getattr(records, name) for name in columns if getattr(records, name) is not None}
    parts = {name: _column(array) for name, array in arrays.items()}
    return Contents({**parts, "task": f"{records.task} {records.classes}"})


def _column(values: np.ndarray) -> str:
    import numpy as np

    if not isinstance(values, np.ndarray) or values.dtype.hasobject:
        return "no numbers"  # which a run refuses
    content = np.ascontiguousarray(values)
    return (
        f"{len(content)} rows"
        f" {_hex(f'{content.shape} {content.dtype.str}'.encode(), content.reshape(-1).view(np.uint8).data)}"
    )


def _hex(*content: Any) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in content:
        digest.update(part)
    return digest.hexdigest()


def _stamp(file: Path) -> tuple[str, tuple[int, ...]]:
    """ctime cannot be set back by whoever writes to a file and then sets its times."""
    stat = file.stat()
    return os.fspath(file.absolute()), (
        stat.st_dev,
        stat.st_ino,
        stat.st_size,
        stat.st_mtime_ns,
        stat.st_ctime_ns,
    )


@cache
def _digest(path: str, stamp: tuple[int, ...]) -> str:
    """Each file is read once a process, and again when it was written to."""
    digest = hashlib.blake2b(digest_size=8)
    with open(path, "rb") as file:
        while block := file.read(_AT_ONCE):
            digest.update(block)
    return digest.hexdigest()


def _files(dataset: Mapping[str, Any]) -> dict[str, Path] | None:
    """What the loader reads, by names that do not tell where it lies; None where some is missing,
    as far as that can be known.
    """
    source = source_of(dataset, own=True)
    files = None if source is None else files_of(dataset, source)
    weights = dataset.get("weights") if dataset.get("transform") == "resnet18" else None
    return files if files is None or weights is None else {**files, "weights": Path(weights).expanduser()}


Load = Callable[[Mapping[str, Any]], "Records"]


def now(dataset: Mapping[str, Any], load: Load) -> Contents | None:
    """What the data set holds now, without a run; None where that cannot be told. A user's own
    loader without a SOURCE is called.
    """
    if has_known_files(dataset):
        return of_files(dataset)
    try:
        return of_records(load(dataset))
    except Exception:  # its files are not on this machine, or not what it expects: a run would say so
        return None
