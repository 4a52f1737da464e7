"""What the fuzzer draws: overrides over the schema of settings, and small data sets whose files are
spoiled. An outcome is `accepted`, or a refusal of ours in one line; whatever else is a bug.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dpfl_bench.budget import before_data
from dpfl_bench.checks.errors import one_line
from dpfl_bench.config import catalogue, compose, words
from dpfl_bench.config.validate import settings
from dpfl_bench.data import csv_table, npz

SECONDS = 60  # that nothing may take, on a busy machine too
NUMBERS = [
    *(0, 1, 2, 3, 9, 90, 100, 10**6, -1, 2**31, 2**62, 2**63, -(2**63) - 1, 10**12, 10**39, 10**400),
    *(0.5, 0.1, 1e-5, 1e-12, 1e-300, 5e-324, 1e30, 1e39, 1e300, -0.0, -0.5, 0.999999999999, 1.5),
    *(float("inf"), float("-inf"), float("nan")),
]
WORDS = ["", "x", "auto", "none", "null", "a b", "../x", "~nouser/x", "divisors", "1/L", "median", "é", "\0"]
OTHERS = [None, True, False, [], [1], ["a"], [0.5, None], {}, {"a": 1}]


class Hang(BaseException):
    """Something took longer than SECONDS."""


@contextmanager
def limited(seconds: int = SECONDS) -> Iterator[None]:
    """Raise Hang where the body takes longer."""

    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(question: Callable[[], Any]) -> str:
    """`accepted`, or the line of a refusal; any other error is raised."""
    try:
        with limited():
            question()
    except Exception as error:
        line = one_line(error)
        if line is None or not line or "\n" in line:
            raise
        return line
    return "accepted"


# ---- overrides ----


def schema() -> dict[str, Any]:
    """Every key of the default settings, with its value."""
    return compose.composed(()).by_name


def choices() -> dict[str, list[str]]:
    """Group -> the names to choose from."""
    names: dict[str, list[str]] = {}
    for entry in catalogue.entries():
        if entry["group"] in catalogue.GROUPS:
            names.setdefault(str(entry["group"]), []).append(str(entry["name"]))
    return names


def overrides() -> st.SearchStrategy[tuple[str, ...]]:
    """Some choices of groups, and up to four values that may have any type."""
    chosen = [
        st.sampled_from([f"{group}={name}" for name in names]) for group, names in sorted(choices().items())
    ]
    value = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.sampled_from(OTHERS))
    keys = sorted(key for key in schema() if not key.startswith("outputs"))
    one = st.tuples(st.sampled_from(keys), value).map(lambda pair: words.word(*pair))
    some = st.lists(one, min_size=1, max_size=4, unique_by=lambda word: word.partition("=")[0])
    groups = st.lists(st.one_of(chosen), max_size=3, unique_by=lambda word: word.partition("=")[0])
    return st.tuples(groups, some).map(lambda parts: (*parts[0], *parts[1]))


def check_overrides(given: tuple[str, ...]) -> None:
    """What a run asks of settings before it loads data."""
    before_data.check(settings(compose.composed(given)))


# ---- files ----

Build = Callable[[Path], Callable[[], Any]]


def leaf(root: Path) -> Callable[[], Any]:
    """Two writers of FEMNIST; returns how it is loaded."""
    from dpfl_bench.data import femnist

    for part, count in (("train", 3), ("test", 1)):
        draw = np.random.default_rng(count)
        users = {
            name: {"x": (draw.integers(0, 256, (count, 784)) / 255).tolist(), "y": [1] * count}
            for name in ("a", "b")
        }
        content = {"users": [*users], "num_samples": [count] * 2, "user_data": users}
        file = root / "femnist/data" / part / "all.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(content))
    return lambda: femnist.load(root=str(root), fraction=1.0, seed=0)


def _libsvm_text() -> bytes:
    return "".join(f"{1 if i % 2 else -1} 1:{i} 3:{i % 5}\n" for i in range(10)).encode()


def libsvm(root: Path) -> Callable[[], Any]:
    """A text of LIBSVM."""
    (root / "tiny").write_bytes(_libsvm_text())
    return lambda: _load_libsvm(root / "tiny")


def libsvm_packed(root: Path) -> Callable[[], Any]:
    """The same, packed."""
    (root / "tiny.gz").write_bytes(gzip.compress(_libsvm_text(), mtime=0))
    return lambda: _load_libsvm(root / "tiny.gz")


def _load_libsvm(file: Path) -> Any:
    run = settings(compose.composed(("dataset=libsvm", f"dataset.path={words.text(str(file))}", "clients=2")))
    from dpfl_bench.assembly.data import load_data

    return load_data(run)


def table(root: Path) -> Callable[[], Any]:
    """A CSV file of one's own."""
    lines = (f"{i},{i % 5}.5,{'yes' if i % 2 else 'no'}\n" for i in range(10))
    (root / "own.csv").write_text("age,dose,ill\n" + "".join(lines))
    keys = dict.fromkeys(("test_path", "client", "features", "classes"))
    path = str(root / "own.csv")
    return lambda: csv_table.load(path=path, target="ill", separator="comma", **keys)


