"""Reddit: LEAF's next-word prediction, sequences of 10 tokens out of 10000, by 1660820 users
(December 2017).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dpfl_bench.checks.ranges import COUNT, FRACTION
from dpfl_bench.data import leaf, pickled
from dpfl_bench.data.folder import data_root
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.source import Dataset
from dpfl_bench.rng import generator

LENGTH = 10
_POSTS = 56_587_343
_STEPS = (
    "download the data named in https://github.com/TalwalkarLab/leaf/tree/master/data/reddit and put its"
    " train and test in {folder}"
)
_VOCABULARY = (
    "run LEAF's data/reddit/build_vocab.py --data-dir {folder}/train --target-dir {folder}, or set"
    " dataset.vocabulary"
)
_PICKLES = (".pck", ".pkl", ".pickle")


def vocabulary_file(vocabulary: str | None, folder: Path) -> Path:
    """Where the user says, else as JSON or as LEAF's script leaves it in the data's folder."""
    if vocabulary:
        return Path(vocabulary).expanduser()
    as_json, by_script = folder / "reddit_vocab.json", folder / "reddit_vocab.pck"
    return by_script if by_script.is_file() and not as_json.is_file() else as_json


def _leaks(dataset: Dataset) -> list[str]:
    if dataset.get("vocabulary_from") == "public":
        return []
    return [
        "dataset.vocabulary_from=data: the vocabulary is made of the training posts, whose words were"
        " counted without noise"
    ]


SOURCE = leaf.source(
    "reddit",
    _POSTS,
    LENGTH,
    "by hand, from LEAF",
    beside=lambda dataset, folder: vocabulary_file(dataset.get("vocabulary"), folder),
    leaks=_leaks,
)


@dataclass(frozen=True)
class _Vocabulary:
    ids: dict[str, int]
    size: int
    unknown: int
    pad: int


def load(
    *,
    root: str | None,
    vocabulary: str | None,
    classes: int,
    unknown: int,
    clients: Annotated[int | None, COUNT],
    train_per_client: Annotated[int | None, COUNT],
    test_per_client: Annotated[int | None, COUNT],
    fraction: Annotated[float, FRACTION],
    seed: int,
) -> Records:
    """Token ids (n, 10) and, for each of the 10 positions, the id of the token that follows (n,
    10), int16 for LEAF's vocabulary.

    A post is cut into sequences as LEAF cut it. A target that is a pad is -1, no target; a sequence
    of nothing else is left out. Words outside the vocabulary, as inputs and as targets, have its
    unknown id, `unknown`: they are learnt, and no hit. A record is a sequence, while LEAF's
    56587343 samples, which `Records.subset` counts, are posts. LEAF's validation posts are not
    read.

    vocabulary: LEAF's, as JSON (vocab, size, unk_symbol, pad_symbol) or as the pickle that its
    script writes, of which nothing is run; null: ROOT/reddit/data/reddit_vocab.json or .pck. It is
    made of training posts (`Settings.leaks`). clients: the users are dealt in turn, in an order
    drawn by `seed`, to so many owners (`balancing`: 3); null: every user is one. train_per_client,
    test_per_client: so many sequences of each owner, drawn at random by `seed` (`balancing`: 28750
    and 11807); null: all.
    """
    folder = data_root(root) / "reddit" / "data"
    words = _read(vocabulary_file(vocabulary, folder), folder)
    for key, value, truth in (("classes", classes, words.size), ("unknown", unknown, words.unknown)):
        if value != truth:
            raise DataError(f"dataset.{key}={value}: the vocabulary says {truth}: set dataset.{key}={truth}")
    convert = _converter(words)
    kind = leaf.Kind(
        "reddit",
        _STEPS,
        convert,
        words.size,
        _POSTS,
        1_660_820,
        "next_token",
        over_all_parts=True,
        counted="posts",
    )
    records = leaf.read(kind, root, fraction, seed)
    records = records if clients is None else _dealt(records, clients, seed)
    return _counted(records, train_per_client, test_per_client, seed)


def _counted(records: Records, train: int | None, test: int | None, seed: int) -> Records:
    """So many records of each owner; None: all."""
    if train is None and test is None:
        return records
    assert records.owners is not None
    assert records.test_owners is not None
    clients = int(records.owners.max()) + 1
    rows = {
        part: _of_each(owners, clients, count, f"dataset.{part}_per_client", generator(seed, f"{part}-count"))
        for part, owners, count in (("train", records.owners, train), ("test", records.test_owners, test))
    }
    kept = [len(rows["train"]) + len(rows["test"]), len(records.train_y) + len(records.test_y)]
    posts = records.counted[0] if records.counted else kept[1]
    return replace(
        records,
        train_x=records.train_x[rows["train"]],
        train_y=records.train_y[rows["train"]],
        test_x=records.test_x[rows["test"]],
        test_y=records.test_y[rows["test"]],
        owners=records.owners[rows["train"]],
        test_owners=records.test_owners[rows["test"]],
        source=f"{records.source}; {kept[0]} of {kept[1]} sequences",
        counted=(round(posts * kept[0] / kept[1]), "posts"),
    )


def _of_each(
    owners: np.ndarray, clients: int, count: int | None, key: str, draw: np.random.Generator
) -> np.ndarray:
    """The places of `count` records of each owner, at random, in order."""
    if count is None:
        return np.arange(len(owners))
    held = np.bincount(owners[owners >= 0], minlength=clients)
    if held.min() < count:
        raise DataError(
            f"{key}={count}: client {held.argmin()} has {held.min()} sequences; expected at most that, or"
            " null"
        )
    picks = [draw.choice(np.flatnonzero(owners == i), count, replace=False) for i in range(clients)]
    return np.sort(np.concatenate(picks))


def _converter(words: _Vocabulary) -> leaf.Convert:
    """What turns a user's posts into sequences of ids."""
    from dpfl_bench.problems.tasks import IGNORED  # with torch

    def convert(x: list[Any], y: list[Any]) -> leaf.Arrays:
        inputs, targets = [], []
        for post, about in zip(x, y, strict=True):
            follows = about.get("target_tokens") if isinstance(about, dict) else None
            if not isinstance(post, list) or not isinstance(follows, list) or len(post) != len(follows):
                raise ValueError("expected posts x with as many sequences of y's target_tokens")
            inputs += post
            targets += follows
        ids, next_ids = (_ids(sequences, words) for sequences in (inputs, targets))
        next_ids[next_ids == words.pad] = IGNORED
        real = (next_ids != IGNORED).any(axis=1)
        return ids[real], next_ids[real]

    return convert


