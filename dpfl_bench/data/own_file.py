"""What a CSV file and an .npz file of one's own have in common: which files are meant, and labels
and clients by their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.checks.ranges import Range
from dpfl_bench.data import source as sources
from dpfl_bench.data.files import check_regular, check_unpacked
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.source import Dataset, Presence, Source

if TYPE_CHECKING:
    import numpy as np

REMEDY = "correct the file, or say another dataset.path"
SHOWN = 5  # values or names that a refusal shows
FILE = Range(bool, "a file; say dataset.path=FILE")


@dataclass(frozen=True)
class Part:
    """What one file holds. x: (n, *shape). target: (n,) words or numbers. clients: (n,) words or
    numbers, None where no client is named.
    """

    x: np.ndarray
    target: np.ndarray
    clients: np.ndarray | None


def source(what: str) -> Source:
    return Source(
        how="your own file",
        presence=_presence,
        files=lambda dataset: dict(zip(("training file", "test file"), _files(dataset), strict=False)),
        remedy=lambda dataset: f"put your {what} there, or correct dataset.path",
    )


def found(path: str) -> Path:
    """The file, if it can be read as one: no pipe, and nothing that unpacks without an end."""
    file = Path(path).expanduser()
    check_regular(file, REMEDY)
    if not file.is_file():
        raise DataError(f"no file {file}: put it there, or correct dataset.path")
    check_unpacked(file, REMEDY)
    return file


def records(parts: list[Part], where: str, key: str, classes: int | None) -> Records:
    """parts: of the training file, and of the test file where there is one. key: the setting that
    names the target. classes: 0 for regression; else k labels become 0..k-1 in sorted order.
    """
    train, test = parts[0], parts[-1]
    empty = slice(None if len(parts) == 2 else 0)
    if classes == 0:
        targets, count = [_numbers(part.target, where, key) for part in parts], 0
    else:
        targets, count = _labelled([part.target for part in parts], where, key)
    owners, test_owners = _owners(train.clients, test.clients if len(parts) == 2 else None, where)
    return Records(
        train.x,
        targets[0],
        test.x[empty] if len(parts) == 2 else train.x[:0],
        targets[-1][empty],
        owners,
        count,
        where,
        None,
        test_owners=test_owners,
    )


def _labelled(targets: list[np.ndarray], where: str, key: str) -> tuple[list[np.ndarray], int]:
    """Each target as its label's place among all labels; numbers are sorted as numbers."""
    import numpy as np

    together = np.concatenate(targets)
    numbers = _as_numbers(together)
    if numbers is not None:
        together = numbers
        if not np.isfinite(numbers).all():
            refuse(where, f"{key}: a target is not finite")
        if (numbers != np.round(numbers)).any():
            refuse(where, f"{key}: found {_few(np.unique(numbers))}, no classes", REGRESSION)
    names, places = np.unique(together, return_inverse=True)
    if len(names) < 2:
        refuse(where, f"{key}: expected two or more classes, found {_few(names)}")
    if len(names) > max(SHOWN, len(together) // 2):
        refuse(where, f"{key}: {len(names)} values among {len(together)} records are no classes", REGRESSION)
    ends = np.cumsum([len(target) for target in targets])[:-1]
    return [each.astype(np.int64) for each in np.split(places.reshape(-1), ends)], len(names)


REGRESSION = "name the column of the classes, or say dataset.classes=0 for regression"


def _numbers(target: np.ndarray, where: str, key: str) -> np.ndarray:
    import numpy as np

    numbers = _as_numbers(target)
    if numbers is None or not np.isfinite(numbers).all():
        remedy = "name a column of numbers, or leave dataset.classes at null for classes"
        refuse(where, f"{key}: expected finite numbers (dataset.classes=0), found {_few(target)}", remedy)
    return numbers.astype(np.float32)


def _as_numbers(values: np.ndarray) -> np.ndarray | None:
    """None where one of them is no number."""
    import numpy as np

    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return None


def _owners(
    clients: np.ndarray | None, others: np.ndarray | None, where: str
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Each record's client, 0..M-1 in the order of their sorted names."""
    import numpy as np

    if clients is None:
        return None, None
    names, owners = np.unique(clients, return_inverse=True)
    if others is None:
        return owners.reshape(-1).astype(np.int64), None
    places = np.searchsorted(names, others).clip(max=len(names) - 1)
    if (strange := names[places] != others).any():
        refuse(where, f"client {others[strange][0]} has test records and no training records")
    return owners.reshape(-1).astype(np.int64), places.astype(np.int64)


def _few(values: np.ndarray) -> str:
    more = ", ..." if len(values) > SHOWN else ""
    return ", ".join(str(value) for value in values[:SHOWN].tolist()) + more


def refuse(where: object, what: str, remedy: str = REMEDY) -> NoReturn:
    raise DataError(f"{where}: {what}: {remedy}")


def unknown(where: object, key: str, name: str, meant: str, known: list[str]) -> NoReturn:
    """A column or an array that the file has not."""
    has = ", ".join(known[: 2 * SHOWN]) + (", ..." if len(known) > 2 * SHOWN else "")
    raise ConfigError(f"{key}={name}: {where} has {has}{meant}")


def _files(dataset: Dataset) -> list[Path]:
    paths = (dataset.get("path"), dataset.get("test_path"))
    return [Path(path).expanduser() for path in paths if path]


def _presence(dataset: Dataset) -> Presence:
    files = _files(dataset)
    missing = tuple(str(file) for file in files if not file.is_file()) or (() if files else ("dataset.path",))
    return Presence(files[0].parent if files else Path(), sources.existing(files), missing)
