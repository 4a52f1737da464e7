"""A mapping of a YAML file as a dataclass: types checked, defaults filled in, unknown keys refused.

A field's metadata may say `key`, the name that it has in the file, or `rest`: it takes the keys
that no other field has.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Union, get_args, get_origin

from dpfl_bench.checks import nearest
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.typed import checked, hints


def record(path: str, node: Any, kind: Any) -> Any:
    """`node` as the dataclass `kind`, what is inside of lists and mappings too. ConfigError names
    the key.
    """
    if not isinstance(node, Mapping):
        raise ConfigError(f"{path.removesuffix('.') or 'file'}: expected keys and values")
    known = {str(f.metadata.get("key", f.name)): f for f in fields(kind) if not f.metadata.get("rest")}
    rest = {key: value for key, value in node.items() if key not in known}
    takes_rest = [f.name for f in fields(kind) if f.metadata.get("rest")]
    if rest and not takes_rest:
        meant = nearest.did_you_mean(nearest.choice(str(next(iter(rest))), known))
        raise ConfigError(f"{path}{next(iter(rest))}: unknown key; expected one of {', '.join(known)}{meant}")
    values = {
        f.name: _value(f"{path}{key}", node[key], hints(kind)[f.name]) if key in node else _default(f, path)
        for key, f in known.items()
    }
    return kind(**values, **dict.fromkeys(takes_rest, rest))


def _value(path: str, value: Any, hint: Any) -> Any:
    origin: Any = get_origin(hint)
    inner: tuple[Any, ...] = get_args(hint)
    if origin in (types.UnionType, Union) and type(None) in inner:
        return None if value is None else _value(path, value, next(k for k in inner if k is not type(None)))
    if is_dataclass(hint):
        return record(f"{path}.", value, hint)
    if origin is list:  # one word is a list of one
        given = checked(path, [value] if isinstance(value, str) else value, list)
        ids = [each.get("id", n) if isinstance(each, Mapping) else n for n, each in enumerate(given)]
        return [_value(f"{path}[{at}]", each, inner[0]) for at, each in zip(ids, given, strict=True)]
    if origin is dict:
        given = checked(path, value, dict)
        return {
            checked(f"{path}: key", key, inner[0]): _value(f"{path}.{key}", each, inner[1])
            for key, each in given.items()
        }
    return checked(path, value, hint)


def _default(field: Field[Any], path: str) -> Any:
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    raise ConfigError(f"{path}{field.name}: expected a value, the key is missing")