def _ids(sequences: list[Any], words: _Vocabulary) -> np.ndarray:
    for tokens in sequences:
        if not isinstance(tokens, list) or len(tokens) != LENGTH:
            raise ValueError(
                f"expected sequences of {LENGTH} tokens, found"
                f" {len(tokens) if isinstance(tokens, list) else tokens!r}"
            )
    ids = [words.ids.get(token, words.unknown) for tokens in sequences for token in tokens]
    return np.array(ids, np.min_scalar_type(-words.size)).reshape(-1, LENGTH)


def _read(file: Path, folder: Path) -> _Vocabulary:
    remedy = _VOCABULARY.format(folder=folder, file=file)
    if not file.is_file():
        raise DataError(f"no file {file}: expected LEAF's vocabulary as JSON or .pck: {remedy}")
    content = _unpickled(file, remedy) if file.suffix in _PICKLES else leaf.json_of(file, remedy)
    ids = content.get("vocab")
    numbers = [
        number for key in ("size", "unk_symbol", "pad_symbol") if isinstance(number := content.get(key), int)
    ]
    if not isinstance(ids, dict) or len(numbers) < 3:
        raise DataError(f"{file}: expected vocab, and whole numbers size, unk_symbol, pad_symbol: {remedy}")
    size, unknown, pad = numbers
    if any(type(i) is not int or not 0 <= i < size for i in (*ids.values(), unknown, pad)) or unknown == pad:
        raise DataError(f"{file}: expected ids 0..{size - 1}, the unknown's not the pad's: {remedy}")
    return _Vocabulary(ids, size, unknown, pad)


def _unpickled(file: Path, remedy: str) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            content = pickled.load(opened)
    except pickled.UNREADABLE as error:
        raise DataError(
            f"{file}: cannot read it ({' '.join(str(error).split()) or type(error).__name__}): {remedy}"
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected a dictionary, found a {type(content).__name__}: {remedy}")
    return content


def _dealt(records: Records, clients: int, seed: int) -> Records:
    """The users' records in `clients` hands; those who have test records only stay without a
    client.
    """
    assert records.owners is not None
    assert records.test_owners is not None
    users = int(records.owners.max()) + 1
    if not 1 <= clients <= users:
        raise DataError(
            f"dataset.clients={clients}: expected 1..{users}, for so many users have training records: change"
            " it, or null"
        )
    hand = np.append(generator(seed, "deal").permutation(users) % clients, -1)  # the last is where -1 points
    return replace(records, owners=hand[records.owners], test_owners=hand[records.test_owners])
