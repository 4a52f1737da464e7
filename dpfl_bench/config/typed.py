"""Values as the types that they are to have, or a ConfigError that names the key."""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dpfl_bench.checks.errors import ConfigError


def check_names(prefix: str, given: Mapping[str, Any], names: Collection[str]) -> None:
    """Neither a key too many nor one too few (by `~key`, or in a user's own primary config)."""
    for name in names:
        if name not in given:
            raise ConfigError(
                f"{prefix}{name}: expected a value, the key is missing; dpfl-bench run --cfg job shows the"
                " default"
            )
    for name, value in given.items():
        if name not in names:
            raise ConfigError(
                f"{prefix}{name}={value}: unknown key; expected one of {', '.join(sorted(names))}"
            )


def checked(path: str, value: Any, kind: Any) -> Any:
    """`value` as `kind` (a dataclass, Literal, optional, bool, int, float, str, list or dict), or a
    ConfigError.
    """
    if isinstance(kind, types.UnionType) or get_origin(kind) is typing.Union:
        if value is None and type(None) in get_args(kind):
            return None
        first, *others = (k for k in get_args(kind) if k is not type(None))
        word = next((k for k in others if get_origin(k) is Literal and value in get_args(k)), None)
        return checked(path, value, first if word is None else word)
    if kind is Any:
        return value
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(f"{path}={value}: expected {' or '.join(map(str, get_args(kind)))}")
        return value
    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
        hints = _hints(kind)
        check_names(f"{path}.".lstrip("."), value, hints)
        given = {
            f.name: checked(f"{path}.{f.name}".lstrip("."), value[f.name], hints[f.name])
            for f in fields(kind)
        }
        return kind(**given)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = get_origin(kind) or kind
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise ConfigError(
            f"{path}={'null' if value is None else value}: expected {_WORDS.get(expected, expected)}"
        )
    return value


_hints = cache(get_type_hints)
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
    list: "a list like [1,2]",
    dict: "keys and values",
}
