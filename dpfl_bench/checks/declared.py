"""What a function says of its parameters: their types, and by `Annotated` their ranges.

    def overlap(..., percent: Annotated[float, OVERLAP]) -> Parts:

A loader, a partition and a model of one's own can say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_type_hints

from dpfl_bench.checks.ranges import Range


def types(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of its parameters, without ranges; none where they cannot be resolved."""
    return _hints(function, extras=False)


def ranges(function: Callable[..., Any]) -> dict[str, Range]:
    """The ranges of those parameters that have one."""
    declared = {}
    for name, hint in _hints(function, extras=True).items():
        for extra in getattr(hint, "__metadata__", ()):
            if isinstance(extra, Range):
                declared[name] = extra
    return declared


def _hints(function: Any, extras: bool) -> dict[str, Any]:
    """A function's result is left out: its type may be one that only type checkers import."""
    if isinstance(function, type):
        return _resolved(function, None, extras)
    annotations = dict(getattr(function, "__annotations__", {}))
    annotations.pop("return", None)
    names = getattr(function, "__globals__", {})
    return _resolved(SimpleNamespace(__annotations__=annotations), names, extras)


def _resolved(annotated: Any, names: Any, extras: bool) -> dict[str, Any]:
    try:
        return get_type_hints(annotated, globalns=names, include_extras=extras)
    except NameError:
        return {}
