"""LEAF's files (Caldas et al. 2018): FOLDER/data/{train,test}/*.json, each with users, num_samples
and user_data[user].x and .y.

One file is in memory at a time, a user's lists become arrays as soon as they are parsed, and arrays
grow in place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpfl_bench.data import source as sources
from dpfl_bench.data.files import check_no_copies, check_regular
from dpfl_bench.data.folder import data_root
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.source import Dataset, Presence, Source
from dpfl_bench.rng import generator

Arrays = tuple[np.ndarray, np.ndarray]  # x and y, a row for each record
# a user's x and y, equally long lists, to arrays of records; a ValueError says what is wrong with
# them
Convert = Callable[[list[Any], list[Any]], Arrays]
PREPROCESS = (
    "in data/{name} of a clone of https://github.com/TalwalkarLab/leaf run ./preprocess.sh {arguments}, "
    "then copy its data/train and data/test to {{folder}}"
)

_TWICE = "remove the file that is a copy or belongs to another part, or make both again"


@dataclass(frozen=True)
class Kind:
    """One of LEAF's data sets. `samples` and `users` are what LEAF publishes for the whole of
    it.
    """

    name: str  # also its folder
    steps: str  # how to get the files to {folder}
    convert: Convert
    classes: int
    samples: int
    users: int
    task: str = "classify"
    over_all_parts: bool = False  # num_samples counts what a user has in train, validation and test together
    counted: str = ""  # what a sample is called where it is no record


@dataclass(frozen=True)
class _User:
    """One user's records in one file, of so many samples, or what is wrong with them."""

    samples: int = 0
    arrays: Arrays | None = None
    problem: str = ""


class _Column:
    """Arrays appended to one another; growing does not hold two copies, as concatenating at the end
    would.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._like = np.empty(0)

    def add(self, array: np.ndarray) -> None:
        self._bytes += array.tobytes()
        self._like = array[:0]

    def whole(self) -> np.ndarray:
        shape = (-1, *self._like.shape[1:])
        return np.frombuffer(self._bytes, self._like.dtype).reshape(shape) if self._bytes else self._like


@dataclass(frozen=True)
class _Part:
    x: np.ndarray
    y: np.ndarray
    owners: np.ndarray
    samples: int

    def take(self, keep: np.ndarray) -> _Part:
        return _Part(self.x[keep], self.y[keep], self.owners[keep], self.samples)


def source(
    name: str,
    samples: int,
    numbers: int,
    how: str = "by LEAF's scripts",
    beside: Callable[[Dataset, Path], Path] | None = None,
    leaks: Callable[[Dataset], list[str]] | None = None,
) -> Source:
    """Of a data set whose whole has this many samples.

    numbers: pixels, characters or tokens of one sample, which take a byte each at least. beside: a
    further file that `load` reads, by the YAML file's keys and the data's folder.
    """

    def presence(dataset: Dataset) -> Presence:
        folder = data_root(dataset.get("root")) / name / "data"
        parts = {f"{part}/*.json": sorted((folder / part).glob("*.json")) for part in ("train", "test")}
        if beside is not None:
            file = beside(dataset, folder)
            parts[file.name] = [file] if file.is_file() else []
        there = sources.existing([file for files in parts.values() for file in files])
        missing = tuple(pattern for pattern, files in parts.items() if not files)
        return Presence(
            folder, there, missing, () if missing else sources.too_small(there, samples * numbers)
        )

    return Source(how=how, presence=presence, leaks=leaks)


def read(kind: Kind, root: str | None, fraction: float, seed: int) -> Records:
    """The records of ROOT/NAME/data, each with its user as owner: 0..M-1 in the files' order; a
    test record whose user has no training record has owner -1.

    fraction: the share of all records, training and test together, that is kept, drawn at random
    whoever holds them; users left without training records are no clients.
    """
    if not 0 < fraction <= 1:
        raise DataError(f"dataset.fraction={fraction}: expected 0 < fraction <= 1 (1 keeps every record)")
    folder = data_root(root) / kind.name / "data"
    names: dict[str, int] = {}
    train, test = (_part(kind, folder, part, names) for part in ("train", "test"))
    enough = test.samples >= 10  # fewer may be alike by chance
    if enough:
        check_no_copies(folder, "train", "test", _TWICE)
    if enough and np.array_equal(train.y, test.y) and np.array_equal(train.x, test.x):
        raise DataError(f"{folder / 'test'}: the same records as in {folder / 'train'}: {_TWICE}")
    samples = train.samples + test.samples
    source = (
        f"LEAF {kind.name} in {folder}: {samples} of {kind.samples} {kind.counted or 'samples'}, {len(names)}"
        f" of {kind.users} users"
    )
    if fraction < 1:
        train, test = _sampled(train, test, fraction, seed)
        source += f"; {fraction:g} of the records"
    owners, test_owners = _renumbered(train.owners, test.owners, len(names))
    # the same share of the samples
    counted = (int(fraction * samples + 0.5), kind.counted) if kind.counted else None
    return Records(
        train.x,
        train.y,
        test.x,
        test.y,
        owners,
        kind.classes,
        source,
        kind.samples,
        kind.task,
        test_owners,
        counted,
    )


def _text(file: Path, remedy: str) -> str:
    """The file's text; a DataError where it is empty or no UTF-8."""
    check_regular(file, remedy)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: expected UTF-8 text, found byte {error.object[error.start]:#04x} at {error.start}:"
            f" {remedy}"
        ) from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}): {remedy}") from error
    if not text or text.isspace():
        raise DataError(f"{file}: expected JSON, found an empty file: {remedy}")
    return text


