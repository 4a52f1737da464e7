"""Tables that come with scikit-learn. They are read without importing it: that takes longer than a
small run.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from dpfl_bench.data.records import Records
from dpfl_bench.data.source import Source, no_files


def source(name: str) -> Source:
    """Of the table in the file of this name."""
    return Source("bundled with scikit-learn", no_files, files=lambda dataset: {name: _file(name)})


def _file(name: str) -> Path:
    spec = find_spec("sklearn")
    assert spec is not None  # a dependency
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "datasets" / "data" / name


def records(name: str, source: str, expected: int, skipped: int = 0, largest: float = 1.0) -> Records:
    """All records, not yet split: prepare() splits the test set off. The last column is the label;
    features are divided by `largest`.
    """
    import numpy as np  # a dry run asks for the source alone

    table = np.loadtxt(_file(name), delimiter=",", skiprows=skipped)
    x, y = (table[:, :-1] / largest).astype(np.float32), table[:, -1].astype(np.int64)
    return Records(x, y, x[:0], y[:0], None, int(y.max()) + 1, f"scikit-learn: {source}", expected)
