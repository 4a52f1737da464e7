"""Breast cancer Wisconsin (diagnostic): 569 records, 30 features, 2 classes; comes with
scikit-learn.
"""

from __future__ import annotations

from dpfl_bench.data import bundled
from dpfl_bench.data.records import Records

FILE = "breast_cancer.csv"
SOURCE = bundled.source(FILE)


def load() -> Records:
    """Features as they are published, labels 0 (malignant) and 1 (benign)."""
    return bundled.records(FILE, "load_breast_cancer", 569, skipped=1)