def json_of(file: Path, remedy: str, hook: Callable[[dict[str, Any]], Any] | None = None) -> dict[str, Any]:
    """The JSON object in the file; a DataError where it is cut short or something else."""
    text = _text(file, remedy)
    try:
        content = json.loads(text, object_hook=hook)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: not JSON, or cut short ({error}): {remedy}") from error
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected a JSON object, found a {type(content).__name__}: {remedy}")
    return content


def _part(kind: Kind, folder: Path, part: str, names: dict[str, int]) -> _Part:
    """All files of one part, file after file; `names` numbers the users as they appear. LEAF writes
    each user into one file of a part. A user in two files is a copy, whose records would count
    twice. Or the other part's file lies in the wrong folder, and test records would be trained on.
    """
    files = sorted((folder / part).glob("*.json"))
    steps = kind.steps.format(folder=folder)
    if not files:
        where = f"expected {folder}/train/*.json and {folder}/test/*.json"
        raise DataError(
            f"no file {folder / part}/*.json: {where}: {steps}, or set dataset.root or DPFL_DATA_DIR to where"
            f" {kind.name}/ is"
        )
    x, y, owners, samples = _Column(), _Column(), _Column(), 0
    homes: dict[str, Path] = {}  # each user's file
    for file in files:
        for name, count, (user_x, user_y) in _users(
            kind, file, f"make it again ({steps})", empty=part != "train"
        ):
            if homes.setdefault(name, file) is not file:
                raise DataError(
                    f"{file}: user {name!r} is in {homes[name]} already, expected one file in {part} for each"
                    f" user: {_TWICE} ({steps})"
                )
            x.add(user_x)
            y.add(user_y)
            owners.add(np.full(len(user_y), names.setdefault(name, len(names))))
            samples += count
    return _Part(x.whole(), y.whole(), owners.whole(), samples)


def _users(kind: Kind, file: Path, remedy: str, empty: bool) -> Iterator[tuple[str, int, Arrays]]:
    """Each user's name, number of samples and arrays, in the file's order; `empty`: they may be
    without records.
    """
    content = json_of(file, remedy, lambda fields: _converted(fields, kind.convert))
    for key, expected in (("users", list), ("num_samples", list), ("user_data", dict)):
        if not isinstance(content.get(key), expected):
            raise DataError(
                f"{file}: expected LEAF's users, num_samples and user_data, found no {key}: {remedy}"
            )
    users, counts, by_name = content["users"], content["num_samples"], content["user_data"]
    if not users or len(set(map(str, users))) < len(users):
        raise DataError(f"{file}: expected users, each named once, found {len(users)} names: {remedy}")
    if len(counts) != len(users):
        raise DataError(f"{file}: {len(users)} users with {len(counts)} num_samples: {remedy}")
    # LEAF leaves users in user_data whom its split has emptied and taken off the list
    unlisted = by_name.keys() - set(map(str, users))
    strays = (name for name, user in by_name.items() if not isinstance(user, _User) or user.samples)
    stray = min(unlisted & set(strays), default=None)
    if stray is not None:
        raise DataError(f"{file}: user {stray!r} of user_data is missing in users: {remedy}")
    for name, count in zip(map(str, users), counts, strict=True):
        user = by_name.get(name, _User(problem="missing in user_data"))
        problem = _problem(user, count, kind, empty)
        if problem or user.arrays is None:
            raise DataError(f"{file}: user {name!r}: {problem}: {remedy}")
        yield name, user.samples, user.arrays


def _converted(fields: dict[str, Any], convert: Convert) -> Any:
    """What the parser puts in place of a JSON object: arrays for one that holds a user's lists."""
    x, y = fields.get("x"), fields.get("y")
    if not isinstance(x, list) or not isinstance(y, list):
        return fields
    if len(x) != len(y):
        return _User(len(y), problem=f"{len(x)} x with {len(y)} y")
    try:
        return _User(len(y), convert(x, y))
    except (TypeError, ValueError, OverflowError) as error:
        return _User(len(y), problem=" ".join(str(error).split()))


def _problem(user: Any, count: Any, kind: Kind, empty: bool) -> str:
    if not isinstance(user, _User):
        return "expected lists x and y"
    if user.problem or user.arrays is None:
        return user.problem
    if type(count) is not int or (count < user.samples if kind.over_all_parts else count != user.samples):
        return f"num_samples says {count}, found {user.samples}"
    return "" if empty or len(user.arrays[1]) else "no training records"


def _sampled(train: _Part, test: _Part, fraction: float, seed: int) -> tuple[_Part, _Part]:
    """A share of the records of both parts, each as likely as any other, in their old order."""
    total = len(train.y) + len(test.y)
    keep = np.zeros(total, bool)
    keep[generator(seed, "fraction").choice(total, int(fraction * total + 0.5), replace=False)] = True
    if not keep[: len(train.y)].any():
        raise DataError(
            f"dataset.fraction={fraction:g} of {total} records leaves no training record: choose a larger one"
        )
    return train.take(keep[: len(train.y)]), test.take(keep[len(train.y) :])


def _renumbered(train: np.ndarray, test: np.ndarray, users: int) -> tuple[np.ndarray, np.ndarray]:
    """Owners without gaps: those of training records in their old order, -1 for anyone else's test
    records.
    """
    clients = np.unique(train)
    number = np.full(users, -1)
    number[clients] = np.arange(len(clients))
    return number[train], number[test]
