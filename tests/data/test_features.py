"""PCA, ScatterNet and ResNet-18 in place of records, and what is kept of them on disk."""

from __future__ import annotations

import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.federations import settings_of
from helpers.real_data import real_data

from dpfl_bench import rng
from dpfl_bench.assembly.data import load_data
from dpfl_bench.data import feature_cache, features, vision
from dpfl_bench.data.prepare import prepare
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.torchvision_import import import_torchvision

PLAIN: dict[str, Any] = {"test_fraction": 0.0, "standardise": "none", "unit_norm": False, "seed": 0}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFL_CACHE_DIR", str(tmp_path / "cache"))


def records(x: np.ndarray, test: int = 0, task: str = "classify") -> Records:
    y = np.arange(len(x)) % 2
    cut = len(x) - test
    return Records(x[:cut], y[:cut], x[cut:], y[cut:], None, 2, "toy", None, task=task)


def images(count: int, channels: int = 1, height: int = 8, width: int = 8) -> np.ndarray:
    return rng.generator(0, "images").integers(0, 256, (count, channels, height, width), dtype=np.uint8)


def entries() -> list[Path]:
    return sorted(feature_cache.folder().iterdir())


# PCA


def correlated(count: int = 300, width: int = 12) -> np.ndarray:
    """Rows with distinct variances in directions that are no axes, far from the origin."""
    draw = rng.generator(0, "rows")
    mixed = draw.normal(size=(count, width)) * np.arange(1, width + 1) @ draw.normal(size=(width, width))
    return (mixed + 100).astype(np.float32)


def test_pca_is_that_of_sklearn_and_of_the_svd() -> None:
    from sklearn.decomposition import PCA

    x = correlated()
    train, test = features.projected(x[:250], x[250:], 5)
    assert (train.shape, train.dtype, test.shape, test.dtype) == ((250, 5), np.float32, (50, 5), np.float32)
    other = PCA(5, svd_solver="full").fit(x[:250].astype(float))
    assert train.var(axis=0, dtype=float, ddof=1) == pytest.approx(other.explained_variance_, rel=1e-5)
    for ours, theirs in (
        (train, other.transform(x[:250].astype(float))),
        (test, other.transform(x[250:].astype(float))),
    ):
        signs = np.sign((ours * theirs).sum(axis=0))
        assert np.allclose(ours, theirs * signs, atol=1e-4 * np.abs(theirs).max())
    singular = np.linalg.svd(x[:250] - x[:250].mean(axis=0, dtype=float), compute_uv=False)
    assert (train.astype(float) ** 2).sum(axis=0) == pytest.approx(singular[:5] ** 2, rel=1e-5)


def test_pca_axes_are_orthonormal_signed_and_in_order() -> None:
    x = correlated()
    width = x.shape[1]
    mean = x.mean(axis=0, dtype=float)
    probes = (mean + 1000 * np.eye(width)).astype(np.float32)  # their projections are the axes' entries
    train, entries = features.projected(x, probes, width)
    axes = entries.astype(float) / 1000
    assert np.allclose(axes.T @ axes, np.eye(width), atol=1e-4)
    assert (axes[abs(axes).argmax(axis=0), np.arange(width)] > 0).all()
    assert (np.diff(train.var(axis=0)) < 0).all()
    assert np.allclose(np.corrcoef(train.T), np.eye(width), atol=1e-4)
    assert (train.astype(float) ** 2).sum() == pytest.approx(
        ((x - mean) ** 2).sum(), rel=1e-5
    )  # all directions keep all
    flipped, _ = features.projected(2 * mean.astype(np.float32) - x, probes, width)
    assert np.allclose(
        flipped, -train, atol=0.02
    )  # the same axes, though every record is mirrored: signs are not of chance


def test_pca_is_fitted_on_training_records_only(monkeypatch: pytest.MonkeyPatch) -> None:
    x = correlated()
    train, test = features.projected(x[:200], x[200:], 4)
    moved, moved_test = features.projected(x[:200], x[200:] * -50, 4)
    assert np.array_equal(train, moved)
    assert not np.allclose(test, moved_test)
    changed, _ = features.projected(np.concatenate([x[:199], x[:1] * 50]), x[200:], 4)  # the negative control
    assert not np.allclose(train[:199], changed[:199], atol=1)
    monkeypatch.setattr(feature_cache, "_BLOCK", 7)
    for blocks, whole in zip(features.projected(x[:200], x[200:], 4), (train, test), strict=True):
        assert np.allclose(blocks, whole, atol=1e-4)


