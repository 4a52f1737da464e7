"""Values as the types that they are to have, or a ConfigError that names the key."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dpfl_bench.checks import nearest
from dpfl_bench.checks.errors import ConfigError


def check_names(
    prefix: str,
    given: Mapping[str, Any],
    names: Collection[str],
    unknown: Callable[[str, str], ConfigError] | None = None,
) -> None:
    """Neither a key too many nor one too few (by `~key`, or in a user's own primary config).

    unknown: of a key that there is not, and its value as it is typed (=3), what is raised.
    """
    if given.keys() == set(names):
        return
    for name in names:
        if name not in given:
            raise ConfigError(
                f"{prefix}{name}: expected a value, the key is missing; dpfl-bench run --cfg job shows the"
                " default"
            )
    for name, value in given.items():
        if name not in names and unknown is not None:
            raise unknown(f"{prefix}{name}", f"={value}")
        if name not in names:
            meant = nearest.did_you_mean(nearest.choice(name, names))
            raise ConfigError(
                f"{prefix}{name}={value}: unknown key; expected one of {', '.join(sorted(names))}{meant}"
            )


def checked(path: str, value: Any, kind: Any) -> Any:
    """`value` as `kind` (a dataclass, Literal, optional, bool, int, float, str, list or dict), or a
    ConfigError.
    """
    if kind is Any or type(value) is kind:
        return value
    origin, choices = _parts(kind)
    if origin is typing.Union or origin is types.UnionType:
        if value is None and type(None) in choices:
            return None
        first, *others = (k for k in choices if k is not type(None))
        word = next((k for k in others if get_origin(k) is Literal and value in get_args(k)), None)
        return checked(path, value, first if word is None else word)
    if origin is Literal:
        if value not in choices:
            near = nearest.choice(str(value), map(str, choices))
            meant = nearest.did_you_mean(near and f"{path}={near}")
            raise ConfigError(f"{path}={value}: expected {' or '.join(map(str, choices))}{meant}")
        return value
    if hasattr(kind, "__dataclass_fields__"):
        fields = hints(kind)
        check_names(f"{path}.".lstrip("."), value, fields)
        given = {
            name: checked(f"{path}.{name}".lstrip("."), value[name], hint) for name, hint in fields.items()
        }
        return kind(**given)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{path}: expected a number of at most 1e308") from None
    expected = origin or kind
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise ConfigError(
            f"{path}={'null' if value is None else value}: expected {_WORDS.get(expected, expected)}"
        )
    return value


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Asking typing for them is slow, and each setting of each job has a type."""
    return get_origin(kind), get_args(kind)


hints = cache(get_type_hints)
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
    list: "a list like [1,2]",
    dict: "keys and values",
}
