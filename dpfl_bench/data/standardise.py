"""Features to about mean 0 and deviation 1: by numbers that are public, or by the training records'
own, which no eps covers.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dpfl_bench.data.published import check_length
from dpfl_bench.data.records import Scaling

Way = Literal["public", "data", "none"]


def by_constants(
    train: np.ndarray, test: np.ndarray, scaling: Scaling, limit: float
) -> tuple[np.ndarray, np.ndarray]:
    """Both parts less the centres, divided by the scales and clipped to [-limit, limit]; a scale of
    0 gives 0. No record sees another.
    """
    shape = train.shape[1:]
    check_length(scaling, shape)
    centres, scales = (np.asarray(values, np.float64).reshape(shape) for values in scaling)
    return _scaled(train, centres, scales, limit), _scaled(test, centres, scales, limit)


def _scaled(x: np.ndarray, centres: np.ndarray, scales: np.ndarray, limit: float) -> np.ndarray:
    scaled = np.zeros(x.shape)
    with np.errstate(over="ignore"):  # what is infinite is clipped
        np.divide(x - centres, scales, out=scaled, where=scales > 0)
    return scaled.clip(-limit, limit).astype(np.float32)


def by_training(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both parts by the training part's mean and deviation, which are summed in float64; constant
    columns become 0.
    """
    mean = train.mean(axis=0, dtype=np.float64)
    deviation = train.std(axis=0, dtype=np.float64)
    # a constant column's deviation may come out as a rounding error: ask the values themselves
    varies = train.max(axis=0) > train.min(axis=0)
    scale = np.where(varies, 1 / np.where(varies, deviation, 1), 0)
    return ((train - mean) * scale).astype(np.float32), ((test - mean) * scale).astype(np.float32)
