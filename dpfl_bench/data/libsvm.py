"""Classification data in LIBSVM's text format, one record a line: label index:value index:value
...
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpfl_bench.data import source as sources
from dpfl_bench.data.download import fetch, file_checksum
from dpfl_bench.data.files import check_unpacked
from dpfl_bench.data.folder import data_root, fetch_command
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.source import FETCH, Dataset, Presence, Source


def load(
    *,
    name: str,
    root: str | None,
    path: str | None,
    test_path: str | None,
    features: int | None,
    url: str | None,
    sha256: str | None,
    test_url: str | None,
    test_sha256: str | None,
    verify: bool,
    expected: int | None,
) -> Records:
    """Dense float32 records; the labels' k values become 0..k-1 in sorted order.

    The file is `path`, else ROOT/libsvm/NAME, downloaded from `url` when absent. The test file is
    `test_path`, else ROOT/libsvm/NAME.t where a `test_url` says that there is one. `features` is
    needed where the last columns are empty in the file; `expected` counts the records of both
    files. verify=false takes files that do not match their sha256.
    """
    folder = data_root(root) / "libsvm"
    steps = remedy(name, data_root(root), test_url is not None)
    files = [_find(path, folder / name, url, sha256 if verify else None, steps)]
    if test_path or test_url:
        files.append(_find(test_path, folder / f"{name}.t", test_url, test_sha256 if verify else None, steps))
    xs, ys, classes = _read(files, features)
    test_x, test_y = (xs[1], ys[1]) if len(files) == 2 else (xs[0][:0], ys[0][:0])
    source = f"LIBSVM text: {', '.join(map(str, files))}"
    return Records(xs[0], ys[0], test_x, test_y, None, classes, source, expected)


def remedy(name: str, root: Path, test: bool) -> str:
    """How to get the files that can be downloaded."""
    names = f"{name} and {name}.t" if test else name
    return f"go online and run `{fetch_command(name, root)}`, or put {names} into {root / 'libsvm'} yourself"


def _find(path: str | None, default: Path, url: str | None, sha256: str | None, steps: str) -> Path:
    """The file: where the user says, else in the data folder, else from the network; checked
    against `sha256`.
    """
    file = Path(path).expanduser() if path else default
    if not file.is_file():
        if path or url is None:
            raise DataError(
                f"no file {file}: put it there (LIBSVM text), or set dataset.path, dataset.root or"
                " DPFL_DATA_DIR"
            )
        return fetch(url, file, sha256, steps)
    if sha256 is not None and (digest := file_checksum(file)) != sha256:
        again = "correct dataset.path" if path else f"delete it, then {steps}"
        raise DataError(
            f"{file}: sha256 {digest}, expected {sha256}: {again}, or set dataset.verify=false to take it as"
            " it is"
        )
    return file


MOST_NUMBERS = 4 * 10**9  # 16 GB as float32


def _read(files: list[Path], features: int | None) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Features (n, d) and labels (n,) of each file, and the number of classes."""
    from sklearn.datasets import load_svmlight_files

    names = ", ".join(str(file) for file in files)
    for file in files:
        check_unpacked(file, "replace the file")
    # together, for as many features. Indices begin at 1: were the files asked, one record could
    # move everybody's features by one
    try:
        parts = load_svmlight_files(
            [str(file) for file in files], n_features=features, dtype=np.float32, zero_based=False
        )
    except (ValueError, OSError, OverflowError, MemoryError, EOFError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{names}: expected LIBSVM text, indices from 1 ({reason}): replace the file, or correct"
            " dataset.features"
        ) from error
    records, width = sum(len(y) for y in parts[1::2]), parts[0].shape[1]
    if records * width > MOST_NUMBERS:
        raise DataError(
            f"{names}: {records} records with indices up to {width} are {records * width} numbers, expected"
            f" at most {MOST_NUMBERS}: correct the indices, or say dataset.features"
        )
    values = np.unique(np.concatenate(parts[1::2]))
    if len(values) < 2 or (values != np.round(values)).any():
        shown = ", ".join(f"{value:g}" for value in values[:5])
        raise DataError(
            f"{names}: expected two or more whole-number labels, found {shown}: use a classification file"
        )
    labels = [np.searchsorted(values, y).astype(np.int64) for y in parts[1::2]]
    return [x.toarray() for x in parts[0::2]], labels, len(values)


# what is known without loading


def _files(dataset: Dataset) -> list[Path]:
    """The training file, and the test file where there is one."""
    folder, name = data_root(dataset.get("root")) / "libsvm", dataset.get("name")
    files = [(dataset.get("path"), folder / f"{name}")]
    if dataset.get("test_path") or dataset.get("test_url"):
        files.append((dataset.get("test_path"), folder / f"{name}.t"))
    return list(dict.fromkeys(Path(path).expanduser() if path else default for path, default in files))


def _presence(dataset: Dataset) -> Presence:
    files = _files(dataset)
    missing = tuple(str(file) for file in files if not file.is_file())
    return Presence(files[0].parent, sources.existing(files), missing)


def _read_files(dataset: Dataset) -> dict[str, Path]:
    return dict(zip(("training file", "test file"), _files(dataset), strict=False))


def _checksums(dataset: Dataset) -> dict[Path, str | None]:
    keys = ("sha256", "test_sha256") if dataset.get("verify") else ()
    sums = [dataset.get(key) for key in keys] or [None, None]
    return dict(zip(_files(dataset), sums, strict=False))


def _downloads(dataset: Dataset) -> bool:
    return bool(dataset.get("url")) and not dataset.get("path")


def _offline(dataset: Dataset) -> Dataset:
    """`load` has no key against downloading, so what is missing is refused here."""
    missing = _presence(dataset).missing
    if missing and dataset.get("url"):
        name = str(dataset["name"])
        steps = remedy(name, data_root(dataset.get("root")), bool(dataset.get("test_url")))
        raise DataError(f"{name}: no file {', '.join(missing)}: {steps}")
    return dataset


SOURCE = Source(
    how=lambda dataset: FETCH if dataset.get("url") else "your own file",
    presence=_presence,
    files=_read_files,
    checksums=_checksums,
    downloads=_downloads,
    remedy=lambda dataset: "put it there, or set dataset.path, dataset.root or DPFL_DATA_DIR",
    offline=_offline,
)
