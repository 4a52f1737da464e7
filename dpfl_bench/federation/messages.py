"""Messages between the first process and its workers, through a pipe, and between ranks: pickled;
errors, too.
"""

from __future__ import annotations

import io
import pickle
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor


def send(pipe: Connection, message: object) -> None:
    pipe.send_bytes(pickled(message))


def pickled(message: object) -> memoryview:
    """The message as bytes, its tensors too: they are small. multiprocessing would put them into
    files of shared memory.
    """
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(message)
    return file.getbuffer()


class _Pickler(pickle.Pickler):
    """Tensors go as arrays: torch writes an archive for each, which takes a hundred times as
    long.
    """

    def reducer_override(self, part: Any) -> Any:
        if not isinstance(part, Tensor):
            return NotImplemented
        return (torch.from_numpy, (part.numpy(),)) if part.is_cpu else (_on, (part.device.type, part.cpu()))


def _on(device: str, part: Tensor) -> Tensor:
    """A number of a GPU comes to the GPU of the rank that reads it."""
    return part.to(device)


def received(pipe: Connection) -> Any:
    return unpickled(pipe.recv_bytes())


def unpickled(message: bytes) -> Any:
    return pickle.loads(message)


def portable(error: Exception) -> Exception:
    """The error as it can be pickled, its traceback as a note: tracebacks cannot be pickled, nor
    can some errors.
    """
    note = "in a worker process:\n" + "".join(traceback.format_exception(error))
    try:
        arrives = str(pickle.loads(pickle.dumps(error))) == str(error)
    except Exception:
        arrives = False
    portable = error.with_traceback(None) if arrives else RuntimeError(f"{type(error).__name__}: {error}")
    portable.add_note(note)
    return portable
