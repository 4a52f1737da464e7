"""Features that were computed once, on disk."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

Compute = Callable[[np.ndarray], Iterator[np.ndarray]]  # images in, their features batch by batch
FEATURES_VERSION = 1  # bump when a change moves what is kept
_BLOCK = 4096  # rows at a time in float64
_DIGEST = 32  # bytes of a sha256


def blocks(x: np.ndarray) -> Iterator[slice]:
    """The rows of x, some thousands at a time."""
    yield from (slice(start, start + _BLOCK) for start in range(0, len(x), _BLOCK))


def folder() -> Path:
    """$DPFL_CACHE_DIR/features, or the same in the user's cache folder."""
    chosen = os.environ.get("DPFL_CACHE_DIR")
    if not chosen:
        import platformdirs

        chosen = platformdirs.user_cache_dir("dpfl-bench")
    return Path(chosen) / "features"


def once(images: np.ndarray, settings: dict[str, Any], shape: list[int], compute: Compute) -> np.ndarray:
    """The features of these images, from disk where they are. A missing, broken or unwritable file
    costs time, never a result.
    """
    if len(images) == 0:
        return np.empty((0, *shape), np.float32)
    question = json.dumps({**settings, "version": FEATURES_VERSION, "images": images.shape}, sort_keys=True)
    digest = hashlib.sha256(question.encode())
    for rows in blocks(images):
        digest.update(images[rows].tobytes())
    key, whole = digest.hexdigest(), (len(images), *shape)
    path = folder() / f"{key}.npy"
    kept = _read(path, key, whole)
    if kept is None:
        with contextlib.suppress(OSError):  # no room, or not ours to write
            _write(path, key, whole, compute(images))
            kept = _read(path, key, whole)
    return np.concatenate(list(compute(images))) if kept is None else kept


def _write(path: Path, key: str, shape: tuple[int, ...], batches: Iterator[np.ndarray]) -> None:
    """Write a .npy file and its digest, one batch at a time, then rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    digest = hashlib.sha256(key.encode())
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            for piece in chain([header.getvalue()], (batch.astype("<f4").tobytes() for batch in batches)):
                file.write(piece)
                digest.update(piece)
            file.write(digest.digest())
            file.close()
            os.replace(file.name, path)
        finally:
            Path(file.name).unlink(missing_ok=True)


def _read(path: Path, key: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """What `_write` wrote under this key, mapped into memory. A change is not written back. None
    unless the file is whole.
    """
    digest = hashlib.sha256(key.encode())
    try:
        left = path.stat().st_size - _DIGEST
        with path.open("rb") as file:
            while left > 0 and (chunk := file.read(min(left, 1 << 20))):
                digest.update(chunk)
                left -= len(chunk)
            if file.read() != digest.digest():
                return None
        features = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    whole = features.shape == shape and features.dtype == np.float32
    return np.asarray(features) if whole else None
