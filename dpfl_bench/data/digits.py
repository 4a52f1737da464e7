"""Handwritten digits, 8x8: 1797 records, 64 features, 10 classes; comes with scikit-learn."""

from __future__ import annotations

from dpfl_bench.data import bundled
from dpfl_bench.data.records import Records

FILE = "digits.csv.gz"
SOURCE = bundled.source(FILE)


def load() -> Records:
    """Grey levels 0..16 scaled to [0, 1]."""
    return bundled.records(FILE, "load_digits", 1797, largest=16)
