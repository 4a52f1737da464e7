"""What is known of a data set without loading it: which files it has, which of them are here, how
to get them, what they should be.

A loader's module says so by its `SOURCE`, beside the function that a YAML file names as `_target_`.
A user's own module may have one too. Every function of a `Source` takes the keys of the YAML file,
for one loader may serve several data sets. Nothing here needs numpy, and no module with a SOURCE
imports torch before it loads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

OURS = "dpfl_bench."
OK, UNVERIFIED, MISMATCH, MISSING = "checksum ok", "not verified", "checksum mismatch", "missing"
FETCH = "data fetch"  # how to get what `dpfl-bench data fetch` downloads
Dataset = Mapping[str, Any]  # the keys of a data set's YAML file


@dataclass(frozen=True)
class Presence:
    """Which of a data set's files are here: by names and sizes, nothing is opened."""

    folder: Path | None  # None: needs no files
    there: tuple[Path, ...] = ()  # the set's files that exist
    missing: tuple[str, ...] = ()  # files or patterns that name none
    short: tuple[str, ...] = ()  # how far the files that are here are from the whole set

    @property
    def lacks(self) -> tuple[str, ...]:
        """What the whole set needs beside `there`, for a person."""
        return (*self.missing, *self.short)

    @property
    def state(self) -> str:
        """ready | partly | missing."""
        if not self.lacks:
            return "ready"
        return "partly" if self.there else "missing"

    @property
    def bytes(self) -> int:
        return bytes_of(self.there)


def no_files(dataset: Dataset) -> Presence | None:
    """The presence of a data set that needs none: generated, or part of a package."""
    return Presence(None)


def _by_download_key(dataset: Dataset) -> bool:
    return bool(dataset.get("download"))


def _without_download(dataset: Dataset) -> Dataset:
    return {**dataset, "download": False} if "download" in dataset else dataset


@dataclass(frozen=True)
class Source:
    """What a loader's module knows of its data sets.

    how: how to get one, in a few words; FETCH where `data fetch` downloads it.
    presence: which files are here, by names and sizes alone; None where the keys name no known set.
    files: what `load` reads, by names that do not tell where it lies, to be hashed; None where some
    of it is missing. By default: all files of `presence`, once none is missing.
    checksums: the sha256 that each file should have, None where there is none to compare with.
    verdicts: one of OK, UNVERIFIED, MISMATCH, MISSING for each file, where `checksums` cannot say
    it. Its second argument is true where a load has just succeeded, and so verified what it does.
    downloads: whether `load` fetches what is missing.
    remedy: what a user does about missing files; by default it follows from `how`.
    offline: the keys with which `load` downloads nothing, or a DataError.
    generated: the records have no files and bring the law that they are drawn from.
    leaks: what of the private data `load` takes into training outside every accountant, a line
    each.
    """

    how: Callable[[Dataset], str] | str
    presence: Callable[[Dataset], Presence | None]
    files: Callable[[Dataset], dict[str, Path] | None] | None = None
    checksums: Callable[[Dataset], Mapping[Path, str | None]] | None = None
    verdicts: Callable[[Dataset, bool], dict[str, str]] | None = None
    downloads: Callable[[Dataset], bool] = _by_download_key
    remedy: Callable[[Dataset], str] | None = None
    offline: Callable[[Dataset], Dataset] = _without_download
    generated: bool = False
    leaks: Callable[[Dataset], list[str]] | None = None


def source_of(dataset: Dataset, own: bool = False) -> Source | None:
    """The SOURCE of the module that `_target_` names; None where it has none.

    own: import a user's own module too, which runs its code. A module that cannot be imported has
    no SOURCE; a run says why.
    """
    module = str(dataset.get("_target_")).rpartition(".")[0]
    foreign = not module.startswith(OURS)
    if not module or (foreign and not own) or module.partition(".")[0] in sys.stdlib_module_names:
        return None
    try:
        source = getattr(import_module(module), "SOURCE", None)
    except Exception:  # a user's module may raise anything
        return None
    return source if isinstance(source, Source) else None


def how_of(dataset: Dataset, source: Source | None) -> str:
    """How to get a data set with these keys: FETCH, or in words."""
    if source is None:
        return "its own loader's way"
    return source.how if isinstance(source.how, str) else source.how(dataset)


def presence_of(dataset: Dataset, source: Source | None) -> Presence | None:
    """Which files are here; None where nobody knows which there should be."""
    return None if source is None else source.presence(dataset)


def files_of(dataset: Dataset, source: Source) -> dict[str, Path] | None:
    """What the loader reads, by names that do not tell where it lies; None where some is
    missing.
    """
    if source.files is not None:
        return source.files(dataset)
    presence = source.presence(dataset)
    if presence is None:
        return None
    if presence.folder is None:
        return {}
    complete = presence.there and not presence.missing
    return {os.path.relpath(file, presence.folder): file for file in presence.there} if complete else None


def verdicts_of(dataset: Dataset, source: Source | None, loaded: bool) -> dict[str, str]:
    """A verdict for each file; loaded: after a load that raised nothing."""
    presence = presence_of(dataset, source)
    if source is None or presence is None or presence.folder is None:
        return {}
    if source.verdicts is not None:
        return source.verdicts(dataset, loaded)
    if source.checksums is not None:
        return {str(file): verdict(file, sha256) for file, sha256 in source.checksums(dataset).items()}
    there = {str(file): UNVERIFIED for file in presence.there}
    return there if loaded else {**there, **dict.fromkeys(presence.lacks, MISSING)}


def verdict(file: Path, sha256: str | None) -> str:
    """Of one file by its checksum, where it has one."""
    if not file.is_file():
        return MISSING
    if sha256 is None:
        return UNVERIFIED
    from dpfl_bench.data.download import file_checksum

    return OK if file_checksum(file) == sha256 else MISMATCH


def existing(files: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(file for file in files if file.is_file())


def bytes_of(files: Sequence[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def too_small(files: Sequence[Path], least: int) -> tuple[str, ...]:
    """Empty, or how far these files are from holding the whole set, which has `least` bytes."""
    size = bytes_of(files)
    if size >= least:
        return ()
    return (f"records: the files have {in_words(size)}, the whole set at least {in_words(least)}",)


def too_few(count: int, expected: Any, what: str) -> tuple[str, ...]:
    """Empty, or how many of the expected ones are missing."""
    if not isinstance(expected, int) or count >= expected:
        return ()
    return (f"{expected - count} of {expected} {what}",)


def in_words(size: int) -> str:
    """A number of bytes for a person."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
