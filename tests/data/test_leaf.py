"""LEAF's FEMNIST, Shakespeare and Reddit: small files, good and bad, and the real ones where
DPFL_DATA_DIR has them.
"""

from __future__ import annotations

import json
import os
import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfl_bench.data import femnist, reddit, shakespeare
from dpfl_bench.data.records import DataError, Records

Content = dict[str, Any]
WHITE, INK = [1.0] * 784, [k / 255 for k in range(256)] + [1.0] * 528
LINE = "To be, or not to be: that is the question;\nWhether 'tis nobler in the mind to su"
POST = [["<BOS>", "to", "be", ",", "or", "not", "to", "be", "that", "is"], ["the", "?", *["<PAD>"] * 8]]
NEXT = [[*POST[0][1:], "the"], ["?", "<EOS>", *["<PAD>"] * 8]]
WORDS = ["<PAD>", "<UNK>", "<BOS>", "<EOS>", "to", "be", ",", "or", "not", "that", "is", "the"]  # but no "?"
VOCABULARY = {
    "vocab": {word: i for i, word in enumerate(WORDS)},
    "size": 14,
    "unk_symbol": 1,
    "pad_symbol": 0,
}


def content(users: dict[str, tuple[list[Any], list[Any]]]) -> Content:
    held = {name: {"x": x, "y": y} for name, (x, y) in users.items()}
    return {"users": list(users), "num_samples": [len(y) for _, y in users.values()], "user_data": held}


def put(root: Path, name: str, **parts: Content | str | bytes) -> Path:
    """ROOT/NAME/data/PART/FILE.json of PART__FILE; text and bytes as they are."""
    for key, value in parts.items():
        part, _, file = key.partition("__")
        path = root / name / "data" / part / f"{file or 'all'}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            value
            if isinstance(value, bytes)
            else (value if isinstance(value, str) else json.dumps(value)).encode()
        )
    return root


def images(root: Path | None, fraction: float = 1.0) -> Records:
    return femnist.load(root=None if root is None else str(root), fraction=fraction, seed=0)


def plays(root: Path | None, fraction: float = 1.0, seed: int = 0) -> Records:
    return shakespeare.load(root=None if root is None else str(root), fraction=fraction, seed=seed)


def posts(root: Path | None, **change: Any) -> Records:
    own: dict[str, Any] = {
        "vocabulary": None,
        "classes": 14,
        "unknown": 1,
        "clients": None,
        "train_per_client": None,
        "test_per_client": None,
        "fraction": 1.0,
        "seed": 0,
    }
    return reddit.load(root=None if root is None else str(root), **own | change)


def post(x: list[list[str]] = POST, y: list[list[str]] = NEXT) -> tuple[list[Any], list[Any]]:
    return [x], [{"subreddit": "ask", "created_utc": 1, "score": 1, "target_tokens": y, "count_tokens": 12}]


@pytest.fixture
def words(tmp_path: Path) -> Path:
    put(tmp_path, "reddit", train=content({"a": post(), "b": post()}), test=content({"b": post()}))
    (tmp_path / "reddit/data/reddit_vocab.json").write_text(json.dumps(VOCABULARY))
    return tmp_path


def test_images_keep_leafs_values_and_writers(tmp_path: Path) -> None:
    first = content({"w": ([INK, WHITE], [0, 61])})
    put(tmp_path, "femnist", train__2=content({"v": ([WHITE, INK], [5, 7])}), train__1=first)
    made = images(
        put(tmp_path, "femnist", test=content({"v": ([INK], [9]), "u": ([WHITE], [3]), "w": ([], [])}))
    )
    assert made.train_x.dtype == made.test_x.dtype == np.uint8
    assert made.train_x.shape == (4, 1, 28, 28)
    assert made.train_x[0].ravel().tolist() == [*range(256), *[255] * 528]  # white paper stays white
    assert (made.train_x[0].ravel() / np.float32(255)).tolist() == np.array(INK, np.float32).tolist()
    assert made.train_y.tolist() == [0, 61, 5, 7]
    assert made.owners is not None
    assert made.owners.tolist() == [0, 0, 1, 1]  # file by file
    assert made.test_y.tolist() == [9, 3]
    assert made.test_owners is not None
    assert made.test_owners.tolist() == [1, -1]  # u has no training record
    assert (made.classes, made.task) == (62, "classify")
    assert made.subset == "subset 6 of 805263"
    assert "6 of 805263 samples, 3 of 3550 users" in made.source


