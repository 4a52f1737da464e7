"""Download and unpack the image sets, from torchvision's addresses."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
from pathlib import Path
from typing import Any

from dpfl_bench.data.download import alone, fetch, made
from dpfl_bench.data.image_files import UNREADABLE, line_of, remedy
from dpfl_bench.data.image_sets import ZIP, ImageSet
from dpfl_bench.data.records import DataError


def download(kind: ImageSet, source: Any, folder: Path) -> None:
    """Fetch the archives and unpack them; a second process waits for the first."""
    try:
        with made(folder), alone(folder / f".{kind.name}.lock"):
            if all((folder / kind.folder / file).is_file() for file in kind.files):
                return
            for archive, urls, md5 in archives(kind, source):
                _fetch_any(urls, folder / archive, md5, remedy(kind, folder))
            _unpack(kind, source, folder)
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(
            f"{kind.title}: cannot unpack in {folder} ({line_of(error)}): {remedy(kind, folder)}"
        ) from error


def _unpack(kind: ImageSet, source: Any, folder: Path) -> None:
    """In a folder of our own, where torchvision may write over anything, then move what came out."""
    work = folder / f".{kind.name}.unpacked"
    shutil.rmtree(work, ignore_errors=True)  # of a process that was killed
    try:
        for archive, _, _ in archives(kind, source):
            (work / archive).parent.mkdir(parents=True, exist_ok=True)
            (work / archive).symlink_to((folder / archive).absolute())
        if kind.image[0] == 3:
            _untar(kind, work / source.filename, work)
        else:
            source(
                str(work), train=False, download=True, **kind.split
            )  # reads the test part: the smaller one
        (folder / kind.folder).mkdir(parents=True, exist_ok=True)
        for file in (work / kind.folder).iterdir():
            target = folder / kind.folder / file.name
            if not file.is_symlink() and not target.exists():  # EMNIST's other splits may be the user's own
                file.replace(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _untar(kind: ImageSet, archive: Path, folder: Path) -> None:
    """The set's files and no others."""
    (folder / kind.folder).mkdir(parents=True)
    with tarfile.open(archive) as packed:
        for file in kind.files:
            member = packed.extractfile(f"{kind.folder}/{file}")
            if member is None:
                raise tarfile.TarError(f"{archive}: {file} is no file")
            with member, (folder / kind.folder / file).open("wb") as opened:
                shutil.copyfileobj(member, opened)


def archives(kind: ImageSet, source: Any) -> list[tuple[Path, list[str], str]]:
    """What torchvision downloads: where it is kept in the data folder, whence, and its md5."""
    if kind.split:
        return [(Path(kind.folder, ZIP), [source.url], source.md5)]
    if kind.image[0] == 3:
        return [(Path(source.filename), [source.url], source.tgz_md5)]
    return [
        (Path(kind.folder, file), [mirror + file for mirror in source.mirrors], md5)
        for file, md5 in source.resources
    ]


def _fetch_any(urls: list[str], target: Path, md5: str, advice: str) -> None:
    """From the first address that has it."""
    for url in urls[:-1]:
        with contextlib.suppress(DataError):
            fetch(url, target, md5, advice, "md5")
            return
    fetch(urls[-1], target, md5, advice, "md5")
