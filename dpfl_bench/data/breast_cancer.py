"""Breast cancer Wisconsin (diagnostic): 569 records, 30 features, 2 classes; comes with scikit-learn."""

from __future__ import annotations

import numpy as np

from dpfl_bench.data.records import Records


def load() -> Records:
    """All 569 records, not yet split: prepare() splits the test set off."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    x = x.astype(np.float32)
    y = y.astype(np.int64)
    return Records(x, y, x[:0], y[:0], None, 2, "scikit-learn: load_breast_cancer", 569)