def test_pca_from_the_command_line() -> None:
    settings = settings_of("dataset=digits", "dataset.transform=pca", "dataset.dimensions=20")
    assert settings.dataset["gram"] is None  # what the file says is of records without PCA
    assert settings.dataset["max_row_norm"] == 1.0
    assert settings.dataset["records"] == 1438
    made = load_data(settings)
    assert made.records.train_x.shape == (1438, 20)
    assert np.linalg.norm(made.records.train_x, axis=1).max() == pytest.approx(1, abs=1e-6)
    assert settings.run_id != settings_of("dataset=digits").run_id
    with pytest.raises(ValueError, match=r"dataset\.transform=nope: expected null, pca"):
        load_data(settings_of("dataset=digits", "dataset.transform=nope"))


# ScatterNet


@pytest.fixture
def _kymatio() -> None:
    pytest.importorskip("kymatio", reason="needs kymatio: pip install 'dpfl-bench[features]'")


def scattered(x: np.ndarray) -> np.ndarray:
    return prepare(records(x), **PLAIN, transform="scatternet").train_x


@pytest.mark.slow
@pytest.mark.usefixtures("_kymatio")
def test_scatternet_of_real_digits() -> None:
    root = real_data("MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/t10k-images-idx3-ubyte")
    raw = vision.load(name="mnist", root=str(root), download=False, verify=True, keep=None, seed=0)
    x = raw.train_x[:20]
    found = scattered(x)
    assert (found.shape, found.dtype) == ((20, 81, 7, 7), np.float32)
    assert np.isfinite(found).all()
    (entry,) = entries()
    entry.unlink()
    assert np.array_equal(scattered(x), found)
    # the first coefficient is a low-pass: it keeps the mean grey, and moves little with the digit
    assert np.corrcoef(found[:, 0].mean(axis=(1, 2)), x.mean(axis=(1, 2, 3)))[0, 1] > 0.99
    shifted = scattered(np.roll(x, 1, axis=3))
    near = np.linalg.norm(shifted - found) / np.linalg.norm(found)
    pixels = np.linalg.norm(np.roll(x, 1, axis=3) / 255 - x / 255) / np.linalg.norm(x / 255)
    assert near < pixels / 2


@pytest.mark.usefixtures("_kymatio")
def test_scatternet_keeps_channels_apart_and_axes_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    x = images(3, channels=2, height=12, width=21)
    found = scattered(x)
    assert list(found.shape[1:]) == features.transformed_shape([2, 12, 21], "scatternet", None) == [162, 3, 5]
    apart = [scattered(x[:, [channel]]) for channel in range(2)]
    assert np.allclose(found, np.concatenate(apart, axis=1), atol=1e-6)
    monkeypatch.setattr(features, "_BATCH", 2)
    monkeypatch.setattr(feature_cache, "folder", lambda: Path("elsewhere"))
    assert np.allclose(scattered(x), found, atol=1e-6)
    grey = scattered(np.full((1, 1, 8, 8), 51, np.uint8))
    assert np.allclose(
        grey[:, 0], 0.2, atol=1e-5
    )  # of a constant image the mean, and no wavelet sees anything
    assert np.abs(grey[:, 1:]).max() < 1e-5


@pytest.mark.usefixtures("_kymatio")
def test_an_image_s_coefficients_look_at_no_other() -> None:
    x = images(5)
    other = x.copy()
    other[2] = 255 - other[2]
    before, after = scattered(x), scattered(other)
    assert [before[i].tobytes() == after[i].tobytes() for i in range(5)] == [True, True, False, True, True]


@pytest.mark.usefixtures("_kymatio")
def test_features_before_the_split_serve_every_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = records(images(20))
    first = prepare(raw, **PLAIN | {"test_fraction": 0.2}, transform="scatternet")
    assert first.train_x.shape == (16, 81, 2, 2)
    assert first.source == "toy, as scatternet features"
    monkeypatch.setattr(features, "_scattered", refuse)
    other = prepare(
        raw, **PLAIN | {"test_fraction": 0.2, "seed": 1, "unit_norm": True}, transform="scatternet"
    )
    assert not np.array_equal(first.train_y, other.train_y) or not np.array_equal(
        first.train_x, other.train_x
    )
    assert np.allclose(np.sqrt((other.test_x**2).sum(axis=(1, 2, 3))), 1, atol=1e-6)


