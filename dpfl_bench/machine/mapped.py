"""Tensors in memory that forked processes share: without a name, or in a file that holds what is
not at work.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import Tensor

BLOCK = 1 << 24  # bytes that pass through memory at a time
_FILES: dict[int, mmap.mmap] = {}  # address of a tensor -> the file it lies in
_SHARED: set[int] = set()  # addresses of the tensors that `zeros` gave and that are in use


@contextmanager
def zeros(shape: tuple[int, ...], dtype: torch.dtype, folder: Path | None = None) -> Iterator[Tensor]:
    """A tensor of zeros that forked processes share. folder: where its file is; None: no file.

    Linux deletes the file at once and keeps its content until the last process that uses it ends,
    however it ends. Where the system keeps an open file's name, the file is `memories.*.part`.
    Raises OSError where the disk has no room.
    """
    size = max(1, math.prod(shape) * dtype.itemsize)
    path, memory = (None, mmap.mmap(-1, size)) if folder is None else _in_a_file(folder, size)
    tensor = torch.frombuffer(memory, dtype=dtype, count=math.prod(shape)).view(shape)
    _SHARED.add(tensor.data_ptr())
    if folder is not None:
        _FILES[tensor.data_ptr()] = memory
    try:
        yield tensor
    finally:
        _SHARED.discard(tensor.data_ptr())
        _FILES.pop(tensor.data_ptr(), None)
        del tensor, memory
        if path is not None:
            with suppress(OSError):  # somebody uses it still: whoever tidies the folder removes it
                path.unlink()


def is_shared(tensor: Tensor) -> bool:
    """Whether `zeros` gave it."""
    return bool(_SHARED) and tensor.data_ptr() in _SHARED


def in_a_file(tensor: Tensor | None) -> bool:
    """Whether `zeros` gave it, in a file."""
    return bool(_FILES) and tensor is not None and tensor.data_ptr() in _FILES


def release(tensor: Tensor | None) -> None:
    """What was read or written of a tensor in a file leaves this process's memory. Nothing is done
    with another tensor.
    """
    if _FILES and tensor is not None and hasattr(mmap, "MADV_DONTNEED"):
        memory = _FILES.get(tensor.data_ptr())
        if memory is not None:
            memory.madvise(mmap.MADV_DONTNEED)


def blocks(tensor: Tensor) -> Iterator[Tensor]:
    """Its rows, a few megabytes at a time. A block is released before the next."""
    rows = max(1, BLOCK // max(1, tensor[:1].numel() * tensor.element_size()))
    for first in range(0, len(tensor), rows):
        yield tensor[first : first + rows]
        release(tensor)


def _in_a_file(folder: Path, size: int) -> tuple[Path | None, mmap.mmap]:
    """(its name, where it still has one; the file in memory)"""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix="memories.", suffix=".part", dir=folder)
    path: Path | None = Path(name)
    try:
        _allocate(handle, size)
        memory = mmap.mmap(handle, size)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None
    finally:
        os.close(handle)
        with suppress(OSError):  # Windows: not while it is in memory
            Path(name).unlink()
            path = None
    return path, memory


def _allocate(handle: int, size: int) -> None:
    """Take the room now: a page that cannot be written later would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
        return
    for first in range(0, size, BLOCK):
        os.write(handle, bytes(min(BLOCK, size - first)))
