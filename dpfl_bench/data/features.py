"""Features in place of records: `dataset.transform`.

pca: `dpscaffold` D.1. Flat features or images become (n, dimensions). The directions are fitted on
training records, without noise: no eps covers them.
scatternet: `pfl`, J=2 and L=8. Images (n, c, h, w) become (n, 81 c, h // 4, w // 4). No privacy is
spent: the wavelets are fixed.
resnet18: `normalized` appendix H. Colour images become (n, 512). No privacy is spent: the weights
are those of ImageNet.

The last two take minutes (a thousand images: ten seconds and a minute on two cores), so they are
computed once and kept (feature_cache.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import importlib
import math
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl_bench.data.feature_cache import Compute, blocks, once
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.torchvision_import import import_torchvision

if TYPE_CHECKING:
    from torch import Tensor, nn

_BATCH = 64
_LARGEST_PCA = 8192  # features: half a gigabyte of covariance
# what torch.load and a download raise for files that are cut, foreign or out of reach
_UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError, LookupError, TypeError, AttributeError),
    pickle.UnpicklingError,
)
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and deviation of its red, green and blue


def transformed_shape(
    shape: Sequence[int] | None, transform: str | None, dimensions: int | None
) -> list[int] | None:
    """What the model sees of records of this shape (None: unknown); a DataError where the transform
    cannot take them.
    """
    if transform == "pca":
        return [_dimensions(shape, dimensions)]
    if transform is None or (shape is None and transform in ("scatternet", "resnet18")):
        return None if shape is None else list(shape)
    given, image = list(shape or ()), len(shape or ()) == 3
    if transform == "scatternet":
        if not image or min(given[1:]) < 4:
            raise DataError(
                "dataset.transform=scatternet: expected images of at least 4x4, found records of shape"
                f" {given}"
            )
        return [81 * given[0], given[1] // 4, given[2] // 4]
    if transform == "resnet18":
        if not image or given[0] != 3:
            raise DataError(
                "dataset.transform=resnet18: expected images of three colours, found records of shape"
                f" {given}"
            )
        return [512]
    raise DataError(f"dataset.transform={transform}: expected null, pca, scatternet or resnet18")


def _dimensions(shape: Sequence[int] | None, dimensions: int | None) -> int:
    if dimensions is None:
        raise DataError(
            "dataset.transform=pca: expected dataset.dimensions; add `dimensions: N` to the data set's YAML"
            " file"
        )
    if shape is not None and len(shape) not in (1, 3):
        raise DataError(
            f"dataset.transform=pca: expected flat features or images, found records of shape {list(shape)}"
        )
    most = _LARGEST_PCA if shape is None else math.prod(shape)
    if most > _LARGEST_PCA:
        raise DataError(
            f"dataset.transform=pca: expected at most {_LARGEST_PCA} features, found {most}; choose another"
            " data set"
        )
    if not 1 <= dimensions <= most:
        raise DataError(f"dataset.dimensions={dimensions}: expected 1 to {most}, the number of features")
    return dimensions


def extracted(raw: Records, transform: str | None, weights: str | None) -> Records:
    """The records with `scatternet` or `resnet18` features for images. Each depends on its own
    image alone.
    """
    if transform not in ("scatternet", "resnet18"):
        return raw
    if raw.train_x.dtype != np.uint8:
        raise DataError(
            f"dataset.transform={transform}: expected uint8 images, {raw.source} holds {raw.train_x.dtype}"
            " numbers"
        )
    shape = transformed_shape(raw.train_x.shape[1:], transform, None) or []
    settings: dict[str, Any]
    compute: Compute
    if transform == "scatternet":
        settings, compute = {"J": 2, "L": 8, "kymatio": _kymatio_version()}, _scattered
    else:
        network, digest = _network(weights)
        settings, compute = {"size": 224, "weights": digest}, partial(_penultimate, network)
    train, test = (
        once(x, {"transform": transform, **settings}, shape, compute) for x in (raw.train_x, raw.test_x)
    )
    return replace(raw, train_x=train, test_x=test, source=f"{raw.source}, as {transform} features")


def projected(train: np.ndarray, test: np.ndarray, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """Both parts on the `dimensions` directions in which the *training* records vary most, about
    their mean: (n, dimensions) float32.

    Directions are eigenvectors of the covariance in float64, in falling order of variance, each
    signed so that its largest entry is positive.
    """
    if dimensions > len(train):
        raise DataError(
            f"dataset.dimensions={dimensions}: expected at most the number of training records, {len(train)}"
        )
    train, test = (x.reshape(len(x), math.prod(x.shape[1:])) for x in (train, test))
    mean = train.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((len(mean), len(mean)))
    for rows in blocks(train):
        centred = train[rows] - mean
        covariance += centred.T @ centred / len(train)
    axes = np.linalg.eigh(covariance)[1][:, ::-1][:, :dimensions]
    axes = axes * np.where(axes[abs(axes).argmax(axis=0), np.arange(dimensions)] < 0, -1, 1)
    return _onto(train, mean, axes), _onto(test, mean, axes)


def _onto(x: np.ndarray, mean: np.ndarray, axes: np.ndarray) -> np.ndarray:
    placed = np.empty((len(x), axes.shape[1]), np.float32)
    for rows in blocks(x):
        placed[rows] = (x[rows] - mean) @ axes
    return placed


def _batches(images: np.ndarray, name: str) -> Iterator[Tensor]:
    """Images as float32 in [0, 1], a batch at a time, with a bar on a terminal."""
    import torch
    from tqdm import tqdm

    from dpfl_bench.machine.say import no_bar

    for start in tqdm(
        range(0, len(images), _BATCH), unit="batch", desc=name, disable=no_bar(), leave=False, file=sys.stderr
    ):
        yield torch.from_numpy(images[start : start + _BATCH].astype(np.float32) / 255)


def _scattered(images: np.ndarray) -> Iterator[np.ndarray]:
    """ScatterNet's coefficients: 81 for each channel, in its place."""
    # kymatio's own `kymatio.torch` imports what newer scipy has no more
    frontend = importlib.import_module("kymatio.scattering2d.frontend.torch_frontend")
    scatter = frontend.ScatteringTorch2D(J=2, L=8, shape=images.shape[2:])
    for batch in _batches(images, "scatternet"):
        yield scatter(batch).flatten(1, 2).numpy()


