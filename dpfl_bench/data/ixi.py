"""Fed-IXI (IXI Tiny): 566 T1 volumes of three London hospitals and their brain masks.

FLamby's fed_ixi resizes volume and mask to 48x60x48 by area (MONAI's Resize) without reorienting
them, normalises the volume to mean 0 and deviation 1 over all its voxels (NormalizeIntensity), and
cuts the mask to whole numbers, so that a voxel that is not wholly brain becomes background. Here
both are first reoriented to canonical axes (left to right, back to front, bottom to top), as
`balancing` says; size and normalisation are FLamby's; a voxel is brain where more than half of it
is, which keeps mask and volume aligned. FLamby's 249/62, 145/36 and 59/15 training and test volumes
come out of test_fraction 0.2, though not its very split.

`balancing` "based on the whole image histogram ... normalized the intensities", by "the same
pre-processing steps" as FLamby, whose code takes that histogram's mean and deviation and no other
landmark of it: `zscore`. `histogram` takes landmarks. Both look at one volume alone: no statistic
is shared.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from dpfl_bench.checks.ranges import COUNT
from dpfl_bench.data import source as sources
from dpfl_bench.data.files import check_regular
from dpfl_bench.data.folder import data_root
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.source import Dataset, Presence, Source

SHAPE = (48, 60, 48)
PERCENTILES = (1, 99)
MOST_VOXELS = 10**9
Normalise = Literal["zscore", "histogram"]
HOSPITALS = ("Guys", "HH", "IOP")
_STEPS = (
    "download 'IXI Sample Dataset' from https://data.mendeley.com/datasets/7kd5wj7v7p (after agreeing to its"
    " licence, CC BY-SA 3.0), unzip it and put its folder there, so that each subject is"
    " IXI_sample/IXI<number>-<Guys, HH or IOP>-<number> with T1/*.nii.gz and label/*.nii.gz; or set"
    " dataset.root or DPFL_DATA_DIR to where IXI/IXI_sample is"
)


def _folder(root: str | None) -> Path:
    return data_root(root) / "IXI" / "IXI_sample"


def _presence(dataset: Dataset) -> Presence:
    folder = _folder(dataset.get("root"))
    subjects = [path for path in sorted(folder.glob("IXI*")) if path.is_dir()]
    parts = {
        subject / part: sorted((subject / part).glob("*.nii*"))
        for subject in subjects
        for part in ("T1", "label")
    }
    missing = tuple(f"{part.relative_to(folder)}/*.nii.gz" for part, files in parts.items() if not files)
    there = sources.existing([file for files in parts.values() for file in files])
    return Presence(
        folder, there, missing, sources.too_few(len(subjects), dataset.get("expected"), "subjects")
    )


SOURCE = Source(how="by hand, after an agreement", presence=_presence)


def load(
    *, root: str | None, owners: Annotated[int | None, COUNT], normalise: Normalise, expected: int
) -> Records:
    """Volumes (n, 1, 48, 60, 48) float32 and masks (n, 48, 60, 48) uint8, in the order of the
    subjects' names.

    Read from ROOT/IXI/IXI_sample, one subject at a time. Each subject belongs to its hospital, of
    which those present are numbered (Guys, HH, IOP); with `owners`, subjects are dealt to that many
    owners in turn instead.
    """
    folder = _folder(root)
    subjects = _subjects(folder)
    x, y = np.empty((len(subjects), 1, *SHAPE), np.float32), np.empty((len(subjects), *SHAPE), np.uint8)
    known: dict[bytes, Path] = {}
    for index, subject in enumerate(subjects):
        x[index, 0], y[index] = preprocess(_only(subject / "T1"), _only(subject / "label"), normalise)
        twin = known.setdefault(hashlib.blake2b(x[index].tobytes()).digest(), subject)
        if twin != subject:
            raise DataError(f"{subject}: the same volume as {twin}: remove one of the two")
    belongs, whose = _owners([_hospital(subject) for subject in subjects], owners)
    return Records(x, y, x[:0], y[:0], belongs, 1, f"IXI Tiny in {folder}, {whose}", expected, task="segment")


def preprocess(image: Path, mask: Path, normalise: Normalise) -> tuple[np.ndarray, np.ndarray]:
    """A normalised volume, float32, and its mask, uint8 zeros and ones; both 48x60x48 in canonical
    axes.
    """
    (volume, where), (brain, brain_where) = _read(image), _read(mask)
    if volume.shape != brain.shape:
        raise DataError(
            f"{mask}: a mask of {brain.shape} voxels for a volume of {volume.shape}: replace one of the two"
            " files"
        )
    if _apart(where, brain_where, volume.shape) > 0.5:
        raise DataError(
            f"{mask}: lies elsewhere than {image} (their affines differ): replace one of the two files"
        )
    if not np.isin(brain, (0, 1)).all():
        raise DataError(f"{mask}: expected a mask of zeros and ones: replace the file")
    if not 0 < brain.mean() < 1:
        raise DataError(f"{mask}: expected some brain and some background: replace the file")
    if not np.isfinite(volume).all() or volume.min() == volume.max():
        raise DataError(f"{image}: expected finite intensities that differ from each other: replace the file")
    small = resize(by_histogram(volume) if normalise == "histogram" else volume, SHAPE)
    if normalise == "zscore":
        small = (small - small.mean()) / small.std()
    return small.astype(np.float32), (resize(brain, SHAPE) > 0.5).astype(np.uint8)


def by_histogram(volume: np.ndarray) -> np.ndarray:
    """The 1st percentile of all voxels becomes 0, the 99th 1, linearly between; what lies beyond
    stays at 0 and 1.
    """
    low, high = np.percentile(volume, PERCENTILES)
    if low == high:  # nearly everything is one value
        low, high = volume.min(), volume.max()
    scaled: np.ndarray = ((volume - low) / (high - low)).clip(0, 1)
    return scaled


def resize(volume: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The mean of each new voxel's window, as torch's adaptive average pooling and MONAI's Resize
    by area.
    """
    for axis, size in enumerate(shape):
        length = volume.shape[axis]
        start = np.arange(size) * length // size
        end = -(-np.arange(1, size + 1) * length // size)
        inside = (np.arange(length) >= start[:, None]) & (np.arange(length) < end[:, None])
        volume = np.moveaxis(np.tensordot(inside / (end - start)[:, None], volume, (1, axis)), 0, axis)
    return volume


def _read(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """A file's voxels in canonical axes, and the (4, 4) matrix that places them in the scanner."""
    nibabel = _nibabel()
    check_regular(file, "replace it")
    try:
        _check_header(nibabel, file)
        image = nibabel.as_closest_canonical(nibabel.load(file))
        voxels, place = np.asarray(image.dataobj, np.float32), np.asarray(image.affine, float)
    except Exception as error:  # nibabel raises anything on bytes that are no volume
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{file}: cannot read it as NIfTI ({reason}): replace the file, it may be cut short"
        ) from error
    if voxels.ndim != 3 or 0 in voxels.shape:
        raise DataError(
            f"{file}: expected a volume of three axes, found shape {voxels.shape}: replace the file"
        )
    return voxels, place


def _check_header(nibabel: Any, file: Path) -> None:
    """Refuse, before its voxels are read, a NIfTI-1 header that promises too much or places them
    nowhere.
    """
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        header = nibabel.Nifti1Header.from_fileobj(opened, check=False)
    if int(header["sizeof_hdr"]) != 348:
        return  # of another format, which nibabel knows or refuses
    shape = [int(size) for size in header["dim"][1 : 1 + max(0, min(7, int(header["dim"][0])))]]
    if any(size < 1 for size in shape) or math.prod(shape) > MOST_VOXELS:
        raise ValueError(f"dim {shape}, expected 1 to {MOST_VOXELS} voxels")
    if not (math.isfinite(header["scl_slope"]) and math.isfinite(header["scl_inter"])):
        raise ValueError("scl_slope or scl_inter is no number")
    place = header.get_best_affine()
    if not np.isfinite(place).all() or np.linalg.matrix_rank(place[:3, :3]) < 3:
        raise ValueError("its affine places all voxels on a plane")


def _apart(one: np.ndarray, other: np.ndarray, shape: tuple[int, ...]) -> float:
    """How many voxels two placements of the same grid are apart, at most, at its first and last
    voxel.
    """
    ends = np.array([[0, 0, 0, 1], [*(size - 1 for size in shape), 1]]).T
    return float(np.abs(np.linalg.pinv(one) @ other @ ends - ends).max())


def _nibabel() -> Any:
    try:
        import nibabel
    except ImportError as error:
        raise DataError(
            "ixi: reading NIfTI files needs nibabel: pip install 'dpfl-bench[medical]'"
        ) from error
    return nibabel


def _subjects(folder: Path) -> list[Path]:
    subjects = sorted(path for path in folder.glob("IXI*") if path.is_dir())
    if not subjects:
        problem = "holds no folder of a subject" if folder.is_dir() else "is not there"
        raise DataError(f"ixi: {folder} {problem}: {_STEPS}")
    known: dict[str, Path] = {}
    for path in subjects:
        if known.setdefault(number := path.name.partition("-")[0], path) != path:
            raise DataError(f"{path}: subject {number} is in {known[number].name} too: keep one folder")
    return subjects


def _hospital(subject: Path) -> str:
    match = re.fullmatch(r"IXI\d+-([A-Za-z]+)-\d+", subject.name)
    if match is None or match[1] not in HOSPITALS:
        raise DataError(
            f"{subject}: expected a name IXI<number>-<{', '.join(HOSPITALS)}>-<number>: rename or remove the"
            " folder"
        )
    return match[1]


def _only(folder: Path) -> Path:
    files = sorted(folder.glob("*.nii.gz")) + sorted(folder.glob("*.nii"))
    if len(files) != 1:
        advice = "keep one" if files else "put it there, or remove the subject"
        raise DataError(f"{folder}: expected one file *.nii.gz (or .nii), found {len(files)}: {advice}")
    return files[0]


def _owners(hospitals: list[str], count: int | None) -> tuple[np.ndarray, str]:
    """Each subject's owner, and a few words that say what an owner is."""
    if count is None:
        present = [name for name in HOSPITALS if name in hospitals]
        return np.array([present.index(name) for name in hospitals]), f"hospitals {', '.join(present)}"
    if not 1 <= count <= len(hospitals):
        raise DataError(
            f"dataset.owners={count}: expected 1 to {len(hospitals)} owners (the subjects), or null for the"
            " hospitals"
        )
    return np.arange(len(hospitals)) % count, f"dealt to {count} owners in turn"
