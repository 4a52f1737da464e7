"""The numbers that `dataset.standardise=public` works with: asked when settings are composed, and
again when the records are there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpfl_bench.data.records import DataError, Scaling

_HOW = (
    "say dataset.centres and dataset.scales, lists of published numbers, in the YAML file; "
    "or dataset.standardise=none, or data (the training records' own statistics: not fully accounted)"
)


def constants(
    centres: Sequence[float] | None,
    scales: Sequence[float] | None,
    limit: float | None,
    law: Scaling | None,
    name: str,
) -> tuple[Scaling, float]:
    """The YAML's numbers, else the law of who generated the records. A DataError names what is
    missing or cannot be.
    """
    if (centres is None) != (scales is None) or (centres is None and law is None):
        raise DataError(
            f"dataset.standardise=public: expected centres and scales of {name}, there are none: {_HOW}"
        )
    if limit is None or not 0 < limit < math.inf:
        word = "null" if limit is None else f"{limit:g}"
        raise DataError(
            f"dataset.limit={word}: expected a number > 0: standardised features are clipped to -limit and"
            " limit"
        )
    if centres is None or scales is None:
        assert law is not None
        return law, limit
    _check_numbers("centres", centres, -math.inf, "finite numbers")
    _check_numbers("scales", scales, 0.0, "finite numbers >= 0 (0: the feature becomes 0)")
    if len(centres) != len(scales):
        raise DataError(
            f"dataset.centres, dataset.scales: expected equally long lists, found {len(centres)} and"
            f" {len(scales)} numbers"
        )
    return Scaling(centres, scales), limit


def _check_numbers(key: str, values: Any, least: float, expected: str) -> None:
    if not isinstance(values, list | tuple):
        raise DataError(f"dataset.{key}={values}: expected a list of published numbers, one for each feature")
    for value in values:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not (math.isfinite(value) and value >= least)
        ):
            raise DataError(f"dataset.{key}: expected {expected}, found {value}")


def check_length(scaling: Scaling, shape: Sequence[int]) -> None:
    """One number for each feature."""
    if len(scaling.centres) != math.prod(shape):
        raise DataError(
            f"dataset.centres: expected one number for each of {math.prod(shape)} features, found"
            f" {len(scaling.centres)}"
        )