def test_scatternet_without_kymatio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kymatio.scattering2d.frontend.torch_frontend", None)
    with pytest.raises(
        DataError, match=r"transform=scatternet: needs kymatio: pip install 'dpfl-bench\[features\]'"
    ):
        scattered(images(2))


# ResNet-18


def weights(path: Path, seed: int = 0, **more: torch.Tensor) -> Path:
    """Random weights, as torchvision's published files have them."""
    with torch.device("meta"):
        shapes = import_torchvision().models.resnet18(weights=None).state_dict()
    draw = rng.generator(seed, "weights")
    state = {}
    for name, value in shapes.items():
        number = draw.normal(size=tuple(value.shape))
        if value.ndim > 1:
            number *= (2 / value[0].numel()) ** 0.5  # so that what images differ in reaches the end
        elif name.endswith(("running_var", "weight")):
            number = 0.8 + 0.1 * abs(number)
        else:
            number *= 0.05
        state[name] = torch.tensor(number).to(value.dtype)
    torch.save(state | more, path)
    return path


def resnet(x: np.ndarray, file: Path) -> np.ndarray:
    return prepare(records(x), **PLAIN, transform="resnet18", weights=str(file)).train_x


@pytest.mark.slow
def test_resnet18_is_what_torchvision_hands_to_its_last_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, x = weights(tmp_path / "w.pth"), images(5, channels=3, height=32, width=32)
    x[1] //= 4
    x[2, :, :16] = 0
    x[3, 0] = 255
    found = resnet(x, file)
    assert (found.shape, found.dtype) == ((5, 512), np.float32)
    models = import_torchvision().models
    whole = models.resnet18(weights=None)
    whole.load_state_dict(torch.load(file))
    ready = models.ResNet18_Weights.IMAGENET1K_V1.transforms(resize_size=224)(torch.from_numpy(x) / 255)
    with torch.no_grad():
        expected = whole.eval()(ready)
        ours = whole.fc(torch.from_numpy(found))
    differ = float((expected[1:4] - expected[0]).norm(dim=1).min())  # what telling images apart takes
    assert float((ours - expected).norm(dim=1).max()) < 1e-3 * differ
    entries()[0].unlink()
    assert np.array_equal(resnet(x, file), found)
    monkeypatch.setattr(features, "_penultimate", refuse)
    assert np.array_equal(resnet(x, file), found)


@pytest.mark.slow
def test_an_image_s_resnet_features_look_at_no_other(tmp_path: Path) -> None:
    x = images(4, 3)
    other = x.copy()
    other[1] = 255 - other[1]
    before, after = (resnet(part, weights(tmp_path / "weights.pth")) for part in (x, other))
    assert [before[i].tobytes() == after[i].tobytes() for i in range(4)] == [True, False, True, True]


def test_resnet18_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    file, before = weights(tmp_path / "w.pth"), torch.get_rng_state()
    resnet(images(1, channels=3), file)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.slow
def test_resnet18_refuses_bad_weights(tmp_path: Path) -> None:
    x = images(2, channels=3)
    with pytest.raises(DataError, match=r"dataset\.weights=.*none\.pth: cannot read it .*No such file"):
        resnet(x, tmp_path / "none.pth")
    (tmp_path / "text.pth").write_text("no weights\n")
    with pytest.raises(
        DataError, match=r"text\.pth: cannot read it .*expected a state_dict of resnet18"
    ) as caught:
        resnet(x, tmp_path / "text.pth")
    assert "\n" not in str(caught.value)
    cut = weights(tmp_path / "cut.pth")
    cut.write_bytes(cut.read_bytes()[:100_000])
    with pytest.raises(DataError, match=r"cut\.pth: cannot read it"):
        resnet(x, cut)
    wrong: list[Any] = [{"a": torch.ones(2)}, {"state_dict": {}}, torch.ones(2), [1]]
    for number, value in enumerate(wrong):
        torch.save(value, tmp_path / f"{number}.pth")
        with pytest.raises(
            DataError, match=rf"{number}\.pth: expected a state_dict of resnet18 .*dataset\.weights"
        ) as caught:
            resnet(x, tmp_path / f"{number}.pth")
        assert "\n" not in str(caught.value)
    broken = weights(tmp_path / "nan.pth", **{"bn1.weight": torch.full((64,), torch.nan)})
    with pytest.raises(DataError, match="not finite"):
        resnet(x, broken)
    assert entries() == []  # nothing is kept of what failed, nor a .part


