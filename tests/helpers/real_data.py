"""The real files of DPFL_DATA_DIR, for the tests that read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def real_data(*files: str) -> Path:
    """The folder of real files, or a skip that says how to get them."""
    root = Path(os.environ.get("DPFL_DATA_DIR", ""))
    if "DPFL_DATA_DIR" not in os.environ or not all((root / file).exists() for file in files):
        pytest.skip(f"real data: set DPFL_DATA_DIR to a folder with {', '.join(files)}")
    return root


# of these a test machine has a sample at most: test_vision.py, test_leaf.py and test_medical.py say
# what is in it
SAMPLED = {
    "cifar10",
    "cifar100",
    "emnist_balanced",
    "emnist_bymerge",
    "femnist",
    "shakespeare",
    "reddit",
    "ixi",
    "messidor",
}
