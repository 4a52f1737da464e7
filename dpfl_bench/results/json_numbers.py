"""Numbers on their way into JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def clean(value: Any) -> Any:
    """NaN becomes null; infinity stays (Python's JSON writes and reads Infinity)."""
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value
