"""A table of one's own as text: column names in the first line, then one record a line."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dpfl_bench.checks import nearest
from dpfl_bench.checks.ranges import Range
from dpfl_bench.data import own_file
from dpfl_bench.data.own_file import FILE, Part, found, refuse, unknown
from dpfl_bench.data.records import Records

if TYPE_CHECKING:
    import pandas as pd

SOURCE = own_file.source("CSV file")
COLUMN = Range(bool, "the name of a column; say dataset.target=COLUMN")
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t"}
SEPARATOR = Range.of(*SEPARATORS)


def load(
    *,
    path: Annotated[str, FILE],
    target: Annotated[str, COLUMN],
    test_path: str | None,
    client: str | None,
    features: list[str] | None,
    separator: Annotated[str, SEPARATOR],
    classes: int | None,
) -> Records:
    """float32 records of the columns `features` (null: all but `target` and `client`). `target` is
    what is predicted: classes, or numbers where `classes` is 0. `client` names each record's
    client, for partition=natural.
    """
    files = [found(each) for each in (path, test_path) if each]
    where = f"CSV: {', '.join(map(str, files))}"
    between = SEPARATORS[separator]
    header = _header(files[0], between)
    columns = _chosen(files[0], header, target, client, features)
    parts = [_part(file, header, between, columns, target, client) for file in files]
    return own_file.records(parts, where, f"dataset.target={target}", classes)


def _header(file: Path, separator: str) -> list[str]:
    """The names in the first line."""
    names = _first_line(file, separator)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        refuse(file, f"expected columns of different names in the first line, {twice!r} is there twice")
    if all(_is_number(name) for name in names):
        there = "numbers" if names else "nothing"
        refuse(file, f"expected column names in the first line, found {there}", "put names above the columns")
    return names


def _first_line(file: Path, separator: str) -> list[str]:
    import bz2
    import gzip

    opened: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(file.suffix, open)
    try:
        with opened(file, "rt", encoding="utf-8-sig", newline="") as stream:
            return [name.strip() for name in next(csv.reader(stream, delimiter=separator), [])]
    except (UnicodeDecodeError, csv.Error) as error:
        refuse(file, f"expected text in UTF-8 ({error})")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _chosen(
    file: Path, header: list[str], target: str, client: str | None, features: list[Any] | None
) -> list[str]:
    """The columns that are features."""
    asked = [("target", target), *([("client", client)] if client else [])]
    asked += [("features", str(name)) for name in features or []]
    for key, name in asked:
        if name not in header:
            near = nearest.choice(name, header)
            meant = nearest.did_you_mean(near and f"dataset.{key}={near}")
            unknown(file, f"dataset.{key}", name, meant, header)
    kept = [str(name) for name in features] if features else [n for n in header if n not in (target, client)]
    if target in kept or client in kept:
        refuse(file, f"dataset.features={features}: expected neither the target nor the client among them")
    if target == client or not kept:
        refuse(file, "expected a column of features beside the target and the client")
    return kept


def _part(
    file: Path, header: list[str], separator: str, features: list[str], target: str, client: str | None
) -> Part:
    table = _table(file, header, separator, [name for name in (target, client) if name])
    missing = next((name for name in header if name not in table.columns), None)
    if missing is not None:  # of a test file
        refuse(file, f"expected the training file's columns, {missing!r} is missing")
    for name in (target, client):
        if name and (blank := (table[name].isna() | (table[name].str.strip() == "")).to_numpy()).any():
            refuse(file, f"column {name!r} is empty at {_record(blank)}")
    columns = [_column(file, table[name]) for name in features]
    words = [None if name is None else table[name].str.strip().to_numpy(str) for name in (target, client)]
    assert words[0] is not None
    return Part(np.stack(columns, axis=1), words[0], words[1])


def _table(file: Path, header: list[str], separator: str, words: list[str]) -> pd.DataFrame:
    """What pandas reads. It says nothing of a line with too many fields but a warning."""
    import pandas as pd

    packed: Any = {".gz": "gzip", ".bz2": "bz2"}.get(file.suffix)
    own = _header(file, separator)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return pd.read_csv(
                file,
                sep=separator,
                header=0,
                names=own,
                index_col=False,
                dtype=dict.fromkeys(words, str),
                keep_default_na=False,
                skipinitialspace=True,
                low_memory=False,
                encoding="utf-8-sig",
                compression=packed,
            )
    except (ValueError, Warning, OverflowError) as error:
        reason = " ".join(str(error).split())
        refuse(file, f"expected {len(own)} fields in each line, separated by {separator!r} ({reason})")


def _column(file: Path, column: pd.Series) -> np.ndarray:
    """A feature's numbers; the first that is none is told."""
    import pandas as pd

    numbers: np.ndarray = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    if (bad := ~np.isfinite(numbers)).any():
        found = column.iloc[int(bad.argmax())]
        remedy = "correct it, or leave the column out (dataset.features=[...])"
        refuse(file, f"column {column.name!r}: expected a number, found {found!r} at {_record(bad)}", remedy)
    if (large := np.abs(numbers) > np.finfo(np.float32).max).any():
        refuse(file, f"column {column.name!r}: expected a float32 number at {_record(large)}")
    return np.asarray(numbers, np.float32)


def _record(bad: np.ndarray) -> str:
    """Counted from 1, without the line of names."""
    return f"record {int(bad.argmax()) + 1}"