def test_fraction_draws_records_whoever_holds_them(tmp_path: Path) -> None:
    roles = dict(
        zip("ABCDE", [40, 1, 40, 1, 1], strict=True)
    )  # whoever speaks, the next character is their name
    train = content({name: ([LINE] * size, [name] * size) for name, size in roles.items()})
    put(
        tmp_path,
        "shakespeare",
        train=train,
        test=content({name: ([LINE] * 20, [name] * 20) for name in roles}),
    )
    made = plays(tmp_path, 0.2)
    assert len(made.train_y) + len(made.test_y) == 37  # of 183: 36.6, rounded
    assert made.subset == "subset 37 of 4226158"
    assert made.source.endswith("; 0.2 of the records")
    assert made.owners is not None
    assert made.test_owners is not None
    kept = np.unique(made.train_y)
    assert len(kept) < 5  # those left without training records are no clients
    assert made.owners.tolist() == np.searchsorted(kept, made.train_y).tolist()
    holders = [int(np.searchsorted(kept, y)) if y in kept else -1 for y in made.test_y]
    assert made.test_owners.tolist() == holders
    assert -1 in holders
    assert plays(tmp_path, 0.2).train_y.tolist() == made.train_y.tolist()
    assert plays(tmp_path, 0.2, seed=1).train_y.tolist() != made.train_y.tolist()
    for fraction in (0.0, 1.1, -1.0):
        with pytest.raises(DataError, match=rf"dataset.fraction={fraction}: expected 0 < fraction <= 1"):
            plays(tmp_path, fraction)
    with pytest.raises(
        DataError,
        match=r"dataset.fraction=0.001 of 183 records leaves no training record: choose a larger one",
    ):
        plays(tmp_path, 0.001)


def test_fraction_draws_each_record_alike(tmp_path: Path) -> None:
    train = content({"A": ([LINE] * 80, ["A"] * 80), "B": ([LINE] * 3, ["B"] * 3)})
    put(tmp_path, "shakespeare", train=train, test=content({"B": ([LINE] * 100, ["B"] * 100)}))
    draws, count, total = 200, 37, 183
    shares = [
        (plays(tmp_path, 0.2, seed).train_y == shakespeare.LETTERS.index("A")).sum() / 80
        for seed in range(draws)
    ]
    share = float(np.mean(shares))
    fair = count / total
    tolerance = 4 * np.sqrt(
        fair * (1 - fair) / 80 * (total - 80) / (total - 1) / draws
    )  # four standard errors, hypergeometric
    assert abs(share - fair) < tolerance
    assert abs(share - 0.9 * fair) > tolerance


def test_lines_become_ids_in_leafs_alphabet(tmp_path: Path) -> None:
    strange = "é$\ud800\U0001f600" + LINE[4:]
    assert len(shakespeare.LETTERS) == 80
    put(
        tmp_path,
        "shakespeare",
        train=content({"HAMLET": ([LINE, strange], ["u", "}"])}),
        test=content({"HAMLET": ([LINE], ["~"])}),
    )
    made = plays(tmp_path)
    assert made.train_x.dtype == made.test_x.dtype == np.int8
    assert made.train_y.dtype == np.int64
    assert made.train_x.shape == (2, 80)
    assert "".join(shakespeare.LETTERS[i] for i in made.train_x[0]) == LINE
    assert made.train_x[1].tolist() == [80] * 4 + made.train_x[0, 4:].tolist()
    assert made.train_y.tolist() == [shakespeare.LETTERS.index("u"), 79]
    assert made.test_y.tolist() == [80]  # unknown: a class of its own, not LEAF's last letter
    assert (made.classes, made.subset) == (81, "subset 3 of 4226158")


