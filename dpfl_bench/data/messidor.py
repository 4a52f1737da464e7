"""Messidor: 1200 photographs of the eye's fundus, graded for diabetic retinopathy, of three French
hospitals.

As `balancing` prepares them: black edges cropped at threshold 1, resized to 224x224, labels 0
(grade 0) and 1 (grades 1 to 3: any retinopathy). The original distribution has a folder Base11 ...
Base34 and a table Annotation_Base11.xls ... for each hundred images; the first digit is the
hospital.
"""

from __future__ import annotations

import csv
import hashlib
import re
import struct
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from dpfl_bench.checks.ranges import COUNT
from dpfl_bench.data import source as sources
from dpfl_bench.data.files import check_regular
from dpfl_bench.data.folder import data_root
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.source import Dataset, Presence, Source

SIZE = 224
LEAST_SIZE = 16  # pixels of a photograph; the published ones have 960 and more
THRESHOLD = 1  # grey levels above the camera's black
_NOT_BLACK = 8  # a corner this bright is part of the picture
SUFFIXES = {".tif", ".tiff", ".png", ".jpg", ".jpeg"}
_COLUMNS = {
    "image": ("image", "image name"),
    "grade": ("grade", "retinopathy grade"),
    "hospital": ("hospital",),
}
_LABELS = (
    "put labels.csv there (header image,grade,hospital; one line for each image, grade 0 to 3), or export"
    " each Annotation_Base11.xls ... Annotation_Base34.xls to CSV under the same name (Annotation_Base11.csv"
    " ...)"
)
_STEPS = (
    "agree to the terms and download Base11 ... Base34 (.zip and .xls) from"
    " https://www.adcis.net/en/third-party/messidor/, unzip them into the folders Base11 ... Base34 there,"
    f" then {_LABELS}; or set dataset.root or DPFL_DATA_DIR to where Messidor is"
)


def _images(folder: Path) -> list[Path]:
    """In any folder below, but for hidden files."""
    files = sorted(folder.rglob("*"))
    return [path for path in files if path.suffix.lower() in SUFFIXES and path.name[0] != "."]


def _tables(folder: Path) -> list[Path]:
    """labels.csv where it is there, else the original tables."""
    own = folder / "labels.csv"
    return [own] if own.is_file() else sorted(folder.rglob("Annotation_Base*.csv"))


def _presence(dataset: Dataset) -> Presence:
    folder = data_root(dataset.get("root")) / "Messidor"
    images, tables = _images(folder), _tables(folder)
    there = sources.existing([*images, *tables])
    fewer = sources.too_few(len(images), dataset.get("expected"), "images")
    return Presence(folder, there, () if tables else ("labels.csv",), fewer)


SOURCE = Source(how="by hand, after an agreement", presence=_presence)


class Row(NamedTuple):
    """One image as the tables have it; `line` says where."""

    image: str
    grade: int
    hospital: str
    line: str


def load(*, root: str | None, owners: Annotated[int | None, COUNT], expected: int) -> Records:
    """Images (n, 3, 224, 224) uint8 and labels 0 or 1, in the order of hospitals and names.

    Read from ROOT/Messidor: labels.csv, else Annotation_Base*.csv, and the images in any folder
    below. Each image belongs to its hospital (in sorted order); with `owners`, images are dealt to
    that many owners in turn instead.
    """
    folder = data_root(root) / "Messidor"
    rows = sorted(_rows(folder), key=lambda row: (row.hospital, row.image))
    files = _files(folder, rows)
    x = np.empty((len(files), 3, SIZE, SIZE), np.uint8)
    known: set[bytes] = set()
    for index, file in enumerate(files):
        x[index] = preprocess(file)
        known.add(hashlib.blake2b(x[index].tobytes()).digest())
    copies = f", {len(files) - len(known)} images are copies of others" if len(known) < len(files) else ""
    y = np.array([row.grade >= 1 for row in rows], np.int64)
    belongs, whose = _owners([row.hospital for row in rows], owners)
    return Records(x, y, x[:0], y[:0], belongs, 2, f"Messidor in {folder}, {whose}{copies}", expected)


