"""Features to about mean 0 and deviation 1: by numbers that are public, or by the training records' own, which no eps covers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from dpfl_bench.data.records import DataError, Scaling

Way = Literal["public", "data", "none"]
_HOW = (
    "say dataset.centres=[...] and dataset.scales=[...], numbers that were published, in the YAML file; or dataset.standardise=none, or data "
    "(the training records' own statistics: not fully accounted)"
)


def constants(
    centres: Sequence[float] | None, scales: Sequence[float] | None, limit: float | None, law: Scaling | None = None, name: str = ""
) -> tuple[Scaling, float]:
    """What `public` works with: the YAML's numbers, else the generator's law. A DataError names what is missing or cannot be."""
    if (centres is None) != (scales is None) or (centres is None and law is None):
        raise DataError(f"dataset.standardise=public: expected centres and scales of {name or 'these records'}, there are none: {_HOW}")
    if limit is None or not 0 < limit < math.inf:
        raise DataError(f"dataset.limit={_told(limit)}: expected a number > 0: standardised features are clipped to -limit and limit")
    if centres is None or scales is None:
        assert law is not None
        return law, limit
    if len(centres) != len(scales):
        raise DataError(f"dataset.centres, dataset.scales: expected equally long lists, found {len(centres)} and {len(scales)} numbers")
    for key, values, least in (("centres", centres, -math.inf), ("scales", scales, 0.0)):
        wrong = next((v for v in values if isinstance(v, bool) or not isinstance(v, int | float) or not (math.isfinite(v) and v >= least)), None)
        if wrong is not None:
            at_least = "" if least else " >= 0 (0: the feature becomes 0)"
            raise DataError(f"dataset.{key}: expected finite numbers{at_least}, found {wrong}")
    return Scaling(np.array(centres, np.float64), np.array(scales, np.float64)), limit


def check_length(scaling: Scaling, shape: Sequence[int]) -> None:
    if len(scaling.centres) != math.prod(shape):
        raise DataError(f"dataset.centres: expected one number for each of {math.prod(shape)} features, found {len(scaling.centres)}")


def by_constants(train: np.ndarray, test: np.ndarray, scaling: Scaling, limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Both parts less the centres, divided by the scales and clipped to [-limit, limit]; a scale of 0 gives 0. No record sees another."""
    shape = train.shape[1:]
    check_length(scaling, shape)
    centres, scales = (np.asarray(values, np.float64).reshape(shape) for values in scaling)
    return _scaled(train, centres, scales, limit), _scaled(test, centres, scales, limit)


def _scaled(x: np.ndarray, centres: np.ndarray, scales: np.ndarray, limit: float) -> np.ndarray:
    made = np.zeros(x.shape)
    with np.errstate(over="ignore"):  # what is infinite is clipped
        np.divide(x - centres, scales, out=made, where=scales > 0)
    return made.clip(-limit, limit).astype(np.float32)


def by_training(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both parts by the training part's mean and deviation, which are summed in float64; constant columns become 0."""
    mean = train.mean(axis=0, dtype=np.float64)
    deviation = train.std(axis=0, dtype=np.float64)
    # a constant column's deviation may come out as a rounding error: ask the values themselves
    varies = train.max(axis=0) > train.min(axis=0)
    scale = np.where(varies, 1 / np.where(varies, deviation, 1), 0)
    return ((train - mean) * scale).astype(np.float32), ((test - mean) * scale).astype(np.float32)


def _told(limit: float | None) -> str:
    return "null" if limit is None else f"{limit:g}"