def test_posts_become_sequences(words: Path) -> None:
    made = posts(words)
    assert made.task == "next_token"
    assert made.train_x.dtype == made.train_y.dtype == np.int8  # the narrowest that holds 14 ids
    assert made.train_x.tolist() == [[2, 4, 5, 6, 7, 8, 4, 5, 9, 10], [11, 1, *[0] * 8]] * 2
    assert made.train_y.tolist() == [[4, 5, 6, 7, 8, 4, 5, 9, 10, 11], [1, 3, *[-1] * 8]] * 2
    assert made.owners is not None
    assert made.owners.tolist() == [0, 0, 1, 1]
    assert made.test_owners is not None
    assert made.test_owners.tolist() == [1, 1]
    assert made.classes == 14
    assert made.subset == "subset 3 of 56587343 posts"
    assert "3 of 56587343 posts, 2 of 1660820 users" in made.source


def test_posts_are_counted_as_posts(words: Path) -> None:
    """Three posts are six sequences."""
    whole, half = posts(words), posts(words, fraction=0.5)
    assert (len(whole.train_y) + len(whole.test_y), whole.counted) == (6, (3, "posts"))
    assert (len(half.train_y) + len(half.test_y), half.counted) == (
        3,
        (2, "posts"),
    )  # as many as half of the sequences are worth
    assert half.subset == "subset 2 of 56587343 posts"
    assert half.source.endswith("3 of 56587343 posts, 2 of 1660820 users; 0.5 of the records")
    assert replace(whole, expected=3).subset == ""
    assert replace(half, expected=3).subset == "subset 2 of 3 posts"


@pytest.mark.parametrize(
    ("size", "kind"), [(128, np.int8), (129, np.int16), (32768, np.int16), (32769, np.int32)]
)
def test_ids_are_as_narrow_as_the_vocabulary_allows(size: int, kind: type, words: Path) -> None:
    last = {**VOCABULARY, "vocab": {**VOCABULARY["vocab"], "question": size - 1}, "size": size}  # type: ignore[dict-item]
    (words / "reddit/data/reddit_vocab.json").write_text(json.dumps(last))
    put(words, "reddit", train=content({"a": post([["question"] * 10], [["question"] * 9 + ["<PAD>"]])}))
    made = posts(words, classes=size)
    assert made.train_x.dtype == made.train_y.dtype == kind
    assert made.train_x.tolist() == [[size - 1] * 10]
    assert made.train_y.tolist() == [[size - 1] * 9 + [-1]]


def test_sequences_without_targets_are_left_out(words: Path) -> None:
    pads = ["<PAD>"] * 10
    full = [*POST[0][:9], "<PAD>"]
    put(words, "reddit", train=content({"a": post([full, ["<EOS>", *pads[1:]]], [NEXT[0], pads])}))
    assert posts(words).train_x.tolist() == [[2, 4, 5, 6, 7, 8, 4, 5, 9, 0]]
    put(words, "reddit", train=content({"a": post([pads], [pads])}))
    with pytest.raises(DataError, match=r"all.json: user 'a': no training records: make it again"):
        posts(words)


def test_posts_counted_over_all_parts(words: Path) -> None:
    """LEAF's Reddit files carry num_samples of before the split."""
    made = content({"a": post()})
    put(words, "reddit", train={**made, "num_samples": [5]})
    assert len(posts(words).train_y) == 2
    put(words, "reddit", train={**made, "num_samples": [0]})
    with pytest.raises(DataError, match="user 'a': num_samples says 0, found 1"):
        posts(words)


