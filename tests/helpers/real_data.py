"""The real files of DPFL_DATA_DIR, for the tests that read them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dpfl_bench.data.source import source_of


def real_data(*files: str) -> Path:
    """The folder of real files, or a skip that says how to get them."""
    root = Path(os.environ.get("DPFL_DATA_DIR", ""))
    if "DPFL_DATA_DIR" not in os.environ or not all((root / file).exists() for file in files):
        pytest.skip(f"real data: set DPFL_DATA_DIR to a folder with {', '.join(files)}")
    return root


def whole_here(dataset: Mapping[str, Any]) -> None:
    """A skip where not all of the data set's files are here, or they are smaller than the whole
    set.
    """
    source = source_of(dataset)
    presence = source and source.presence(dataset)
    assert presence is not None
    if presence.state != "ready":
        pytest.skip(f"real data: {presence.folder} lacks {', '.join(presence.lacks)}")
