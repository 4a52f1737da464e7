"""Answers kept on disk, each under its exact question, because some calibrations take seconds."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

CACHE_VERSION = 3  # bump when a change moves any calibrated noise


def cached(question: dict[str, object], answer: Callable[[], float]) -> float:
    """The positive number that answers a question: from disk, else from `answer`, and then kept.

    question: names and values that JSON can hold; the versions of this file and of dp-accounting
    are added. A missing, broken or unwritable entry costs time, never a result.

    A checksum finds an entry that decayed. It finds no forged entry: whoever can write into the
    folder can write any number, so the caller checks the answer.
    """
    text = _text(question)
    path = _path(text)
    try:
        entry = json.loads(path.read_text())
        kept = float(entry["answer"])
        if (
            entry["question"] == json.loads(text)
            and entry["checksum"] == _checksum(text, kept)
            and 0 < kept < math.inf
        ):
            return kept
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there, or broken: ask again
    fresh = answer()
    _keep(
        path,
        json.dumps(
            {"question": json.loads(text), "answer": fresh, "checksum": _checksum(text, fresh)},
            sort_keys=True,
        ),
    )
    return fresh


def forget(question: dict[str, object]) -> None:
    """Delete the kept answer to a question, if there is one."""
    with contextlib.suppress(OSError):
        _path(_text(question)).unlink()


def _text(question: dict[str, object]) -> str:
    return json.dumps(
        {**question, "cache_version": CACHE_VERSION, "dp_accounting": _dp_accounting()},
        sort_keys=True,
    )


@cache
def _dp_accounting() -> str:
    return version("dp-accounting")


def _path(text: str) -> Path:
    return folder() / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def _checksum(text: str, answer: float) -> str:
    return hashlib.sha256(f"{text} {answer!r}".encode()).hexdigest()[:16]


def folder() -> Path:
    """$DPFL_CACHE_DIR/calibration, or the same in the user's cache folder."""
    chosen = os.environ.get("DPFL_CACHE_DIR")
    if not chosen:
        import platformdirs

        chosen = platformdirs.user_cache_dir("dpfl-bench")
    return Path(chosen) / "calibration"


def _keep(path: Path, text: str) -> None:
    """Write in one step, so that no reader ever sees half a file."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