def test_clients_by_counts(words: Path) -> None:
    """So many sequences of each client, whatever it has; what is left out makes it a subset."""
    users = {f"u{i}": post() for i in range(8)}
    put(words, "reddit", train=content(users), test=content(users))
    made = posts(words, clients=3, train_per_client=3, test_per_client=2)
    assert made.owners is not None
    assert made.test_owners is not None
    assert np.bincount(made.owners).tolist() == [3, 3, 3]
    assert np.bincount(made.test_owners).tolist() == [2, 2, 2]
    assert (len(made.train_x), len(made.test_y)) == (9, 6)
    assert made.counted == (round(16 * 15 / 32), "posts")
    assert "15 of 32 sequences" in made.source
    again = posts(words, clients=3, train_per_client=3, test_per_client=2)
    assert np.array_equal(again.train_x, made.train_x)
    whole = posts(words, clients=3, train_per_client=3)
    assert len(whole.test_y) == 16
    for key in ("train_per_client", "test_per_client"):
        with pytest.raises(DataError, match=rf"dataset.{key}=5: client \d has 4 sequences; expected at most"):
            posts(words, clients=3, **{key: 5})


def test_users_are_dealt_in_turn(words: Path) -> None:
    put(
        words,
        "reddit",
        train=content({f"u{i}": post() for i in range(8)}),
        test=content({"u3": post(), "z": post()}),
    )
    natural, made = posts(words), posts(words, clients=3)
    assert natural.owners is not None
    assert made.owners is not None
    assert made.test_owners is not None
    hands = [set(made.owners[natural.owners == user].tolist()) for user in range(8)]
    assert all(len(hand) == 1 for hand in hands)
    assert sorted(np.bincount(made.owners).tolist()) == [4, 6, 6]  # 2, 3, 3 users of 2 sequences
    assert made.test_owners.tolist() == [*hands[3], *hands[3], -1, -1]
    assert posts(words, clients=3).owners.tolist() == made.owners.tolist()  # type: ignore[union-attr]
    assert any(posts(words, clients=3, seed=s).owners.tolist() != made.owners.tolist() for s in (1, 2))  # type: ignore[union-attr]
    for clients in (0, 9):
        with pytest.raises(DataError, match=rf"dataset.clients={clients}: expected 1..8, for so many users"):
            posts(words, clients=clients)


def edited(change: Callable[[Content], None]) -> Content:
    made = content({"w": ([WHITE, INK], [1, 2]), "v": ([INK], [3])})
    change(made)
    return made


