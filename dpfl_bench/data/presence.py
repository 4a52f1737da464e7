"""Which of a data set's files are there: names and sizes, nothing is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from dpfl_bench.data import image_sets, messidor
from dpfl_bench.data.root import data_root, vocabulary_file

# what LEAF publishes: samples of the whole set, and pixels, characters or tokens of one, which take
# a byte each at least
LEAF = {"femnist": (805_263, 784), "shakespeare": (4_226_158, 80), "reddit": (56_587_343, 10)}


@dataclass(frozen=True)
class Presence:
    """`there`: the set's files that exist; `missing`: what is lacking, for a person."""

    folder: Path | None  # None: needs no files
    there: tuple[Path, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """ready | partly | missing."""
        if not self.missing:
            return "ready"
        return "partly" if self.there else "missing"

    @property
    def bytes(self) -> int:
        return _bytes(self.there)


def presence(dataset: Mapping[str, Any]) -> Presence | None:
    """Of the data set with these keys of its YAML file; None where its loader is not one of ours."""
    look = _LOOK.get(loader(dataset))
    return None if look is None else look(dataset)


def known(dataset: Mapping[str, Any]) -> bool:
    return loader(dataset) in _LOOK


def read_by(dataset: Mapping[str, Any]) -> dict[str, Path] | None:
    """The files that our loader reads, by names that do not tell where they lie; None where some of
    them are missing.
    """
    kind = loader(dataset)
    if kind == "libsvm":
        return dict(zip(("training file", "test file"), libsvm_files(dataset), strict=False))
    looked = presence(dataset)
    if looked is None or looked.folder is None:
        return None
    if kind == "vision":
        return _vision_reads(dataset, looked.folder)
    files = looked.there
    if kind == "messidor" and (looked.folder / "labels.csv") in files:
        files = tuple(file for file in files if not file.match("Annotation_Base*.csv"))
    complete = bool(files) and not any(
        "*" in lacking or lacking.endswith((".json", ".csv")) for lacking in looked.missing
    )
    return {os.path.relpath(file, looked.folder): file for file in files} if complete else None


def _vision_reads(dataset: Mapping[str, Any], folder: Path) -> dict[str, Path] | None:
    """Without `verify` a part of them will do."""
    kind = _kind(dataset)
    names = [file for part in (*kind.train, *kind.test) for file in part] if kind else []
    there = {name: folder / name for name in names if (folder / name).is_file()}
    return there if there and (len(there) == len(names) or not dataset.get("verify")) else None


def loader(dataset: Mapping[str, Any]) -> str:
    """The module of ours that loads it, without the package's name; empty for any other."""
    package, _, rest = str(dataset.get("_target_")).partition("dpfl_bench.data.")
    return "" if package else rest.partition(".")[0]


def _none(dataset: Mapping[str, Any]) -> Presence:
    return Presence(None)


def _kind(dataset: Mapping[str, Any]) -> image_sets.ImageSet | None:
    sets = {title.replace("_", "").lower(): kind for title, kind in image_sets.SETS.items()}
    return sets.get(str(dataset.get("name")).replace("_", "").lower())


def _vision(dataset: Mapping[str, Any]) -> Presence | None:
    kind = _kind(dataset)
    if kind is None:
        return None
    folder = data_root(dataset.get("root")) / kind.folder
    read = [folder / file for part in (*kind.train, *kind.test) for file in part]
    lacking = [file for file in kind.files if not (folder / file).is_file()]
    packed = [folder / f"{file.name}.gz" for file in read]
    there = _files([*(folder / file for file in kind.files), *packed])
    short = (
        () if any(not file.is_file() for file in read) else _short(read, sum(kind.records) * prod(kind.image))
    )
    return Presence(folder, there, (*lacking, *short))


def _libsvm(dataset: Mapping[str, Any]) -> Presence:
    files = list(libsvm_files(dataset))
    return Presence(files[0].parent, _files(files), tuple(str(file) for file in files if not file.is_file()))


def libsvm_files(dataset: Mapping[str, Any]) -> dict[Path, str | None]:
    """The training file, the test file where there is one, and the sha256 that each should have."""
    folder, name = data_root(dataset.get("root")) / "libsvm", dataset.get("name")
    asked = [(dataset.get("path"), folder / f"{name}", dataset.get("sha256"))]
    if dataset.get("test_path") or dataset.get("test_url"):
        asked.append((dataset.get("test_path"), folder / f"{name}.t", dataset.get("test_sha256")))
    return {Path(path).expanduser() if path else default: sha256 for path, default, sha256 in asked}


def _leaf(dataset: Mapping[str, Any]) -> Presence:
    name = loader(dataset)
    folder = data_root(dataset.get("root")) / name / "data"
    parts = {f"{part}/*.json": sorted((folder / part).glob("*.json")) for part in ("train", "test")}
    if name == "reddit":
        words = vocabulary_file(dataset.get("vocabulary"), folder)
        parts[words.name] = [words] if words.is_file() else []
    there = _files([file for files in parts.values() for file in files])
    lacking = [pattern for pattern, files in parts.items() if not files]
    return Presence(folder, there, (*lacking, *(() if lacking else _short(there, prod(LEAF[name])))))


def _ixi(dataset: Mapping[str, Any]) -> Presence:
    folder = data_root(dataset.get("root")) / "IXI" / "IXI_sample"
    subjects = [path for path in sorted(folder.glob("IXI*")) if path.is_dir()]
    parts = {
        subject / part: sorted((subject / part).glob("*.nii*"))
        for subject in subjects
        for part in ("T1", "label")
    }
    lacking = [f"{part.relative_to(folder)}/*.nii.gz" for part, files in parts.items() if not files]
    there = _files([file for files in parts.values() for file in files])
    return Presence(folder, there, (*lacking, *_fewer(len(subjects), dataset.get("expected"), "subjects")))


def _messidor(dataset: Mapping[str, Any]) -> Presence:
    folder = data_root(dataset.get("root")) / "Messidor"
    files = sorted(folder.rglob("*"))
    images = [file for file in files if file.suffix.lower() in messidor.SUFFIXES and file.name[0] != "."]
    tables = [file for file in files if file.name == "labels.csv" or file.match("Annotation_Base*.csv")]
    lacking = [] if tables else ["labels.csv"]
    return Presence(
        folder,
        _files([*images, *tables]),
        (*lacking, *_fewer(len(images), dataset.get("expected"), "images")),
    )


def _fewer(found: int, expected: Any, what: str) -> tuple[str, ...]:
    return (
        (f"{expected - found} of {expected} {what}",)
        if isinstance(expected, int) and found < expected
        else ()
    )


def _short(files: list[Path] | tuple[Path, ...], least: int) -> tuple[str, ...]:
    """Empty, or how far these files are from holding the whole set."""
    found = _bytes(files)
    return (
        ()
        if found >= least
        else (f"records: the files have {size(found)}, the whole set at least {size(least)}",)
    )


def _files(files: list[Path]) -> tuple[Path, ...]:
    return tuple(file for file in files if file.is_file())


def _bytes(files: list[Path] | tuple[Path, ...]) -> int:
    return sum(file.stat().st_size for file in files)


def size(count: int) -> str:
    """A number of bytes for a person."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


_LOOK: dict[str, Callable[[Mapping[str, Any]], Presence | None]] = {
    **dict.fromkeys(("digits", "breast_cancer", "synthetic"), _none),
    **dict.fromkeys(LEAF, _leaf),
    "vision": _vision,
    "libsvm": _libsvm,
    "ixi": _ixi,
    "messidor": _messidor,
}