def arrays(root: Path) -> Callable[[], Any]:
    """numpy arrays of one's own."""
    np.savez(root / "own.npz", x=np.arange(20.0).reshape(10, 2), y=np.arange(10) % 2)
    return lambda: npz.load(path=str(root / "own.npz"), classes=None)


def ixi(root: Path) -> Callable[[], Any]:
    """Two subjects of Fed-IXI, unpacked so that spoiling reaches their headers."""
    import nibabel

    from dpfl_bench.data import ixi

    for name in ("IXI001-Guys-1", "IXI002-HH-2"):
        values = np.random.default_rng(len(name)).normal(100, 10, (6, 8, 5)).astype(np.float32)
        for kind, data in (("T1", values), ("label", (values > 100).astype(np.uint8))):
            folder = root / "IXI/IXI_sample" / name / kind
            folder.mkdir(parents=True)
            nibabel.save(nibabel.Nifti1Image(data, np.diag([2.0, 2, 2, 1])), folder / f"{name}.nii")
    return lambda: ixi.load(root=str(root), owners=None, normalise="zscore", expected=2)


def messidor(root: Path) -> Callable[[], Any]:
    """Two photographs and their labels."""
    import PIL.Image

    from dpfl_bench.data import messidor

    (root / "Messidor/images").mkdir(parents=True)
    for name in ("a", "b"):
        pixels = np.random.default_rng(ord(name)).integers(50, 200, (20, 20, 3)).astype(np.uint8)
        PIL.Image.fromarray(pixels).save(root / f"Messidor/images/{name}.png")
    (root / "Messidor/labels.csv").write_text("image,grade,hospital\na.png,0,A\nb.png,1,B\n")
    return lambda: messidor.load(root=str(root), owners=None, expected=2)


def own_yaml(root: Path) -> Callable[[], Any]:
    """A user's YAML file of a data set."""
    (root / "dataset").mkdir()
    text = "_target_: dpfl_bench.data.digits.load\nname: mine\nshape: [64]\nclasses: 10\nrecords: 1438\n"
    (root / "dataset/mine.yaml").write_text(text + "clients: 5\nlr: 1.0\ntest_fraction: 0.2\nseed: 0\n")
    return lambda: before_data.check(settings(compose.composed(("dataset=mine",), str(root))))


BUILDS: tuple[Build, ...] = (leaf, libsvm, libsvm_packed, table, arrays, ixi, messidor, own_yaml)


def spoil(file: Path, draw: np.random.Generator) -> str:
    """Change the file in one of several ways; returns which."""
    content = bytearray(file.read_bytes())
    way = str(draw.choice(["cut", "flip", "zero", "empty", "twice", "insert", "noise", "pipe", "header"]))
    at = int(draw.integers(len(content)))
    if way == "cut":
        content = content[:at]
    elif way in ("flip", "header"):
        for place in draw.integers(min(len(content), 348 if way == "header" else len(content)), size=3):
            content[place] ^= int(draw.integers(1, 256))
    elif way == "zero":
        content[at : at + 40] = bytes(len(content[at : at + 40]))
    elif way == "empty":
        content = bytearray()
    elif way == "twice":
        content = content * 2
    elif way == "insert":
        content[at:at] = bytes(draw.choice([b"-", b"9" * 20, b"\xff", b"\t", b"[", b'"', b"nan"]))
    elif way == "noise":
        content = bytearray(draw.bytes(len(content)))
    file.unlink()
    if way == "pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(content)
    return way


def spoiled(root: Path, number: int, seed: int) -> tuple[str, str]:
    """One data set of which one file is spoiled: (what was done, the outcome of loading it)."""
    draw = np.random.default_rng([seed, number])
    build = BUILDS[number % len(BUILDS)]
    load = build(root)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    file = files[int(draw.integers(len(files)))]
    way = spoil(file, draw)
    return f"{build.__name__}: {file.relative_to(root)}: {way}", outcome(load)