WHOLE = json.dumps(edited(lambda made: None))
NAN = WHOLE.replace("0.0,", "NaN,", 1)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("", r"expected JSON, found an empty file"),
        (" \n", r"expected JSON, found an empty file"),
        (WHOLE.encode().replace(b'"w"', b'"\xff"'), r"expected UTF-8 text, found byte 0xff at \d+"),
        (WHOLE.encode("utf-16"), r"expected UTF-8 text, found byte 0xff at 0"),
        (WHOLE[: len(WHOLE) // 2], r"not JSON, or cut short \(.*\)"),
        ("[" * 100_000, r"not JSON, or cut short \(.*\)"),
        ("[]", r"expected a JSON object, found a list"),
        (
            edited(lambda made: made.pop("users")),
            r"expected LEAF's users, num_samples and user_data, found no users",
        ),
        (
            edited(lambda made: made.pop("user_data")),
            r"expected LEAF's users, num_samples and user_data, found no user_data",
        ),
        (
            edited(lambda made: made.pop("num_samples")),
            r"expected LEAF's users, num_samples and user_data, found no num_samples",
        ),
        (edited(lambda made: made["num_samples"].pop()), r"2 users with 1 num_samples"),
        (
            edited(lambda made: made["num_samples"].__setitem__(0, 3)),
            r"user 'w': num_samples says 3, found 2",
        ),
        (
            edited(lambda made: made["num_samples"].__setitem__(0, 1)),
            r"user 'w': num_samples says 1, found 2",
        ),
        (
            edited(lambda made: made["num_samples"].__setitem__(0, None)),
            r"user 'w': num_samples says None, found 2",
        ),
        (
            edited(lambda made: made["users"].__setitem__(0, "v")),
            r"expected users, each named once, found 2 names",
        ),
        (content({}), r"expected users, each named once, found 0 names"),
        (edited(lambda made: made["user_data"].pop("v")), r"user 'v': missing in user_data"),
        (
            edited(lambda made: (made["users"].pop(), made["num_samples"].pop())),
            r"user 'v' of user_data is missing in users",
        ),
        (edited(lambda made: made["user_data"]["w"]["x"].pop()), r"user 'w': 1 x with 2 y"),
        (edited(lambda made: made["user_data"]["w"].pop("y")), r"user 'w': expected lists x and y"),
        (edited(lambda made: made["user_data"].__setitem__("w", 7)), r"user 'w': expected lists x and y"),
        (content({"w": ([], [])}), r"user 'w': no training records"),
        (content({"w": ([WHITE, WHITE[1:]], [1, 1])}), r"user 'w': expected images of 784 pixels, found 783"),
        (content({"w": ([7], [1])}), r"user 'w': expected images of 784 pixels, found int"),
        (
            content({"w": ([[0.001] * 784], [1])}),
            r"user 'w': expected grey levels k/255 in 0..1, found 0.001",
        ),
        (
            content({"w": ([[*WHITE[1:], 256 / 255]], [1])}),
            r"user 'w': expected grey levels k/255 in 0..1, found 1.00392",
        ),
        (content({"w": ([[*WHITE[1:], {}]], [1])}), r"user 'w': .*not 'dict'"),
        (content({"w": ([[*WHITE[1:], 10**400]], [1])}), r"user 'w': int too large to convert to float"),
        (NAN, r"user 'w': expected grey levels k/255 in 0..1, found nan"),
        (content({"w": ([WHITE], [62])}), r"user 'w': expected labels 0..61, found 62"),
        (content({"w": ([WHITE], [1.5])}), r"user 'w': expected labels 0..61, found 1.5"),
    ],
)
def test_bad_files_are_named(train: Content | str | bytes, message: str, tmp_path: Path) -> None:
    put(tmp_path, "femnist", train=train, test=content({"w": ([WHITE], [1])}))
    with pytest.raises(
        DataError,
        match=rf"femnist/data/train/all.json: {message}: make it again \(in data/femnist of a clone",
    ) as caught:
        images(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "load", "record"),
    [("femnist", images, ([WHITE], [1])), ("shakespeare", plays, ([LINE], ["u"])), ("reddit", posts, post())],
)
@pytest.mark.parametrize("part", ["train", "test"])
def test_a_user_in_two_files_of_a_part_is_refused(
    part: str, name: str, load: Callable[[Path], Records], record: tuple[list[Any], list[Any]], tmp_path: Path
) -> None:
    """A copied file would double its records; a test file among the training files would leak what
    it holds.
    """
    for key in ("train__a", "test__a"):
        put(tmp_path, name, **{key: content({"one": record, "two": record})})
    (tmp_path / name / "data/reddit_vocab.json").write_text(json.dumps(VOCABULARY))
    assert load(tmp_path).train_y.shape[0] in (2, 4)  # in a file of each part: as LEAF splits by sample
    put(tmp_path, name, **{f"{part}__b": content({"three": record})})
    load(tmp_path)
    put(tmp_path, name, **{f"{part}__c": content({"four": record, "two": record})})
    told = (
        rf"data/{part}/c.json: user 'two' is in .*data/{part}/a.json already, expected one file in {part} for"
        r" each user: remove the file"
    )
    with pytest.raises(DataError, match=told) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_what_leafs_split_leaves_behind_is_no_error(tmp_path: Path) -> None:
    """Users too small to split are off the list but stay in user_data, empty; names that look like
    fields are names.
    """
    made = content({"x": ([WHITE], [1]), "y": ([INK], [2])})
    made["user_data"]["tiny"] = {"x": [], "y": []}
    put(tmp_path, "femnist", train={**made, "hierarchies": ["a", "b"]}, test=made)
    assert images(tmp_path).train_y.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "load", "steps"),
    [
        (
            "femnist",
            images,
            "run ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample, then copy its data/train and data/test to",
        ),
        ("shakespeare", plays, "run ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.8, then copy"),
        (
            "reddit",
            posts,
            (
                "download the data named in https://github.com/TalwalkarLab/leaf/tree/master/data/reddit and"
                " put its train and test"
            ),
        ),
    ],
)
def test_missing_folders(name: str, load: Callable[[Path], Records], steps: str, tmp_path: Path) -> None:
    (tmp_path / name / "data").mkdir(parents=True)
    (tmp_path / name / "data/reddit_vocab.json").write_text(json.dumps(VOCABULARY))
    for part in ("train", "test"):
        expected = (
            rf"no file .*{name}/data/{part}/\*.json: expected .*{name}/data/train/\*.json and"
            rf" .*{name}/data/test/\*.json: "
        )
        with pytest.raises(DataError, match=expected) as caught:
            load(tmp_path)
        assert steps in str(caught.value)
        assert f"to {tmp_path / name / 'data'}" in str(
            caught.value
        ) or f"in {tmp_path / name / 'data'}" in str(caught.value)
        assert str(caught.value).endswith(f"or set dataset.root or DPFL_DATA_DIR to where {name}/ is")
        assert "\n" not in str(caught.value)
        x_y = {"femnist": ([WHITE], [1]), "shakespeare": ([LINE], ["u"]), "reddit": post()}[name]
        put(tmp_path, name, train=content({"a": x_y}))
    (tmp_path / name / "data/test/all.json").mkdir(parents=True)
    with pytest.raises(DataError, match=r"test/all.json: cannot be read \(Is a directory\)"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([LINE[1:]], ["u"], "expected x of 80 characters and y of 1, found 79"),
        ([LINE], ["us"], "expected x of 80 characters and y of 1, found 2"),
        ([LINE], [3], "expected x of 80 characters and y of 1, found a int"),
        ([LINE, LINE], ["u"], "2 x with 1 y"),
    ],
)
def test_bad_lines(x: list[Any], y: list[Any], message: str, tmp_path: Path) -> None:
    put(tmp_path, "shakespeare", train=content({"HAMLET": (x, y)}))
    with pytest.raises(DataError, match=f"user 'HAMLET': {message}: make it again"):
        plays(tmp_path)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([POST], [NEXT], "expected posts x with as many sequences of y's target_tokens"),
        (
            [POST],
            [{"target_tokens": NEXT[1:]}],
            "expected posts x with as many sequences of y's target_tokens",
        ),
        ([POST], [{"score": 1}], "expected posts x with as many sequences of y's target_tokens"),
        ([[["to"] * 9]], [{"target_tokens": [["be"] * 10]}], "expected sequences of 10 tokens, found 9"),
        ([["to"]], [{"target_tokens": [["be"] * 10]}], "expected sequences of 10 tokens, found 'to'"),
        ([[["to"] * 10]], [{"target_tokens": [[["be"]] * 10]}], "unhashable type: 'list'"),
        ([POST], [], "1 x with 0 y"),
    ],
)
def test_bad_posts(x: list[Any], y: list[Any], message: str, words: Path) -> None:
    put(words, "reddit", train=content({"a": (x, y)}))
    with pytest.raises(DataError, match=f"user 'a': {message}: make it again"):
        posts(words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"no file .*words.json: expected LEAF's vocabulary as JSON or .pck"),
        ("", "expected JSON, found an empty file"),
        ('{"vocab": ', r"not JSON, or cut short \(.*\)"),
        ('{"vocab": {"\xff": 1}}', r"expected UTF-8 text, found byte 0xff at 12"),
        ("{}", "expected vocab, and whole numbers size, unk_symbol, pad_symbol"),
        (
            json.dumps(VOCABULARY | {"size": "14"}),
            "expected vocab, and whole numbers size, unk_symbol, pad_symbol",
        ),
        (json.dumps(VOCABULARY | {"size": 11}), r"expected ids 0..10, the unknown's not the pad's"),
        (json.dumps(VOCABULARY | {"pad_symbol": 1}), r"expected ids 0..13, the unknown's not the pad's"),
    ],
)
def test_bad_vocabularies(text: str | None, message: str, words: Path) -> None:
    file = words / "words.json"
    if text is not None:
        file.write_text(text, encoding="latin1")
    with pytest.raises(
        DataError,
        match=message + r": run LEAF's data/reddit/build_vocab.py --data-dir .*set dataset.vocabulary",
    ) as caught:
        posts(words, vocabulary=str(file))
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_vocabulary_may_be_the_pickle_that_leaf_writes(words: Path) -> None:
    """Which is not run."""
    expected, folder = posts(words), words / "reddit/data"
    (folder / "reddit_vocab.json").unlink()
    (folder / "reddit_vocab.pck").write_bytes(pickle.dumps(VOCABULARY))
    found = posts(words)
    assert np.array_equal(found.train_x, expected.train_x)
    assert np.array_equal(found.train_y, expected.train_y)
    for content in (
        f"(S'touch {words / 'ran'}'\nios\nsystem\n.".encode(),
        pickle.dumps([1]),
        pickle.dumps(VOCABULARY)[:40],
    ):
        (folder / "reddit_vocab.pck").write_bytes(content)
        with pytest.raises(
            DataError,
            match=r"reddit_vocab.pck: (cannot read it|expected a dictionary).*: run LEAF's data/reddit",
        ):
            posts(words)
    assert not (words / "ran").exists()


