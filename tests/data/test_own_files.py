"""A CSV file and an .npz file of one's own: what is read, and what is refused in one line."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command import QUICK, call, read

from dpfl_bench.data import contents, csv_table, npz
from dpfl_bench.data.records import Records

TABLE = "age,dose,ward,ill\n" + "".join(
    f"{i},{i % 7}.5,{'NA' if i % 3 else 'B'},{i % 2}\n" for i in range(30)
)
SHORT = ("rounds=1", "local_steps=1", "engine.workers=1", *QUICK)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(TABLE)
    return Path("mine.csv")


KEYS = {"test_path": None, "client": None, "features": None, "separator": "comma", "classes": None}


def of_csv(text: str | bytes, name: str = "mine.csv", **keys: Any) -> Records:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return loaded(name, **keys)


def loaded(path: Path | str, target: str = "ill", **keys: Any) -> Records:
    return csv_table.load(**{**KEYS, "path": str(path), "target": target, **keys})


def of_npz(**arrays: Any) -> Records:
    np.savez("mine.npz", **arrays)
    return npz.load(path="mine.npz", classes=None)


# CSV


def test_columns_labels_and_clients_of_a_table(table: Path) -> None:
    records = loaded(table, "ill", client="ward")
    assert (records.train_x.shape, records.train_x.dtype, records.classes) == ((30, 2), np.float32, 2)
    assert records.train_x[8].tolist() == [8.0, 1.5]
    assert records.train_y.tolist() == [0, 1] * 15
    assert records.owners is not None
    assert records.owners[:4].tolist() == [0, 1, 1, 0]  # B before NA, which is a name
    assert len(records.test_y) == 0
    chosen = loaded(table, "ward", features=["dose", "age"])
    assert chosen.train_x[8].tolist() == [1.5, 8.0]
    assert chosen.train_y[:4].tolist() == [0, 1, 1, 0]


def test_numbers_are_sorted_as_numbers_and_predicted_as_such(table: Path) -> None:
    text = "a,ill\n" + "".join(f"{i},{(9, 10)[i % 2]}\n" for i in range(8))
    assert of_csv(text, "numbers.csv").train_y[:2].tolist() == [0, 1]
    regression = loaded(table, "dose", features=["age"], classes=0)
    assert (regression.classes, regression.train_y.dtype) == (0, np.float32)
    assert regression.train_y[8] == 1.5


def test_a_test_file_has_the_labels_and_clients_of_the_training_file(table: Path) -> None:
    Path("test.csv").write_text("ill,ward,dose,age\n1,NA,2.5,77\n")
    records = loaded(table, "ill", test_path="test.csv", client="ward")
    assert records.test_x.tolist() == [[77.0, 2.5]]
    assert (records.test_y.tolist(), records.test_owners.tolist()) == ([1], [1])  # type: ignore[union-attr]
    Path("test.csv").write_text("ill,ward,dose,age\n1,C,2.5,77\n")
    with pytest.raises(ValueError, match="client C has test records and no training records"):
        loaded(table, "ill", test_path="test.csv", client="ward")


def test_other_ways_to_write_a_table(table: Path) -> None:
    plain = loaded(table, "ill", features=["age", "dose"])
    spaced = "\ufeff" + TABLE.replace(",", "; ").replace("\n", "\r\n")
    for again in (
        of_csv(spaced, separator="semicolon", features=["age", "dose"]),
        of_csv(gzip.compress(TABLE.encode()), "mine.csv.gz", features=["age", "dose"]),
    ):
        assert np.array_equal(again.train_x, plain.train_x)
        assert np.array_equal(again.train_y, plain.train_y)


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        (
            TABLE,
            {"target": "il"},
            r"dataset.target=il: mine.csv has age, dose, ward, ill; did you mean dataset",
        ),
        (TABLE, {"client": "war"}, "dataset.client=war: .* did you mean dataset.client=ward"),
        (TABLE, {"features": ["agee"]}, "dataset.features=agee: .* did you mean dataset.features=age?"),
        (TABLE, {"features": ["age", "ill"]}, "expected neither the target nor the client among them"),
        (TABLE, {}, "column 'ward': expected a number, found 'B' at record 1: .*dataset.features"),
        (TABLE, {"target": "dose", "client": "ward"}, "found 0.5, 1.5, .*no classes: .*dataset.classes=0"),
        (TABLE, {"target": "age", "client": "ward"}, "30 values among 30 records are no classes"),
        (
            TABLE,
            {"classes": 0, "target": "ward", "features": ["age"]},
            "expected finite numbers .*found B, NA",
        ),
        ("a,ill\n1,0\nnan,1\n", {}, "column 'a': expected a number, found .nan. at record 2"),
        ("a,ill\n1,0\n,1\n", {}, "column 'a': expected a number, found '' at record 2"),
        ("a,ill\n1,0\n1e39,1\n", {}, "column 'a': expected a float32 number at record 2"),
        ("a,ill\n1,0\n2,\n", {}, "column 'ill' is empty at record 2"),
        ("a,ill\n1,0\n2\n", {}, "column 'ill' is empty at record 2"),
        ("a,ill\n1,0\n2,1,3\n", {}, "expected 2 fields in each line"),
        ("a,ill\n1,0\n2,0\n", {}, "expected two or more classes, found 0"),
        ("a,ill,ill\n1,0,1\n", {}, "'ill' is there twice"),
        ("1,2\n3,4\n", {"target": "1"}, "expected column names in the first line, found numbers"),
        ("", {"target": "y"}, "expected column names in the first line, found nothing"),
        ("ill\n1\n0\n", {}, "expected a column of features"),
        ("", {}, "expected column names|has ;|has $"),
        (b"a,ill\n\xff\xfe,1\n", {}, "expected"),
        ("a,ill\n", {}, "expected two or more classes"),
    ],
)
def test_a_bad_table_is_refused(text: Any, keys: dict[str, Any], message: str, table: Path) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        of_csv(text, **keys)
    assert "\n" not in str(refused.value)


def test_a_table_is_run_by_its_own_clients(table: Path) -> None:
    given = ("dataset=csv", "dataset.path=mine.csv", "dataset.target=ill", "dataset.client=ward")
    said = call("run", *given, "partition=natural", "clients=2", *SHORT)
    assert said.code == 0, said.err
    origin = read(said.folder, "result.json")["origin"]
    digest = contents._hex(TABLE.encode())
    assert origin["data"] == contents.Contents({"training file": digest}).hash


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("dataset=csv", "dataset.path=null: expected a file; say dataset.path=FILE"),
        ("dataset=npz", "dataset.path=null: expected a file; say dataset.path=FILE"),
        (
            "dataset=csv dataset.path=x.csv",
            "dataset.target=null: expected the name of a column; say dataset.target=COLUMN",
        ),
        (
            "dataset=csv dataset.path=x.csv dataset.target=y partition=natural",
            "partition=natural: expected whose each record is; say dataset.client=COLUMN, or partition=iid",
        ),
        (
            "dataset=csv dataset.path=x.csv dataset.target=y dataset.separator=coma",
            "dataset.separator=coma: expected one of comma, semicolon, tab; did you mean dataset.separator",
        ),
        (
            "dataset=csv dataset.path=x.csv dataset.target=y dataset.classes=0 partition=iid",
            "model=logreg: expected",
        ),
        (
            "dataset=csv dataset.path=x.csv dataset.target=y partition=iid",
            "no file x.csv: put it there, or correct dataset.path",
        ),
    ],
)
def test_what_needs_no_data_is_refused_before_them(words: str, line: str, table: Path) -> None:
    said = call("run", *words.split(), *SHORT)
    assert said.code == 2
    assert said.err.removeprefix("dpfl-bench: ").startswith(line)
    assert not Path("outputs").exists() or not any(Path("outputs/runs").glob("*/result.json"))


# npz


def test_arrays_keep_their_shape(table: Path) -> None:
    x = np.arange(24.0).reshape(4, 2, 3)
    records = of_npz(
        x=x, y=[1, 3, 3, 1], client=["b", "a", "a", "b"], test_x=x[:1], test_y=[3], test_client=["a"]
    )
    assert (records.train_x.shape, records.train_x.dtype) == ((4, 2, 3), np.float32)
    assert (records.train_y.tolist(), records.test_y.tolist()) == ([0, 1, 1, 0], [1])
    assert records.owners is not None
    assert records.owners.tolist() == [1, 0, 0, 1]
    assert records.test_owners is not None
    assert records.test_owners.tolist() == [0]
    images = of_npz(x=np.zeros((4, 1, 2, 2), np.uint8), y=[0, 1, 0, 1])
    assert images.train_x.dtype == np.uint8
    assert of_npz(x=np.zeros((4, 2), np.uint8), y=[0, 1, 0, 1]).train_x.dtype == np.float32


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": [[1.0]], "y": [1]}, "array 'X'; expected x, y, .*did you mean x?"),
        ({"x": [[1.0]]}, "expected the array 'y'; found x"),
        ({"x": [[1.0]], "y": [1], "test_x": [[1.0]]}, "expected the array 'test_y'"),
        ({"x": [1.0], "y": [1]}, r"x has shape \[1\], expected \(records, features\)"),
        ({"x": [[1.0], [2.0]], "y": [1]}, r"y has shape \[1\], expected one for each of 2 records"),
        ({"x": [["a"]], "y": [1]}, "x holds <U1, expected numbers"),
        ({"x": [[1j]], "y": [1]}, "x holds complex128, expected numbers"),
        ({"x": [[1.0]], "y": np.array([None])}, "without objects"),
        ({"x": [[1.0]] * 4, "y": [0, 1, 0, 1], "client": [0, 1]}, "client has shape"),
        ({"x": [[1.0]] * 2, "y": [0.5, 1]}, "no classes: .*dataset.classes=0"),
        ({"x": [[1.0]] * 2, "y": [np.nan, 1]}, "a target is not finite"),
    ],
)
def test_bad_arrays_are_refused(arrays: dict[str, Any], message: str, table: Path) -> None:
    with pytest.raises(ValueError, match=message):
        of_npz(**arrays)


def test_a_feature_that_is_not_finite_is_refused_by_the_run(table: Path) -> None:
    np.savez("mine.npz", x=[[1.0], [np.inf], [2], [3]], y=[0, 1, 0, 1])
    said = call("run", "dataset=npz", "dataset.path=mine.npz", "partition=iid", "clients=2", *SHORT)
    assert said.code == 2
    assert "a training record is not finite" in said.err


def test_arrays_that_unpack_to_more_than_a_machine_holds_are_not_unpacked(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "ALWAYS", 10_000)
    np.savez_compressed("mine.npz", x=np.zeros((10**6, 1)), y=np.zeros(10**6))
    with pytest.raises(ValueError, match=r"expected at most .* bytes once unpacked"):
        npz.load(path="mine.npz", classes=None)
    with zipfile.ZipFile("mine.npz", "w") as packed:
        packed.writestr("x.npy", b"no array")
    with pytest.raises(ValueError, match=r"mine\.npz: expected"):
        npz.load(path="mine.npz", classes=None)
