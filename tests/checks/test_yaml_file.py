"""Keys of tables in a YAML file: which are one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dpfl_bench.checks.yaml_file import one_key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *((10, 10.0), (10, "10"), (1e-5, "0.00001"), (1e-5, "1e-5"), (math.inf, ".inf"), (math.inf, "inf")),
        *(("0.1 / 5", "0.10/5.0"), ("a / 5", "a/5"), ("160/5", "160 / 5"), (1234567, 1234567.0)),
    ],
)
def test_keys_that_are_one(one: Any, other: Any) -> None:
    assert one_key(one) == one_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1234567, 1234568), (0.1, 0.1000001), (True, 1), (None, "none"), ("a b", "ab"), (1, -1), ("a/1", "a/2")],
)
def test_keys_that_are_not(one: Any, other: Any) -> None:
    assert one_key(one) != one_key(other)