def _kymatio_version() -> str:
    try:
        importlib.import_module("kymatio.scattering2d.frontend.torch_frontend")
    except ImportError as error:
        raise DataError(
            "dataset.transform=scatternet: needs kymatio: pip install 'dpfl-bench[features]'"
        ) from error
    return version("kymatio")


def _penultimate(network: nn.Module, images: np.ndarray) -> Iterator[np.ndarray]:
    """What ResNet-18 hands to its last layer."""
    import torch

    mean, deviation = (torch.tensor(values)[:, None, None] for values in _IMAGENET)
    with torch.no_grad():
        for batch in _batches(images, "resnet18"):
            resized = torch.nn.functional.interpolate(batch, size=(224, 224), mode="bilinear", antialias=True)
            outputs: np.ndarray = network((resized - mean) / deviation).numpy()
            if not np.isfinite(outputs).all():
                raise DataError(
                    "dataset.transform=resnet18: the weights give features that are not finite: choose other"
                    " dataset.weights"
                )
            yield outputs


def _network(weights: str | None) -> tuple[nn.Module, str]:
    """ResNet-18 without its last layer, ready to be asked, and the sha256 of its numbers."""
    import torch

    where, state = _state(weights)
    try:
        kept = {
            k: v.float() if v.is_floating_point() else v for k, v in state.items() if not k.startswith("fc.")
        }
        with torch.device("meta"):  # without random numbers, which would be overwritten
            network = import_torchvision().models.resnet18(weights=None)
        network.fc = torch.nn.Identity()
        network.load_state_dict(kept, assign=True)
    except _UNREADABLE as error:
        raise DataError(
            f"{where}: expected a state_dict of resnet18 ({_line(error)}): choose another dataset.weights"
        ) from error
    digest = hashlib.sha256()
    for name, value in sorted(kept.items()):
        digest.update(f"{name} {tuple(value.shape)}".encode() + value.contiguous().numpy().tobytes())
    return network.eval(), digest.hexdigest()


def _state(weights: str | None) -> tuple[str, Any]:
    """Where the weights are, and they: a local file's, or torchvision's for ImageNet, which it
    downloads.
    """
    import torch

    if weights is not None:
        try:
            return weights, torch.load(Path(weights).expanduser(), map_location="cpu", weights_only=True)
        except _UNREADABLE as error:
            raise DataError(
                f"dataset.weights={weights}: cannot read it ({_line(error)}): expected a state_dict of"
                " resnet18"
            ) from error
    published = import_torchvision().models.ResNet18_Weights.IMAGENET1K_V1
    file = Path(torch.hub.get_dir(), "checkpoints", published.url.rpartition("/")[2])
    try:
        with contextlib.redirect_stdout(sys.stderr):  # torch says there what it downloads
            return str(file), published.get_state_dict(
                progress=False, check_hash=True, map_location="cpu", weights_only=True
            )
    except (*_UNREADABLE, http.client.HTTPException) as error:
        advice = (
            f"delete {file} if it is there, then go online or put the file there, or set dataset.weights=FILE"
        )
        raise DataError(
            f"dataset.transform=resnet18: cannot get {published.url} ({_line(error)}): {advice}"
        ) from error


def _line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
