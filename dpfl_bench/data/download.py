"""Download one file so that what appears under its name is whole."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from dpfl_bench.data.records import DataError

_CHUNK = 1 << 20
_TIMEOUT = 30.0
# pauses in seconds before the next try; reset by every try that brought new bytes
_PAUSES = (0.2, 0.5, 1.0)


def fetch(url: str, target: Path, sha256: str | None) -> Path:
    """Download `url` to `target` and return it.

    The bytes go to a uniquely named .part file beside it, renamed only when they are whole and match `sha256` (where
    given), so several processes may fetch the same file at once. A dropped connection is resumed where the server
    allows, else restarted.
    """
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _receive(url, part)
        found = file_sha256(part)
        if sha256 is not None and found != sha256:
            raise DataError(f"{url}: sha256 {found}, expected {sha256}: not kept; try again, or put {target} there yourself")
        part.replace(target)
    except OSError as error:
        raise DataError(f"cannot download {url} ({error}): go online, or put the file at {target} yourself") from error
    finally:
        part.unlink(missing_ok=True)
    return target


def file_sha256(path: Path) -> str:
    """The file's sha256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _receive(url: str, part: Path) -> None:
    """Fill `part`, trying again after a dropped connection; the last error is raised when no try brings new bytes."""
    part.touch()
    failures = 0
    while True:
        before = part.stat().st_size
        try:
            return _continue(url, part)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == 416:
                part.write_bytes(b"")  # what we have does not fit the server's file: start over
            elif isinstance(error, urllib.error.HTTPError) and error.code < 500:
                raise  # not there, not allowed: asking again does not help
            failures = 0 if part.stat().st_size > before else failures + 1
            if failures > len(_PAUSES):
                raise OSError(getattr(error, "reason", None) or error) from error
        time.sleep(_PAUSES[max(failures - 1, 0)])


def _continue(url: str, part: Path) -> None:
    """One request for what is still missing; raises ConnectionError when the server hangs up early."""
    have = part.stat().st_size
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as reply:
        resumed = reply.status == 206 and reply.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        length = reply.headers.get("Content-Length")
        received = 0
        with part.open("ab" if resumed else "wb") as file:
            while chunk := reply.read(_CHUNK):
                file.write(chunk)
                received += len(chunk)
    # http.client's read(n) ends silently when the connection drops
    if length is not None and received != int(length):
        raise ConnectionError(f"the connection dropped after {received} of {length} bytes")
