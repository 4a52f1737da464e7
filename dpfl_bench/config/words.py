"""Keys and values as words of the command line, in Hydra's grammar."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl_bench.checks.errors import ConfigError

# a word that needs no quotes; .5 is a number
_PLAIN = re.compile(r"(?:[A-Za-z_/]|\.(?=[./A-Za-z_]))[\w./:+-]*")
_REFERENCE = re.compile(r"\$\{[\w.]+\}")
_CONSTANTS = {"true", "false", "null", "yes", "no", "on", "off", "inf", "nan"}  # words that mean another type
_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w./@]*")


def word(key: str, value: Any) -> str:
    """`key=value`, which Hydra reads back as that value."""
    return f"{key}={text(value)}"


def text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(text, value)) + "]"
    return _string(str(value))


def _string(value: str) -> str:
    if _REFERENCE.fullmatch(value) or (_PLAIN.fullmatch(value) and value.lower() not in _CONSTANTS):
        return value
    # Hydra halves backslashes before a quote or at the end, and no others
    escaped = re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value)
    return f"'{escaped}'"


def of_points(points: Any) -> list[tuple[str, ...]]:
    """Each of the `points` of a sweep as words; ConfigError where they are no list of mappings."""
    if points is None:
        return []
    if not isinstance(points, list) or not points:
        raise ConfigError(f"points={points}: expected a list like [{{lr:0.1,local_steps:5}},...]")
    for point in points:
        if not isinstance(point, dict) or not point or not all(map(_is_key, point)):
            raise ConfigError(f"points: {point}: expected {{key:value,...}}, as in {{lr:0.1,local_steps:5}}")
    return [tuple(word(key, value) for key, value in point.items()) for point in points]


def _is_key(key: Any) -> bool:
    return isinstance(key, str) and bool(_KEY.fullmatch(key)) and key != "points"
