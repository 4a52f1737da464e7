"""The image sets on disk: whether they are complete, and how they are downloaded from torchvision's
addresses and unpacked.
"""

from __future__ import annotations

import contextlib
import shutil
import tarfile
from pathlib import Path
from typing import Any

from dpfl_bench.data.download import existing_folder, fetch
from dpfl_bench.data.image_files import UNREADABLE, differing, line_of, remedy
from dpfl_bench.data.image_sets import ZIP, Files, ImageSet
from dpfl_bench.data.records import DataError
from dpfl_bench.machine.file_lock import alone


def there(kind: ImageSet, folder: Path, files: Files) -> bool:
    return all((folder / kind.folder / file).is_file() for file in files)


def complete(kind: ImageSet, source: Any, folder: Path, download: bool, verify: bool) -> None:
    """Download where files are missing; raise DataError unless they are the whole set's, or without
    `verify` some of them.
    """
    if not verify and any(there(kind, folder, part) for part in (*kind.train, *kind.test)):
        return
    missing = _missing(kind, source, folder, verify)
    if missing and download:
        download_set(kind, source, folder)
        missing = _missing(kind, source, folder, verify)
    if missing:
        raise DataError(
            f"{kind.title}: {folder / kind.folder} lacks {', '.join(missing)}:"
            f" {remedy(kind, folder)}, or set dataset.download=true"
        )


def _missing(kind: ImageSet, source: Any, folder: Path, verify: bool) -> list[str]:
    """The files that are not there; those that are must match, before anything is downloaded over
    or beside them.
    """
    raw = folder / kind.folder
    missing = [file for file in kind.files if not (raw / file).is_file()]
    try:
        wrong = differing(kind, source, raw) if verify else []
    except UNREADABLE as error:
        raise DataError(
            f"{kind.title}: cannot read {raw} ({line_of(error)}): {remedy(kind, folder)}"
        ) from error
    if wrong:
        also = f"; missing: {', '.join(missing)}" if missing else ""
        problem = (
            f"{kind.title}: cannot read {raw} as the whole set (checksum differs from torchvision's:"
            f" {', '.join(wrong)}{also})"
        )
        raise DataError(f"{problem}: delete the folder, then {remedy(kind, folder)}")
    return missing


def download_set(kind: ImageSet, source: Any, folder: Path) -> None:
    """Fetch the archives and unpack them; a second process waits for the first."""
    try:
        with existing_folder(folder), alone(folder / f".{kind.name}.lock"):
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
    """In a folder of our own, where torchvision may write over anything, then move what came
    out.
    """
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
