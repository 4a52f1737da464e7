"""Handwritten digits, 8x8: 1797 records, 64 features, 10 classes; comes with scikit-learn."""

from __future__ import annotations

import numpy as np

from dpfl_bench.data.records import Records


def load() -> Records:
    """All 1797 records with grey levels 0..16 scaled to [0, 1], not yet split: prepare() splits the test set off."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    y = y.astype(np.int64)
    return Records(x, y, x[:0], y[:0], None, 10, "scikit-learn: load_digits", 1797)
