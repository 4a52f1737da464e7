"""Breast cancer Wisconsin (diagnostic): 569 records, 30 features, 2 classes; comes with
scikit-learn.
"""

from __future__ import annotations

from dpfl_bench.data import bundled
from dpfl_bench.data.records import Records


def load() -> Records:
    return bundled.records("breast_cancer.csv", "load_breast_cancer", 569, skipped=1)
