"""Files that tell what they are, and whether they are still what was written: a line of JSON at the
end, with a checksum over everything.

The line comes last so that the checksum is taken while the content is written, and so that whoever
reads the content alone (`torch.load`) need not know of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

END = 1024  # bytes of the last line
KIND = "dpfl-bench sealed file 1"
_AT_ONCE = 1 << 20


class Broken(ValueError):
    """The file is not what was written, or was never one of these."""


class _Summed:
    """A file to write to, with a checksum over what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.sum, self.bytes = file, hashlib.blake2b(digest_size=16), 0

    def write(self, data: Any) -> int:
        self.sum.update(data)
        self.bytes += memoryview(data).nbytes
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


@contextmanager
def writing(path: Path, **footer: Any) -> Iterator[_Summed]:
    """Write a file that ends with `footer`. A kill at any moment leaves what was there before, or
    the whole new file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as file:
        summed = _Summed(file)
        yield summed
        file.write(_line({**footer, "kind": KIND, "bytes": summed.bytes}, summed.sum))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def footer(path: Path) -> dict[str, Any]:
    """What the file says of itself. Its content is not looked at: see `check`."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - END))
        line = file.read()
    try:
        fields = json.loads(line)
        if fields["kind"] != KIND or fields["bytes"] + END != size or line != _padded(fields):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise Broken("cut short or damaged (its last line does not describe it)") from None
    return {key: value for key, value in fields.items() if key not in ("kind", "bytes", "sum")}


def check(path: Path) -> dict[str, Any]:
    """The same of a file whose every byte is as it was written; else Broken."""
    fields = footer(path)
    sum = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - END
        size = left
        while left > 0 and (block := file.read(min(left, _AT_ONCE))):
            sum.update(block)
            left -= len(block)
        line = file.read()
    if line != _line({**fields, "kind": KIND, "bytes": size}, sum):
        raise Broken("damaged (its bytes do not have its checksum)")
    return fields


def _line(content: dict[str, Any], sum: Any) -> bytes:
    """The checksum covers the line's own content, too."""
    sum.update(json.dumps(content, sort_keys=True).encode())
    return _padded({**content, "sum": sum.hexdigest()})


def _padded(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True).encode()
    if len(text) >= END:
        raise ValueError(f"{len(text)} bytes to tell: expected fewer than {END}")
    return text + b" " * (END - 1 - len(text)) + b"\n"