def preprocess(file: Path) -> np.ndarray:
    """A photograph without its black edges, (3, 224, 224) uint8. The aspect ratio is not kept: what
    is left is nearly square.
    """
    pil = _pil()
    unreadable = (OSError, EOFError, SyntaxError, ValueError, struct.error, pil.DecompressionBombError)
    check_regular(file, "replace it")
    try:
        with pil.open(file) as opened:
            image = opened.convert("RGB")
    except unreadable as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{file}: cannot read it as an image ({reason}): replace the file, it may be cut short"
        ) from error
    if min(image.size) < LEAST_SIZE:
        raise DataError(
            f"{file}: {image.width} x {image.height} pixels, expected at least {LEAST_SIZE} each way: replace"
            " the file"
        )
    box = crop_box(np.asarray(image.convert("L")))
    if box is None:
        raise DataError(f"{file}: the image is black all over: replace the file")
    image = image.crop(box).resize((SIZE, SIZE), pil.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def crop_box(grey: np.ndarray) -> tuple[int, int, int, int] | None:
    """Left, top, right and bottom (exclusive) of what is not black edge in grey (h, w) uint8; None
    if all is black.

    An outer row or column is edge while its mean is at most THRESHOLD above black. Black is the
    mean of the brightest corner: a camera's black is not 0 (1 to 2 in Messidor, with JPEG's noise
    up to 7), so single pixels tell nothing.
    """
    side = max(1, min(grey.shape) // 16)
    ends = (slice(side), slice(-side, None))
    corners = [float(grey[rows, columns].mean()) for rows in ends for columns in ends]
    black = max((level for level in corners if level < _NOT_BLACK), default=0.0)
    columns, rows = (np.flatnonzero(grey.mean(axis) > black + THRESHOLD) for axis in (0, 1))
    if not (len(rows) and len(columns)):
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _pil() -> Any:
    try:
        import PIL.Image
    except ImportError as error:
        raise DataError("messidor: reading images needs Pillow: pip install 'dpfl-bench[medical]'") from error
    return PIL.Image


def _rows(folder: Path) -> list[Row]:
    """What the tables say, or a DataError that says which are expected."""
    if not folder.is_dir():
        raise DataError(f"messidor: {folder} is not there: {_STEPS}")
    tables = _tables(folder)
    if not tables:
        sheet = next(folder.rglob("Annotation_Base*.xls*"), None)
        problem, steps = (
            (f"{sheet.name} is there, which is not read", _LABELS) if sheet else ("no labels.csv", _STEPS)
        )
        raise DataError(f"messidor: labels are missing in {folder} ({problem}): {steps}")
    return [row for table in tables for row in _table(table)]


def _table(file: Path) -> list[Row]:
    match = re.match(r"Annotation_Base([1-3])[1-4]", file.name)
    needed = ["image", "grade", *([] if match else ["hospital"])]
    check_regular(file, "replace it")
    lines = file.read_text(
        "utf-8-sig", errors="replace"
    ).splitlines()  # Excel's code page in columns that are not read
    try:
        split = list(csv.reader(lines, delimiter=";" if lines and ";" in lines[0] else ","))
    except csv.Error:  # a field without end
        split = []
    titles = [title.strip().lower() for title in split[0]] if split else []
    where = {
        name: next((i for i, title in enumerate(titles) if title in _COLUMNS[name]), None) for name in needed
    }
    if None in where.values() or len(split) < 2:
        columns = ", ".join(_COLUMNS[name][-1 if match else 0] for name in needed)
        raise DataError(
            f"{file}: expected CSV with the columns {columns} and a line for each image: export it again"
        )
    rows = []
    for number, cells in enumerate(split[1:], 2):
        cells_of = {
            name: cells[i].strip() if i is not None and i < len(cells) else "" for name, i in where.items()
        }
        if any(cells_of.values()):
            rows.append(_row(cells_of, match[1] if match else cells_of["hospital"], f"{file}, line {number}"))
    return rows


def _row(cells: dict[str, str], hospital: str, line: str) -> Row:
    empty = [name for name, value in cells.items() if not value]
    if empty:
        raise DataError(f"{line}: no {empty[0]}: fill it in")
    if cells["grade"] not in ("0", "1", "2", "3"):
        raise DataError(
            f"{line}: grade {cells['grade']}: expected a retinopathy grade 0, 1, 2 or 3: correct it"
        )
    return Row(cells["image"], int(cells["grade"]), hospital, line)


def _files(folder: Path, rows: list[Row]) -> list[Path]:
    """Each row's image; a folder of which some images are listed must have all of its images
    listed.
    """
    images = _images(folder)
    named: dict[str, list[Path]] = defaultdict(list)
    for path in images:
        for name in {path.name, path.relative_to(folder).as_posix()}:
            named[name].append(path)
    lines: dict[Path, str] = {}
    for row in rows:
        matches = named[row.image]
        if len(matches) != 1:
            advice = "give its folder too (folder/name)" if matches else "put it there, or remove the line"
            raise DataError(
                f"{row.line}: {len(matches)} images {row.image} in {folder} and its folders, expected one:"
                f" {advice}"
            )
        if matches[0] in lines:
            raise DataError(
                f"{row.line}: {row.image} is listed in {lines[matches[0]]} already: remove one of the two"
            )
        lines[matches[0]] = row.line
    folders = {file.parent for file in lines}
    missing = [path for path in images if path.parent in folders and path not in lines]
    if missing:
        raise DataError(
            f"messidor: {len(missing)} images have no line in the labels, such as {missing[0]}: add it, or"
            " move the image away"
        )
    return list(lines)


def _owners(hospitals: list[str], count: int | None) -> tuple[np.ndarray, str]:
    """Each image's owner, and a few words that say what an owner is."""
    if count is None:
        names, belongs = np.unique(hospitals, return_inverse=True)
        return belongs.astype(np.int64), f"hospitals {', '.join(names)}"
    if not 1 <= count <= len(hospitals):
        raise DataError(
            f"dataset.owners={count}: expected 1 to {len(hospitals)} owners (the images), or null for the"
            " hospitals"
        )
    return np.arange(len(hospitals)) % count, f"dealt to {count} owners in turn"