def test_the_yaml_agrees_with_the_vocabulary(words: Path) -> None:
    with pytest.raises(
        DataError, match=r"dataset.classes=10000: the vocabulary says 14: set dataset.classes=14"
    ):
        posts(words, classes=10000)
    with pytest.raises(DataError, match=r"dataset.unknown=0: the vocabulary says 1: set dataset.unknown=1"):
        posts(words, unknown=0)


def real(name: str) -> Path:
    """The folder of real files, or a skip that says how to get them."""
    root = os.environ.get("DPFL_DATA_DIR")
    if root is None or not (Path(root) / name / "data/train").is_dir():
        pytest.skip(f"real data: set DPFL_DATA_DIR to a folder with {name}/data/train and {name}/data/test")
    return Path(root) / name / "data"


def raw(folder: Path, part: str) -> Content:
    made: Content = json.loads(next((folder / part).glob("*.json")).read_text())
    return made


def test_real_femnist() -> None:
    folder = real("femnist")
    made = images(None)
    assert made.train_x.shape == (665, 1, 28, 28)
    assert made.test_x.shape == (76, 1, 28, 28)
    assert made.subset == "subset 741 of 805263"
    assert made.owners is not None
    assert made.test_owners is not None
    assert np.bincount(made.owners).tolist() == [150, 92, 157, 45, 158, 63]
    assert np.bincount(made.test_owners).tolist() == [17, 11, 18, 5, 18, 7]
    digits, letters = np.split(np.bincount(made.train_y, minlength=62), [10])
    assert digits.tolist() == [44, 45, 52, 48, 40, 43, 50, 48, 50, 47]
    assert letters.tolist() == [int(n) for n in "5435544453455443444443443434434443424444332444533434"]
    assert np.bincount(made.test_y, minlength=62)[:10].tolist() == [7, 8, 4, 7, 6, 6, 5, 6, 3, 7]
    levels = np.bincount(made.train_x.ravel(), minlength=256)
    assert levels[[0, 253, 254, 255]].tolist() == [3448, 7136, 10077, 457928]  # mostly white paper
    source = raw(folder, "train")
    there = np.concatenate([source["user_data"][name]["x"] for name in source["users"]])
    assert (made.train_x.reshape(665, 784) / 255 == there).all()
    sampled = images(None, 0.05)
    assert (len(sampled.train_y) + len(sampled.test_y), sampled.subset) == (37, "subset 37 of 805263")


