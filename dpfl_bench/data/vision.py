"""MNIST and Fashion-MNIST: 60000 training and 10000 test images, 28x28, 10 classes; read by torchvision."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.root import data_root
from dpfl_bench.data.torchvision_import import import_torchvision

_CLASSES = {"mnist": "MNIST", "fashionmnist": "FashionMNIST"}
_FILES = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
_UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, AssertionError)


def load(*, name: str, root: str | None, download: bool) -> Records:
    """Images as uint8 (n, 1, 28, 28). name: MNIST or FashionMNIST (any case, with or without an underscore)."""
    kind = _CLASSES.get(name.replace("_", "").lower())
    if kind is None:
        raise ValueError(f"dataset.name={name}: expected one of {', '.join(_CLASSES.values())}")
    folder = data_root(root)
    raw = folder / kind / "raw"
    missing = [file for file in _FILES if not (raw / file).is_file()]
    if missing and not download:
        raise DataError(f"{kind}: {raw} lacks {', '.join(missing)}: {_remedy(raw)}, or set dataset.download=true")
    source = getattr(import_torchvision().datasets, kind)
    if missing:
        _download(source, kind, folder)
    try:
        train, test = (source(str(folder), train=part, download=False) for part in (True, False))
        train_x, test_x = (np.ascontiguousarray(part.data.numpy()[:, None]) for part in (train, test))
        train_y, test_y = (part.targets.numpy().astype(np.int64) for part in (train, test))
    except _UNREADABLE as error:
        raise DataError(f"{kind}: cannot read {raw} ({_line(error)}): delete the folder and load again") from error
    return Records(train_x, train_y, test_x, test_y, None, 10, f"torchvision {kind} in {raw}", 70000)


def _download(source: Any, kind: str, folder: Path) -> None:
    """Download into a folder of our own, then move: torchvision writes in place, which two processes must not do."""
    raw = folder / kind / "raw"
    try:
        raw.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as part:
            mine = Path(part) / kind / "raw"
            mine.mkdir(parents=True)
            for archive in raw.glob("*.gz"):
                shutil.copy(archive, mine)  # torchvision checks its md5 and saves the download
            source(part, download=True)
            for file in mine.iterdir():
                file.replace(raw / file.name)
    except _UNREADABLE as error:
        expected = ", ".join(_FILES)
        message = f"{kind}: cannot download to {raw} ({_line(error)}): {_remedy(raw)}; expected {expected} (or .gz)"
        raise DataError(message) from error


def _remedy(raw: Path) -> str:
    return f"copy the files to {raw}, set dataset.root or DPFL_DATA_DIR to where they are"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
