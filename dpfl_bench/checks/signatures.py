"""What a function says of its parameters: their types, by `Annotated` their ranges, by `checked_by`
what has to hold between them, and by `counted_by` how many numbers a model learns.

    @checked_by(check)
    def cnn(shape: list[int], ..., pooled: Annotated[int | None, POOLED] = None) -> nn.Module:

A loader, a partition and a model of one's own can say their ranges in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar, get_type_hints

from dpfl_bench.checks.ranges import Range

Check = Callable[[Mapping[str, Any], Sequence[int] | None, float], None]
Count = Callable[[Mapping[str, Any], Sequence[int], int], int]
Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def types(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of its parameters, without ranges. A type that only type checkers import is
    left out.
    """
    return _hints(function, extras=False)


@cache
def ranges(function: Callable[..., Any]) -> dict[str, Range]:
    """The ranges of those parameters that have one."""
    declared = {}
    for name, hint in _hints(function, extras=True).items():
        for extra in getattr(hint, "__metadata__", ()):
            if isinstance(extra, Range):
                declared[name] = extra
    return declared


def _hints(function: Any, extras: bool) -> dict[str, Any]:
    if isinstance(function, type):
        return _resolved(function, None, extras)
    names = getattr(function, "__globals__", {})
    hints: dict[str, Any] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        if name != "return":
            hints |= _resolved(SimpleNamespace(__annotations__={name: annotation}), names, extras)
    return hints


def _resolved(annotated: Any, names: Any, extras: bool) -> dict[str, Any]:
    try:
        return get_type_hints(annotated, globalns=names, include_extras=extras)
    except NameError:
        return {}


def checked_by(check: Check) -> Callable[[Function], Function]:
    """Mark a model's function with what raises a ValueError where its YAML keys, the records' shape
    (None: unknown) and eps do not go together.
    """

    def marked(function: Function) -> Function:
        function.__dict__["check"] = check
        return function

    return marked


def check_of(function: Callable[..., Any]) -> Check | None:
    """What `checked_by` said."""
    check: Check | None = getattr(function, "check", None)
    return check


def counted_by(count: Count) -> Callable[[Function], Function]:
    """Mark a model's function with what tells the number of its parameters without torch, from its
    YAML keys, the records' shape and the number of classes (0: regression).
    """

    def marked(function: Function) -> Function:
        function.__dict__["count"] = count
        return function

    return marked


def count_of(function: Callable[..., Any]) -> Count | None:
    """What `counted_by` said."""
    count: Count | None = getattr(function, "count", None)
    return count