def test_real_shakespeare() -> None:
    folder = real("shakespeare")
    made = plays(None)
    assert made.train_x.shape == (43840, 80)
    assert made.test_x.shape == (4195, 80)
    assert made.subset == "subset 48035 of 4226158"
    assert made.owners is not None
    assert made.test_owners is not None
    source = [raw(folder, part) for part in ("train", "test")]
    assert np.bincount(made.owners).tolist() == source[0]["num_samples"]
    assert np.bincount(made.test_owners, minlength=151).tolist() == source[1]["num_samples"]
    assert (made.owners.max() + 1, len(np.unique(made.test_owners))) == (151, 139)
    counts = np.bincount(made.train_y, minlength=81)
    assert dict(zip(" etoa", counts[[shakespeare.LETTERS.index(c) for c in " etoa"]].tolist(),
    strict=True)) == {
        " ": 8282, "e": 4064, "t": 2787, "o": 2872, "a": 2338,
    }  # fmt: skip
    assert counts[80] == 0
    assert ((made.train_x == 80).sum(), (made.test_x == 80).sum()) == (
        4,
        0,
    )  # a dollar sign is not among LEAF's letters
    read = ["".join((shakespeare.LETTERS + "$")[i] for i in row) for row in made.train_x[-5:]]
    assert read == source[0]["user_data"][source[0]["users"][-1]]["x"][-5:]


