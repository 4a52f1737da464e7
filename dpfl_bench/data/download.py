"""Download one file so that what appears under its name is whole.

What talks to the network is imported when it does: `data list` imports every loader.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from dpfl_bench.data.records import DataError
from dpfl_bench.machine.file_lock import alone
from dpfl_bench.machine.say import no_bar

_CHUNK = 1 << 20
_TIMEOUT = 30.0
# pauses in seconds before the next try; reset by every try that brought new bytes
_PAUSES = (0.2, 0.5, 1.0)


def fetch(url: str, target: Path, checksum: str | None, remedy: str, algorithm: str = "sha256") -> Path:
    """Download `url` to `target` and return it; `remedy` is what a DataError tells a user to do.

    The bytes go to a .part file beside it, which one process at a time may write, renamed only when
    they are whole and match `checksum` (where given). A dropped connection is resumed where the
    server allows, else restarted. After a failure the bytes stay for the next fetch to go on from,
    if a checksum will tell whether they fitted. Nothing else stays, nor do folders that were new.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        lock = part.with_name(f"{part.name}.lock")
        with existing_folder(target.parent), alone(lock), _kept_if_filled(part):
            if (
                checksum is None or not target.is_file() or file_checksum(target, algorithm) != checksum
            ):  # no other process was faster
                _fill(url, part, checksum, algorithm, remedy)
                part.replace(target)
    except DataError:
        raise
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        kept = f"; {part.stat().st_size} bytes are kept to go on from" if part.exists() else ""
        raise DataError(f"cannot download {url} ({reason}{kept}): {remedy}") from error
    return target


def file_checksum(path: Path, algorithm: str = "sha256") -> str:
    """The file's checksum in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


@contextlib.contextmanager
def existing_folder(folder: Path) -> Iterator[None]:
    """The folder exists inside. Afterwards, folders that are new and empty are removed again."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty
            for path in new:
                path.rmdir()


@contextlib.contextmanager
def _kept_if_filled(part: Path) -> Iterator[None]:
    """The file exists inside. It is removed afterwards if it is empty."""
    part.open("ab").close()
    try:
        yield
    finally:
        if part.exists() and part.stat().st_size == 0:
            part.unlink()


def _fill(url: str, part: Path, checksum: str | None, algorithm: str, remedy: str) -> None:
    """The whole file in `part`, after what an earlier fetch has left there, if that fits."""
    if checksum is None:
        _empty(part)
        try:
            return _receive(url, part)
        except BaseException:
            _empty(part)
            raise
    left = part.stat().st_size > 0
    if left and file_checksum(part, algorithm) == checksum:
        return
    for _ in range(1 + left):
        _receive(url, part)
        digest = file_checksum(part, algorithm)
        if digest == checksum:
            return
        _empty(part)
    raise DataError(f"{url}: {algorithm} {digest}, expected {checksum}: not kept; {remedy}")


def _empty(part: Path) -> None:
    part.write_bytes(b"")


def _receive(url: str, part: Path) -> None:
    """Fill `part`, trying again after a dropped connection; the last error is raised when no try
    brings new bytes.
    """
    import http.client
    import urllib.error

    failures = 0
    while True:
        before = part.stat().st_size
        try:
            return _continue(url, part)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == 416:
                _empty(part)  # what we have does not fit the server's file: start over
            elif isinstance(error, urllib.error.HTTPError) and error.code < 500:
                raise  # not there, not allowed: asking again does not help
            failures = 0 if part.stat().st_size > before else failures + 1
            if failures > len(_PAUSES):
                raise OSError(getattr(error, "reason", None) or error) from error
        time.sleep(_PAUSES[max(failures - 1, 0)])


def _continue(url: str, part: Path) -> None:
    """One request for what is still missing; raises ConnectionError when the server hangs up
    early.
    """
    import urllib.request

    from tqdm import tqdm

    have = part.stat().st_size
    headers = {"User-Agent": "dpfl-bench", **({"Range": f"bytes={have}-"} if have else {})}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT) as reply:
        resumed = reply.status == 206 and reply.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        length = reply.headers.get("Content-Length")
        total = None if length is None else int(length) + have * resumed
        with (
            part.open("ab" if resumed else "wb") as file,
            tqdm(
                desc=part.name[1:-5],
                total=total,
                initial=have * resumed,
                unit="B",
                unit_scale=True,
                disable=no_bar(),
                file=sys.stderr,
            ) as bar,
        ):
            while chunk := reply.read(_CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
    # http.client's read(n) ends silently when the connection drops
    if total is not None and part.stat().st_size != total:
        raise ConnectionError(f"the connection dropped after {part.stat().st_size} of {total} bytes")
