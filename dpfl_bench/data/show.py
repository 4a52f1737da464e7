"""`data show`: what a partition gave to each client."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.data.records import Records

FIRST = 10  # clients that are shown one by one
COLUMNS = 12  # classes that have a column of their own
MOST = 5  # of more classes, those that a client has most of


def summary(
    records: Records, parts: list[np.ndarray], tests: list[int] | None, chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """Sizes, and each label's count where records have one label. tests: each client's own test
    records; None where all clients share one test set. `chosen`: the names, settings (`ways`), hash
    and files.
    """
    sizes = np.array([len(part) for part in parts])
    classes = records.classes if records.task == "classify" else 0
    labels = (
        [np.bincount(records.train_y[part], minlength=classes).tolist() for part in parts[:FIRST]]
        if classes
        else None
    )
    return {
        **chosen,
        "source": records.source,
        "subset": records.subset,
        "whole": records.expected is not None and not records.subset,
        "clients": len(parts),
        "training": len(records.train_y),
        "dealt": int(sizes.sum()),
        "distinct": len(np.unique(np.concatenate(parts))),
        "test": len(records.test_y),
        "sizes": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "first_sizes": sizes[:FIRST].tolist(),
        "test_sizes": None
        if tests is None
        else {"min": min(tests), "median": float(np.median(tests)), "max": max(tests)},
        "first_test_sizes": None if tests is None else tests[:FIRST],
        "classes": classes,
        "first_labels": labels,
        "constant": _constant(records) if classes else None,
    }


def _constant(records: Records) -> dict[str, float] | None:
    """The trivial classifier: the most frequent training label, and the test error of always
    answering that.
    """
    if not len(records.test_y):
        return None
    label = int(np.bincount(records.train_y).argmax())
    return {"label": label, "test_error": float((records.test_y != label).mean())}


def spread(records: Records, parts: list[np.ndarray], tests: list[int] | None) -> dict[str, Any]:
    """Means over the clients; deviations divide by n - 1. Where all share one test set, its share
    for each, without a deviation.
    """
    train, own = np.array([len(part) for part in parts], float), np.array(tests or [], float)
    common = len(records.test_y) / len(parts)
    return {
        "clients": len(parts),
        "train_mean": float(train.mean()),
        "train_std": float(train.std(ddof=1)) if len(parts) > 1 else 0.0,
        "test_mean": common if tests is None else float(own.mean()),
        "test_std": None if tests is None else float(own.std(ddof=1)) if len(parts) > 1 else 0.0,
        "classes": records.classes,
        "subset": records.subset or "whole",
    }


def targets(to: str | None, outputs: str, stem: str) -> tuple[Path, Path]:
    """The picture and the table beside it, refused before any data loads where they could not be
    written.
    """
    picture = Path(to) if to else Path(outputs) / "data" / f"{stem}.png"
    if picture.suffix not in (".png", ".pdf", ".svg"):
        raise ConfigError(f"--to {picture}: expected a file name that ends in .png, .pdf or .svg")
    try:
        there = next(path for path in (picture.parent, *picture.parent.absolute().parents) if path.exists())
        Path(tempfile.mkdtemp(prefix=".", dir=there)).rmdir()
    except OSError as error:
        raise ConfigError(f"{picture}: cannot be written ({error.strerror}); say --to FILE.png") from None
    return picture, picture.with_suffix(".csv")


def save(table: Path, csv: str) -> None:
    """The clients' sizes and labels, one line each."""
    try:
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(csv)
    except OSError as error:
        raise ConfigError(f"{table}: cannot be written ({error.strerror}); say --to FILE.png") from None


def title(shown: Mapping[str, Any]) -> str:
    """Of the picture."""
    subset = f" ({shown['subset']})" if shown["subset"] else ""
    return f"{shown['dataset']}{subset}, partition {_way(shown)}, {shown['clients']} clients"


def _way(shown: Mapping[str, Any]) -> str:
    """The partition's name and its settings."""
    return f"{shown['partition']} ({', '.join(f'{key}={value}' for key, value in shown['ways'].items())})"


def text(shown: Mapping[str, Any]) -> str:
    """The summary for a person."""
    sizes, first = shown["sizes"], ", ".join(map(str, shown["first_sizes"]))
    whole = shown["subset"] or ("whole" if shown["whole"] else "how many the whole set has is not known")
    lines = [
        (
            f"{shown['dataset']} ({whole}): {shown['training']} training and {shown['test']} test records;"
            f" {shown['source']}"
        ),
        f"partition {_way(shown)}: {shown['clients']} clients, hash {shown['hash']}",
        (
            f"records per client: min {sizes['min']}, median {sizes['median']:g}, max {sizes['max']}; the"
            f" first: {first}"
        ),
    ]
    own = shown["test_sizes"]
    lines.append(
        "test records: one set for all clients"
        if own is None
        else f"test records of the clients' own: min {own['min']}, median {own['median']:g}, max"
        f" {own['max']}; the first: {', '.join(map(str, shown['first_test_sizes']))}"
    )
    if not shown["dealt"] == shown["distinct"] == shown["training"]:
        lines.append(
            f"{shown['distinct']} of the {shown['training']} training records are held by a client,"
            f" {shown['dealt']} in all hands"
        )
    if shown["first_labels"] is not None:
        lines += [
            *_trivial(shown["constant"]),
            "labels of the first clients:",
            *_histograms(shown["first_labels"], shown["classes"]),
        ]
    return "\n".join([*lines, f"picture: {shown['picture']}", f"every client: {shown['table']}"]) + "\n"


def _trivial(constant: Mapping[str, float] | None) -> list[str]:
    if constant is None:
        return []
    return [f"who always answers {constant['label']} has a test error of {constant['test_error']:.4f}"]


def _histograms(labels: list[list[int]], classes: int) -> list[str]:
    if classes > COLUMNS:
        return [f"  {client:>6}  {_most(counts)}" for client, counts in enumerate(labels)]
    width = max(len(str(count)) for counts in [*labels, [classes]] for count in counts) + 1
    head = "  client " + "".join(f"{label:>{width}}" for label in range(classes))
    return [
        head,
        *(
            f"  {client:>6} " + "".join(f"{count:>{width}}" for count in counts)
            for client, counts in enumerate(labels)
        ),
    ]


def _most(counts: list[int]) -> str:
    """How many classes a client has, and those of which it has most."""
    labels = sorted((label for label, count in enumerate(counts) if count), key=lambda label: -counts[label])
    shown = ", ".join(f"{label} ({counts[label]})" for label in labels[:MOST])
    return f"{len(labels)} classes{', mostly' if len(labels) > MOST else ':'} {shown}"