def test_real_reddit() -> None:
    folder = real("reddit")
    made = posts(None, classes=10000, clients=3)
    assert made.train_x.shape == made.train_y.shape == (20761, 10)
    assert made.test_x.shape == (3198, 10)
    assert made.train_x.dtype == made.train_y.dtype == np.int16
    assert made.subset == "subset 6170 of 56587343 posts"
    assert "6170 of 56587343 posts, 184 of 1660820 users" in made.source
    assert made.owners is not None
    assert np.bincount(made.owners).tolist() == [6238, 7914, 6609]
    natural = posts(None, classes=10000).owners
    assert natural is not None
    source = raw(folder, "train")
    sizes = [sum(map(len, source["user_data"][name]["x"])) for name in source["users"]]
    assert np.bincount(natural).tolist() == sizes
    # pads; unknown words; ends, one a post; the commonest words
    assert [(made.train_y == i).sum() for i in (-1, 0, 1, 3, 4, 5)] == [25057, 0, 1544, 5414, 15111, 5917]
    assert [(made.test_y == i).sum() for i in (-1, 0, 1, 3, 4, 5)] == [3561, 0, 248, 756, 2358, 949]
    assert [(made.train_x == i).sum() for i in (0, 1, 2)] == [25057, 1544, 5414]
    inside = made.train_y[:, :-1] >= 0  # within a sequence a target is the next input
    assert (made.train_y[:, :-1][inside] == made.train_x[:, 1:][inside]).mean() > 0.97


@pytest.mark.slow
def test_one_users_lists_at_a_time() -> None:
    """Against the whole file's numbers as Python's, which on the whole FEMNIST are gigabytes."""
    file = next((real("femnist") / "train").glob("*.json"))
    tracemalloc.start()
    try:
        images(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        kept = json.loads(file.read_text())
        plain = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert kept["users"]
    assert peak < 0.7 * plain


@pytest.mark.parametrize("copied", [True, False])
def test_a_test_file_that_is_a_copy_of_train(copied: bool, tmp_path: Path) -> None:
    def written(first: int) -> Content:
        return content({"a": ([[(first + k) / 255] * 784 for k in range(12)], [1] * 12)})

    put(tmp_path, "femnist", train=written(0), test=written(0 if copied else 20))
    if copied:
        with pytest.raises(DataError, match=r"test/all.json: the same bytes as .*train/all.json"):
            images(tmp_path)
    else:
        assert len(images(tmp_path).test_y) == 12