@pytest.mark.slow
def test_resnet18_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offline(*args: object, **kwargs: object) -> None:
        raise urllib.error.URLError("no route\nto host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    raw = records(images(2, channels=3))
    expected = (
        r"cannot get https://.*resnet18-f37072fd\.pth .*hub/checkpoints/resnet18-f37072fd\.pth"
        r" .*dataset\.weights=FILE"
    )
    with pytest.raises(DataError, match=expected) as caught:
        prepare(raw, **PLAIN, transform="resnet18")
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""
    file = weights(tmp_path / "hub/checkpoints/resnet18-f37072fd.pth")  # as if downloaded before
    found = prepare(raw, **PLAIN, transform="resnet18").train_x
    assert np.array_equal(found, resnet(raw.train_x, file))
    assert len(entries()) == 1  # the same weights, wherever they lie
    file.write_bytes(b"")
    with pytest.raises(DataError, match=r"cannot get .*delete"):
        prepare(raw, **PLAIN, transform="resnet18")


# what is kept


def refuse(*args: object) -> Iterator[np.ndarray]:
    raise AssertionError("computed again")


class Counted:
    """A cheap stand-in for ScatterNet, that counts the images it was asked for."""

    def __init__(self) -> None:
        self.images = 0

    def __call__(self, x: np.ndarray) -> Iterator[np.ndarray]:
        self.images += len(x)
        yield from (
            np.full((1, 81 * x.shape[1], x.shape[2] // 4, x.shape[3] // 4), image.mean(), np.float32)
            for image in x
        )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    made = Counted()
    monkeypatch.setattr(features, "_scattered", made)
    monkeypatch.setattr(features, "_kymatio_version", lambda: "0")
    return made


def test_a_second_time_is_read_from_disk_bit_by_bit(counted: Counted) -> None:
    raw = records(images(6), test=2)
    first = prepare(raw, **PLAIN, transform="scatternet")
    assert counted.images == 6
    assert len(entries()) == 2  # training, test
    again = prepare(raw, **PLAIN, transform="scatternet")
    assert counted.images == 6
    assert np.array_equal(first.train_x, again.train_x)
    assert np.array_equal(first.test_x, again.test_x)
    again.train_x[:] = 7  # changes nothing on disk
    assert np.array_equal(prepare(raw, **PLAIN, transform="scatternet").train_x, first.train_x)
    strided = records(np.ascontiguousarray(images(6).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2), test=2)
    assert np.array_equal(prepare(strided, **PLAIN, transform="scatternet").train_x, first.train_x)
    assert counted.images == 6  # the same images, however they lie in memory
    assert prepare(records(images(6)), **PLAIN, transform="scatternet").test_x.shape == (0, 81, 2, 2)


@pytest.mark.slow
def test_other_images_shapes_versions_and_weights_have_their_own(
    counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = images(6, channels=3)
    changed = x.copy()
    changed[5, 2, 7, 7] ^= 1
    for number, other in enumerate(
        (x, changed, x[:5], x[::-1], x.reshape(6, 3, 4, 16), x.reshape(18, 1, 8, 8))
    ):
        scattered(other)
        assert len(entries()) == number + 1
    monkeypatch.setattr(features, "_kymatio_version", lambda: "1")
    scattered(x)
    assert len(entries()) == 7
    monkeypatch.setattr(feature_cache, "FEATURES_VERSION", -1)
    scattered(x)
    assert len(entries()) == 8
    one, other = (resnet(x, weights(tmp_path / f"{seed}.pth", seed)) for seed in (0, 1))
    assert len(entries()) == 10
    assert not np.allclose(one, other)


@pytest.mark.parametrize("how", ["cut", "flipped", "first", "empty", "text", "longer", "another's", "folder"])
def test_a_broken_entry_is_computed_again(how: str, counted: Counted) -> None:
    x = images(6)
    good = scattered(x).copy()
    (entry,) = entries()
    whole = bytearray(entry.read_bytes())
    if how == "flipped":
        whole[len(whole) // 2] ^= 1
    if how == "first":
        whole[0] ^= 1
    if how == "another's":  # whole, but put under the wrong name
        scattered(255 - x)
        (other,) = set(entries()) - {entry}
        whole = bytearray(other.read_bytes())
        other.unlink()
        counted.images = 6
    broken = {"cut": whole[:-100], "empty": b"", "text": b"nothing of ours" * 9, "longer": whole + b"0"}.get(
        how, whole
    )
    entry.unlink()
    if how == "folder":
        entry.mkdir()
    else:
        entry.write_bytes(broken)
    assert np.array_equal(scattered(x), good)
    assert counted.images == (18 if how == "folder" else 12)  # in a folder's place nothing can be kept
    if how != "folder":
        assert np.array_equal(scattered(x), good)
        assert counted.images == 12
    assert [path.suffix for path in entries()] == [".npy"]


def test_without_a_place_to_keep_them_they_are_computed(
    counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPFL_CACHE_DIR", str(tmp_path / "file"))
    assert scattered(images(3)).shape == (3, 81, 2, 2)


def test_an_interrupted_computation_leaves_nothing(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(x: np.ndarray) -> Iterator[np.ndarray]:
        yield np.zeros((1, 81, 2, 2), np.float32)
        raise KeyboardInterrupt

    monkeypatch.setattr(features, "_scattered", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scattered(images(3))
    assert entries() == []


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPFL_CACHE_DIR")
    assert feature_cache.folder().parts[-2:] == ("dpfl-bench", "features")


# what the model sees, and what is refused


def test_transformed_shape() -> None:
    asked = [
        ([1, 28, 28], "scatternet", [81, 7, 7]),
        ([3, 32, 32], "scatternet", [243, 8, 8]),
        ([3, 32, 32], "resnet18", [512]),
        ([1, 28, 28], "pca", [60]),
        ([112], "pca", [60]),
        (None, "pca", [60]),
        (None, "scatternet", None),
        (None, None, None),
        ([5], None, [5]),
    ]
    for shape, transform, expected in asked:
        assert features.transformed_shape(shape, transform, 60) == expected


@pytest.mark.parametrize(
    ("shape", "transform", "dimensions", "message"),
    [
        (
            [784],
            "scatternet",
            None,
            r"scatternet: expected images of at least 4x4, found records of shape \[784\]",
        ),
        ([1, 48, 60, 48], "scatternet", None, r"shape \[1, 48, 60, 48\]"),
        ([1, 3, 28], "scatternet", None, "at least 4x4"),
        (
            [1, 28, 28],
            "resnet18",
            None,
            r"resnet18: expected images of three colours, found records of shape \[1, 28, 28\]",
        ),
        ([3], "resnet18", None, "three colours"),
        ([1, 48, 60, 48], "pca", 60, "flat features or images"),
        ([3, 224, 224], "pca", 60, "at most 8192 features, found 150528"),
        ([30], "pca", 60, r"dataset\.dimensions=60: expected 1 to 30"),
        ([30], "pca", 0, r"dataset\.dimensions=0: expected 1 to 30"),
        ([30], "pca", None, r"expected dataset\.dimensions"),
        ([30], "ica", None, "transform=ica: expected null, pca, scatternet or resnet18"),
        (None, "ica", None, "transform=ica: expected null"),
    ],
)
def test_refusals(shape: list[int] | None, transform: str, dimensions: int | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        features.transformed_shape(shape, transform, dimensions)
    if shape is not None:
        x = np.zeros((4, *shape), np.uint8)
        with pytest.raises(DataError, match=message):
            prepare(records(x), **PLAIN, transform=transform, dimensions=dimensions)


@pytest.mark.parametrize("transform", ["pca", "scatternet", "resnet18"])
def test_tokens_and_floats_are_refused(transform: str) -> None:
    tokens = Records(
        *(np.zeros((4, 10), np.int64),) * 2,
        *(np.zeros((0, 10), np.int64),) * 2,
        None,
        5,
        "toy",
        None,
        task="next_token",
    )
    with pytest.raises(DataError, match=rf"dataset\.transform={transform}: toy holds tokens"):
        prepare(tokens, **PLAIN, transform=transform, dimensions=2)
    if transform != "pca":
        with pytest.raises(DataError, match="expected uint8 images, toy holds float32 numbers"):
            prepare(records(np.zeros((4, 3, 8, 8), np.float32)), **PLAIN, transform=transform)
