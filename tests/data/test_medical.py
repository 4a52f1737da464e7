"""Fed-IXI and Messidor: the preprocessing on real files, who owns what, and what is said of bad
files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.federations import settings_of
from scipy import ndimage

from dpfl_bench import rng
from dpfl_bench.assembly.data import load_data
from dpfl_bench.data import features, ixi, messidor
from dpfl_bench.data.augment import augmented
from dpfl_bench.data.prepare import prepare
from dpfl_bench.data.records import DataError, Records

nibabel = pytest.importorskip("nibabel", reason="pip install 'dpfl-bench[medical]'")
pil = pytest.importorskip("PIL.Image", reason="pip install 'dpfl-bench[medical]'")


def real_data(folder: str) -> Path:
    """The folder of real files, or a skip that says how to get them."""
    root = Path(os.environ.get("DPFL_DATA_DIR", ""))
    if "DPFL_DATA_DIR" not in os.environ or not (root / folder).is_dir():
        pytest.skip(f"real data: set DPFL_DATA_DIR to a folder with {folder}")
    return root


# --- IXI


def volumes(
    root: Path, owners: int | None = None, normalise: ixi.Normalise = "zscore", expected: int = 566
) -> Records:
    return ixi.load(root=str(root), owners=owners, normalise=normalise, expected=expected)


def dice(one: np.ndarray, other: np.ndarray) -> float:
    return 2 * float((one * other).sum()) / float(one.sum() + other.sum())


def in_the_scanner(file: Path, order: int) -> np.ndarray:
    """The raw file at the centres of 48x60x48 equal boxes, found by scanner coordinates: no
    reorientation, no windows.
    """
    raw = nibabel.load(file)
    corners = np.array(np.meshgrid(*[(-0.5, size - 0.5) for size in raw.shape], indexing="ij")).reshape(3, -1)
    ends = raw.affine[:3, :3] @ corners + raw.affine[:3, 3:]
    low, high = ends.min(axis=1), ends.max(axis=1)
    axes = [low[i] + (np.arange(n) + 0.5) * (high[i] - low[i]) / n for i, n in enumerate(ixi.SHAPE)]
    points = np.array(np.meshgrid(*axes, indexing="ij")).reshape(3, -1)
    voxels = np.linalg.inv(raw.affine[:3, :3]) @ (points - raw.affine[:3, 3:])
    values = np.asarray(raw.dataobj, float)
    return ndimage.map_coordinates(values, voxels, order=order, mode="nearest").reshape(ixi.SHAPE)


@pytest.mark.slow
def test_real_volumes_and_masks_stay_aligned() -> None:
    root = real_data("IXI/IXI_sample")
    loaded = volumes(root)
    assert loaded.train_x.shape == (12, 1, 48, 60, 48)
    assert loaded.train_x.dtype == np.float32
    assert loaded.train_y.shape == (12, 48, 60, 48)
    assert loaded.train_y.dtype == np.uint8
    assert set(np.unique(loaded.train_y)) == {0, 1}
    assert (loaded.subset, loaded.task, loaded.classes) == ("subset 12 of 566", "segment", 1)
    assert loaded.source.endswith("hospitals HH")
    assert loaded.owners is not None
    assert loaded.owners.tolist() == [0] * 12
    assert np.abs(loaded.train_x.mean(axis=(1, 2, 3, 4))).max() < 1e-4
    assert np.abs(loaded.train_x.std(axis=(1, 2, 3, 4)) - 1).max() < 1e-4
    for subject, volume, mask in zip(
        sorted((root / "IXI/IXI_sample").glob("IXI*")), loaded.train_x[:, 0], loaded.train_y, strict=True
    ):
        raw = (in_the_scanner(next((subject / "label").iterdir()), order=1) > 0.5).astype(np.uint8)
        assert dice(mask, raw) >= 0.98
        image = ndimage.gaussian_filter(in_the_scanner(next((subject / "T1").iterdir()), order=1), 0.5)
        assert np.corrcoef(volume.ravel(), image.ravel())[0, 1] >= 0.97
        # what a wrong axis or a shift of two voxels would do
        assert all(dice(np.flip(mask, axis), raw) < 0.98 for axis in range(3))
        assert all(dice(np.roll(mask, 2, axis), raw) < 0.98 for axis in range(3))


@pytest.mark.slow
def test_real_volumes_by_their_histogram() -> None:
    root = real_data("IXI/IXI_sample")
    plain, made = volumes(root), volumes(root, normalise="histogram")
    assert (made.train_y == plain.train_y).all()  # masks are no intensities
    assert made.train_x.dtype == np.float32
    assert (made.train_x.min(), made.train_x.max()) == (0, pytest.approx(1, abs=0.05))
    for subject, scored, volume in zip(
        sorted((root / "IXI/IXI_sample").glob("IXI*")), plain.train_x, made.train_x, strict=True
    ):
        low, high = np.percentile(
            np.asarray(nibabel.load(next((subject / "T1").iterdir())).dataobj, float), (1, 99)
        )
        raw = in_the_scanner(next((subject / "T1").iterdir()), order=1)
        middle = (raw > low) & (raw < high)
        found = np.polyfit(((raw - low) / (high - low))[middle], volume[0][middle], 1)
        assert np.abs(found - [1, 0]).max() < 0.06  # the same line, up to how voxels were resampled
        assert np.corrcoef(scored.ravel(), volume.ravel())[0, 1] > 0.97
        worse = np.polyfit(((raw - raw.min()) / (raw.max() - raw.min()))[middle], volume[0][middle], 1)
        assert worse[0] > 1.5  # the negative control: the smallest and largest as landmarks


def test_percentiles_become_zero_and_one() -> None:
    volume = rng.generator(0, "volume").permutation(np.arange(1001.0)).reshape(7, 11, 13) * 3 + 50
    volume[volume == volume.max()] = 1e6  # a bright voxel moves nothing
    made = ixi.by_histogram(volume)
    low, high = 3 * 10 + 50, 3 * 990 + 50  # the 1st and 99th of 1001
    assert np.abs(made[volume == low]).max() < 1e-12
    assert np.abs(made[volume == high] - 1).max() < 1e-12
    assert made[volume == (low + high) / 2] == pytest.approx(0.5, abs=1e-12)
    assert ((made == 0).sum(), (made == 1).sum()) == (11, 11)
    assert np.array_equal(
        np.argsort(made[(made > 0) & (made < 1)]), np.argsort(volume[(made > 0) & (made < 1)])
    )
    assert np.abs(ixi.by_histogram(7 * volume - 3) - made).max() < 1e-12  # a scanner's scale does not matter
    scored = (volume - volume.mean()) / volume.std()
    assert (
        abs(scored[volume == high] - 1).max() > 0.1
    )  # the negative control: landmarks of another normalisation
    almost_black = np.zeros(1000)
    almost_black[0] = 5
    assert ixi.by_histogram(almost_black)[:2].tolist() == [1, 0]


@pytest.mark.parametrize("length", [(7, 5, 9), (4, 6, 4), (3, 2, 2)])
def test_resizing_is_torchs_adaptive_pooling(length: tuple[int, ...]) -> None:
    volume = rng.generator(0, "volume").normal(size=length)
    expected = torch.nn.functional.adaptive_avg_pool3d(torch.from_numpy(volume)[None], (4, 3, 4))[0].numpy()
    assert np.abs(ixi.resize(volume, (4, 3, 4)) - expected).max() < 1e-12


def subject(
    root: Path,
    name: str = "IXI002-Guys-0828",
    shape: tuple[int, ...] = (6, 8, 5),
    affine: np.ndarray | None = None,
) -> Path:
    """A small made-up subject under ROOT/IXI/IXI_sample."""
    folder = root / "IXI/IXI_sample" / name
    values = rng.generator(0, name[:16]).normal(100, 10, shape)
    place = np.diag([2.0, 2, 2, 1]) if affine is None else affine
    for kind, data in (("T1", values), ("label", (values > 100).astype(np.uint8))):
        (folder / kind).mkdir(parents=True)
        nibabel.save(nibabel.Nifti1Image(data, place), folder / kind / f"{name}_{kind}.nii.gz")
    return folder


@pytest.mark.slow
def test_hospitals_present_are_numbered(tmp_path: Path) -> None:
    for name in ("IXI001-IOP-0001", "IXI002-Guys-0002", "IXI003-IOP-0003", "IXI004-IOP-0004"):
        subject(tmp_path, name)
    hospitals = volumes(tmp_path, expected=4)
    assert hospitals.owners is not None
    assert hospitals.owners.tolist() == [1, 0, 1, 1]
    assert hospitals.source.endswith("hospitals Guys, IOP")
    assert hospitals.subset == ""
    dealt = volumes(tmp_path, owners=3)
    assert dealt.owners is not None
    assert dealt.owners.tolist() == [0, 1, 2, 0]
    assert dealt.source.endswith("dealt to 3 owners in turn")
    with pytest.raises(DataError, match=r"dataset.owners=5: expected 1 to 4"):
        volumes(tmp_path, owners=5)


@pytest.mark.parametrize("normalise", ["zscore", "histogram"])
def test_a_subject_s_intensities_move_nobody_else_s_volume(normalise: ixi.Normalise, tmp_path: Path) -> None:
    folders = [
        subject(tmp_path, f"IXI00{i}-{hospital}-000{i}") for i, hospital in enumerate(("Guys", "HH", "IOP"))
    ]
    before = volumes(tmp_path, normalise=normalise).train_x
    bright = np.random.default_rng(0).normal(1e6, 1e6, (6, 8, 5))
    bright[0, 0, 0] = -1e12
    save(t1(folders[1]), bright)
    after = volumes(tmp_path, normalise=normalise).train_x
    assert [before[i].tobytes() == after[i].tobytes() for i in range(3)] == [True, False, True]


def test_stored_orders_of_axes_come_out_the_same(tmp_path: Path) -> None:
    plain = subject(tmp_path / "plain")
    turned = tmp_path / "turned"
    for kind in ("T1", "label"):
        image = nibabel.load(next((plain / kind).iterdir()))
        (turned / kind).mkdir(parents=True)
        as_psr = nibabel.orientations.ornt_transform(
            nibabel.io_orientation(image.affine), nibabel.orientations.axcodes2ornt("PSR")
        )
        nibabel.save(image.as_reoriented(as_psr), turned / kind / "x.nii")
    (one, mask), (other, other_mask) = (
        ixi.preprocess(*(next((at / k).iterdir()) for k in ("T1", "label")), "zscore")
        for at in (plain, turned)
    )
    assert np.abs(one - other).max() < 1e-5
    assert (mask == other_mask).all()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def t1(folder: Path) -> Path:
    return next((folder / "T1").iterdir())


def label(folder: Path) -> Path:
    return next((folder / "label").iterdir())


def save(file: Path, data: np.ndarray, shift: float = 0.0) -> None:
    place = np.diag([2.0, 2, 2, 1])
    place[0, 3] = shift
    nibabel.save(nibabel.Nifti1Image(data, place), file)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda at: cut(t1(at)), r"T1.nii.gz: cannot read it as NIfTI .*cut short"),
        (lambda at: cut(label(at)), r"label.nii.gz: cannot read it as NIfTI .*cut short"),
        (lambda at: t1(at).write_bytes(b""), r"T1.nii.gz: cannot read it as NIfTI"),
        (lambda at: t1(at).write_text("not a volume"), r"T1.nii.gz: cannot read it as NIfTI"),
        (lambda at: label(at).unlink(), r"label: expected one file \*.nii.gz .*, found 0: put it there"),
        (
            lambda at: save(at / "T1/second.nii", np.ones((6, 8, 5))),
            r"T1: expected one file .*, found 2: keep one",
        ),
        (
            lambda at: save(label(at), np.ones((6, 8, 4), np.uint8)),
            r"a mask of \(6, 8, 4\) voxels for a volume of \(6, 8, 5\)",
        ),
        (
            lambda at: save(label(at), np.ones((6, 8, 5), np.uint8), shift=4.0),
            r"lies elsewhere than .*affines differ",
        ),
        (lambda at: save(label(at), np.full((6, 8, 5), 2, np.uint8)), r"expected a mask of zeros and ones"),
        (lambda at: save(t1(at), np.ones((6, 8, 5))), r"expected finite intensities that differ"),
        (lambda at: save(t1(at), np.full((6, 8, 5), np.nan)), r"expected finite intensities that differ"),
        (
            lambda at: save(t1(at), np.ones((6, 8, 5, 2))),
            r"expected a volume of three axes, found shape \(6, 8, 5, 2\)",
        ),
        (
            lambda at: at.rename(at.with_name("IXI002-Nowhere-0828")),
            r"expected a name IXI<number>-<Guys, HH, IOP>-<number>",
        ),
    ],
)
def test_bad_subjects_are_refused(spoil: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    spoil(subject(tmp_path))
    with pytest.raises(DataError, match=message) as caught:
        volumes(tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_ixi_lists_the_steps(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"IXI/IXI_sample is not there: download .*mendeley.* T1/\*.nii.gz and label/.*DPFL_DATA_DIR",
    ):
        volumes(tmp_path)
    (tmp_path / "IXI/IXI_sample").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no folder of a subject"):
        volumes(tmp_path)


def test_missing_libraries_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject(tmp_path)
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(DataError, match=r"nibabel: pip install 'dpfl-bench\[medical\]'"):
        volumes(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match=r"Pillow: pip install 'dpfl-bench\[medical\]'"):
        messidor.preprocess(tmp_path / "x.png")


@pytest.mark.parametrize(
    ("sizes", "fraction", "test"),
    [((311, 181, 74), 0.2, [62, 36, 15]), ((400, 400, 400), 0.25, [100, 100, 100])],
)
def test_the_papers_test_sets_come_out(sizes: tuple[int, ...], fraction: float, test: list[int]) -> None:
    owners = np.repeat(np.arange(3), sizes)
    x, y = np.zeros((len(owners), 1), np.float32), np.zeros(len(owners), np.int64)
    done = prepare(
        Records(x, y, x[:0], y[:0], owners, 2, "made up", None),
        test_fraction=fraction,
        standardise="none",
        unit_norm=False,
        seed=0,
    )
    assert done.owners is not None
    assert (np.array(sizes) - np.bincount(done.owners)).tolist() == test


# --- Messidor


def photographs() -> list[Path]:
    return sorted((real_data("Messidor/images_512") / "Messidor").glob("images*/*"))


def test_the_crop_removes_the_border_of_all_real_images() -> None:
    files = photographs()
    assert len({file.stem for file in files}) == 20
    for file in files:
        pixels = np.asarray(pil.open(file).convert("RGB"))
        grey = np.asarray(pil.open(file).convert("L"))
        left, top, right, bottom = box = messidor.crop_box(grey) or (0, 0, 0, 0)
        # the disc by another measure: rows and columns of which 2 % are clearly lit in red
        lit = pixels[..., 0] > 20
        columns, rows = (np.flatnonzero(lit.mean(axis) > 0.02) for axis in (0, 1))
        apart = np.abs(np.array(box) - [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
        assert apart.max() <= 0.01 * grey.shape[1], file.name
        cropped = grey[top:bottom, left:right]
        assert cropped.size < 0.65 * grey.size, file.name  # there was a border
        for edge in (cropped[0], cropped[-1], cropped[:, 0], cropped[:, -1]):
            assert edge.max() > 20, file.name  # black is up to 7 here
        assert 0.97 < (right - left) / (bottom - top) < 1.03, file.name
        assert messidor.crop_box(cropped) == (0, 0, right - left, bottom - top), file.name


def test_real_images_come_out_224_wide() -> None:
    for file in photographs():
        image = messidor.preprocess(file)
        assert image.shape == (3, 224, 224)
        assert image.dtype == np.uint8
        assert image.flags.c_contiguous
        red, _, blue = image.mean(axis=(1, 2))
        assert red > 1.5 * blue, file.name  # channels in order: a fundus is red
        # the disc fills the square: lit in the middle of each side, dark in the corners
        middles = [image[0, 4, 112], image[0, -5, 112], image[0, 112, 4], image[0, 112, -5]]
        assert min(middles) > 20, file.name
        assert max(image[0, i, j] for i in (0, -1) for j in (0, -1)) < 20, file.name


def test_the_real_sample_has_no_labels() -> None:
    root = real_data("Messidor/images_512")
    with pytest.raises(
        DataError,
        match=(
            r"labels are missing in .*Messidor .*Base11 .*labels.csv"
            r" .*image,grade,hospital.*Annotation_Base11.csv"
        ),
    ):
        load(root)


def photograph(file: Path, size: tuple[int, int] = (60, 40)) -> None:
    """A lit disc with a gradient, on a noisy black ground."""
    width, height = size
    draw = rng.generator(0, "photograph", sum(map(ord, file.name)))
    rows, columns = np.mgrid[:height, :width]
    disc = np.hypot(rows - height / 2, columns - width / 2) < 0.45 * height
    pixels = draw.integers(0, 3, (height, width, 3))
    pixels[disc] = np.stack([60 + 180 * columns / width, 40 + 120 * rows / height, 20 + 0 * rows], axis=-1)[
        disc
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    pil.fromarray(pixels.astype(np.uint8)).save(file)


def load(root: Path, owners: int | None = None) -> Records:
    return messidor.load(root=str(root), owners=owners, expected=1200)


LABELS = "image,grade,hospital\na.png,0,B\nb.png,1,A\nc.png,3,B\n"


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    for name in "abc":
        photograph(tmp_path / f"Messidor/images/{name}.png")
    (tmp_path / "Messidor/labels.csv").write_text(LABELS)
    return tmp_path


def test_labels_csv(labelled: Path) -> None:
    loaded = load(labelled)
    assert loaded.train_x.shape == (3, 3, 224, 224)
    assert loaded.train_x.dtype == np.uint8
    assert loaded.train_y.tolist() == [1, 0, 1]  # b of A, then a and c of B
    assert loaded.owners is not None
    assert loaded.owners.tolist() == [0, 1, 1]
    assert (loaded.subset, loaded.task, loaded.classes) == ("subset 3 of 1200", "classify", 2)
    for index, name in enumerate("bac"):
        assert (loaded.train_x[index] == messidor.preprocess(labelled / f"Messidor/images/{name}.png")).all()
    dealt = load(labelled, owners=3)
    assert dealt.owners is not None
    assert dealt.owners.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match=r"dataset.owners=4: expected 1 to 3"):
        load(labelled, owners=4)


def test_the_distributions_own_tables(tmp_path: Path) -> None:
    folder = tmp_path / "Messidor"
    for base, name in (("Base11", "a"), ("Base22", "b"), ("Base34", "c")):
        photograph(folder / base / f"{name}.tif")
    header = "Image name;Ophthalmologic department;Retinopathy grade;Risk of macular edema \n"
    (folder / "Base11/Annotation_Base11.csv").write_text(
        header + "a.tif;Service Ophtalmologie Lariboisière;2;0\n", encoding="cp1252"
    )
    (folder / "Annotation_Base22.csv").write_text(
        header.replace(";", ",") + "b.tif,LaTIM - CHU de BREST,0,1\n,,,\n"
    )
    (folder / "Annotation_Base34.csv").write_text(header + "c.tif;CHU de St Etienne;1;0\n")
    loaded = load(tmp_path)
    assert loaded.train_y.tolist() == [1, 0, 1]
    assert loaded.owners is not None
    assert loaded.owners.tolist() == [0, 1, 2]


@pytest.mark.parametrize("split", ["global", "client"])
def test_training_images_alone_are_augmented(split: str, labelled: Path) -> None:
    """As a run loads them."""
    for name in "defgh":
        photograph(labelled / f"Messidor/images/{name}.png")
    (labelled / "Messidor/labels.csv").write_text(
        LABELS + "".join(f"{name}.png,{i % 2},{'AB'[i % 2]}\n" for i, name in enumerate("defgh"))
    )
    asked = [
        "dataset=messidor",
        f"dataset.root={labelled}",
        f"dataset.split={split}",
        "clients=2",
        *(["partition=iid"] * (split == "client")),
    ]
    choices = (
        ["dataset.augment=false"],
        ["dataset.augment=true"],
        [],
    )  # the last is the default: as `balancing`
    plain, made, again = (load_data(settings_of(*asked, *choice)).records for choice in choices)
    assert (len(made.train_y), len(made.test_y)) == (6, 2)
    assert (made.test_x == plain.test_x).all()
    assert (made.train_x == again.train_x).all()
    assert (made.train_y == plain.train_y).all()
    assert all((one != other).any() for one, other in zip(made.train_x, plain.train_x, strict=True))
    assert made.source.endswith("training images augmented")
    assert "augmented" not in plain.source
    # the negative control: had test images been augmented, they would show it
    assert all(
        (one != other).any() for one, other in zip(augmented(plain.test_x, 0), plain.test_x, strict=True)
    )


def test_augmentation_depends_on_its_seed_alone(labelled: Path) -> None:
    plain = load(labelled).train_x
    one, again, other = (augmented(plain, seed) for seed in (0, 0, 1))
    assert (one == again).all()
    assert (one[:2] == augmented(plain[:2], 0)).all()  # each image by its own generator
    assert all((one[i] != other[i]).any() for i in range(3))
    assert (load(labelled).train_x == plain).all()
    assert (one.dtype, one.shape) == (plain.dtype, plain.shape)


def test_a_photograph_and_its_absence_move_nobody_else_s(labelled: Path) -> None:
    """Neither what an image looks like nor whether it is there decides how another is cropped,
    flipped or turned.
    """
    before = augmented(load(labelled).train_x, 0)
    pil.fromarray(np.full((90, 70, 3), 255, np.uint8)).save(labelled / "Messidor/images/b.png")
    after = augmented(load(labelled).train_x, 0)
    assert [before[i].tobytes() == after[i].tobytes() for i in range(3)] == [
        False,
        True,
        True,
    ]  # b is the first
    (labelled / "Messidor/images/b.png").unlink()
    (labelled / "Messidor/labels.csv").write_text(LABELS.replace("b.png,1,A\n", ""))
    fewer = augmented(load(labelled).train_x, 0)
    assert fewer.tobytes() == before[1:].tobytes()


def test_features_are_those_of_augmented_images(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(features, "extracted", lambda raw, *how: asked.append(raw) or raw)
    plain = load(labelled, owners=1)
    done = prepare(
        plain,
        test_fraction=0.3,
        standardise="none",
        unit_norm=False,
        seed=0,
        transform="scatternet",
        dimensions=None,
        augment=True,
    )
    assert (asked[0].train_x == done.train_x).all()
    assert not any((image == plain.train_x).all(axis=(1, 2, 3)).any() for image in done.train_x)
    assert all((image == plain.train_x).all(axis=(1, 2, 3)).any() for image in done.test_x)


def test_augmentation_asks_for_images() -> None:
    x = np.zeros((4, 1, 8, 8), np.uint8)
    for grey in (x, x.astype(np.float32)):
        raw = Records(grey, np.zeros(4, np.int64), grey[:0], np.zeros(0, np.int64), None, 2, "made up", None)
        with pytest.raises(
            DataError, match=r"dataset.augment=true: expected images of three colours, made up holds none"
        ):
            prepare(raw, test_fraction=0.0, standardise="none", unit_norm=False, seed=0, augment=True)


def test_augmentation_flips_half_and_turns_ten_degrees(tmp_path: Path) -> None:
    photograph(tmp_path / "a.png", (600, 400))
    flips, slopes, images = [], [], 40
    plain = messidor.preprocess(tmp_path / "a.png")[None]
    for image in (augmented(plain, seed)[0] for seed in range(images)):
        red, green = image[:2, 62:162, 62:162].astype(float)
        across = np.array([[(g[:, 50:] - g[:, :50]).mean(), (g[50:] - g[:50]).mean()] for g in (red, green)])
        flips.append([across[0, 0] < 0, across[1, 1] < 0])  # red grows to the right, green downwards
        slopes.append(np.degrees(np.arctan2(np.abs(across[0, 1]), np.abs(across[0, 0]))))
    assert 8 < max(slopes) < 10.5  # 40 uniform draws below 8 of 10: probability 1e-4
    assert min(slopes) < 2
    # binomial(40, 1/2) has deviation 3.2: five of them
    assert np.abs(np.sum(flips, axis=0) - images / 2).max() < 5 * 3.2


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda at: cut(at / "images/a.png"), r"a.png: cannot read it as an image .*cut short"),
        (lambda at: (at / "images/a.png").write_text("no image"), r"a.png: cannot read it as an image"),
        (lambda at: (at / "images/a.png").write_bytes(b""), r"a.png: cannot read it as an image"),
        (
            lambda at: pil.new("RGB", (20, 20)).save(at / "images/a.png"),
            r"a.png: the image is black all over",
        ),
        (
            lambda at: (at / "images/a.png").unlink(),
            r"labels.csv, line 2: 0 images a.png .*put it there, or remove the line",
        ),
        (
            lambda at: photograph(at / "more/a.png"),
            r"labels.csv, line 2: 2 images a.png .*give its folder too",
        ),
        (
            lambda at: photograph(at / "images/d.png"),
            r"1 images have no line in the labels, such as .*images/d.png",
        ),
        (
            lambda at: (at / "labels.csv").write_text(LABELS.replace("b.png,1,A\n", "")),
            r"1 images have no line in the labels, such as .*b.png",
        ),
        (
            lambda at: (at / "labels.csv").write_text(LABELS.replace("1,A", ",A")),
            r"labels.csv, line 3: no grade: fill it in",
        ),
        (
            lambda at: (at / "labels.csv").write_text(LABELS.replace("1,A", "1")),
            r"labels.csv, line 3: no hospital",
        ),
        (
            lambda at: (at / "labels.csv").write_text(LABELS.replace("1,A", "4,A")),
            r"line 3: grade 4: expected a retinopathy grade 0, 1, 2 or 3",
        ),
        (
            lambda at: (at / "labels.csv").write_text(LABELS + "a.png,1,B\n"),
            r"line 5: a.png is listed in .*line 2 already",
        ),
        (
            lambda at: (at / "labels.csv").write_text(LABELS + "images/a.png,1,B\n"),
            r"line 5: images/a.png is listed in .*line 2 already",
        ),
        (
            lambda at: (at / "labels.csv").write_text(""),
            r"labels.csv: expected CSV with the columns image, grade, hospital",
        ),
        (lambda at: (at / "labels.csv").write_text("image,grade,hospital\n"), r"and a line for each image"),
        (
            lambda at: (at / "labels.csv").write_text("image,grade\na.png,1\n"),
            r"expected CSV with the columns image, grade, hospital",
        ),
        (
            lambda at: (at / "labels.csv").write_bytes(b"\xd0\xcf\x11\xe0\x00\x00"),
            r"labels.csv: expected CSV",
        ),
        (lambda at: (at / "labels.csv").write_text('"' + "x" * 200000), r"labels.csv: expected CSV"),
        (
            lambda at: (at / "labels.csv").rename(at / "Annotation_Base11.xls"),
            r"Annotation_Base11.xls is there, which is not read.*export",
        ),
        (lambda at: (at / "labels.csv").unlink(), r"labels are missing in .*adcis.net.*Base34"),
        (
            lambda at: at.rename(at.with_name("elsewhere")),
            r"Messidor is not there: agree to the terms .*Base11 .*labels.csv .*DPFL_DATA_DIR",
        ),
    ],
)
def test_bad_messidor_folders_are_refused(
    spoil: Callable[[Path], object], message: str, labelled: Path
) -> None:
    spoil(labelled / "Messidor")
    with pytest.raises(DataError, match=message) as caught:
        load(labelled)
    assert "\n" not in str(caught.value)
