"""Which of our own functions the `_target_` of a group's file names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def names(node: Mapping[str, Any], *functions: Callable[..., Any]) -> bool:
    """Whether the `_target_` of this group's file is one of these functions. Imports nothing."""
    return node["_target_"] in {f"{f.__module__}.{f.__qualname__}" for f in functions}
