"""Type and range of the keys that several files of a group have, a user's too; and which keys each
file needs.

A key that only one loader, model or partition takes has its type and range beside the function that
takes it (`checks/signatures.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from dpfl_bench.checks import ranges
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.checks.ranges import ANY, Range
from dpfl_bench.config.typed import checked


class Key(NamedTuple):
    kind: Any
    range: Range = ANY


NEEDED = {
    "algo": ("_target_", "name", "private"),
    "dataset": (
        *("_target_", "name", "shape", "classes", "records", "clients", "lr", "test_fraction"),
        *("standardise", "unit_norm", "seed", "max_row_norm", "gram"),
    ),
    "model": ("_target_", "name"),
    "partition": ("_target_", "name", "seed"),
}
KEYS: dict[str, dict[str, Key]] = {
    "algo": {"private": Key(bool)},
    "dataset": {
        "shape": Key(list | None, ranges.SHAPE),
        "classes": Key(int | None, ranges.CLASSES),
        "records": Key(int | None, ranges.COUNT),
        "clients": Key(int | None, ranges.COUNT),
        "lr": Key(float | None, ranges.POSITIVE),
        "test_fraction": Key(float, ranges.TEST_FRACTION),
        "split": Key(Literal["global", "client"]),
        "standardise": Key(Literal["public", "data", "none"]),
        "vocabulary_from": Key(Literal["public", "data"]),
        "unit_norm": Key(bool),
        "seed": Key(int, ranges.SEED),
        "max_row_norm": Key(float | None, ranges.POSITIVE),
        "gram": Key(float | None, ranges.POSITIVE),
        "holds": Key(dict | None),
        "root": Key(str | None, ranges.PATH),
    },
    "model": {
        "l2": Key(float, ranges.NOT_NEGATIVE),
        "needs": Key(dict | None),
        "parameters": Key(int | None, ranges.COUNT),
    },
    "partition": {"seed": Key(int, ranges.SEED)},
}


def check(group: str, node: Mapping[str, Any]) -> None:
    """Raise ConfigError for a key that the group needs and the node has not, for a value of another
    type, and for one out of its range.
    """
    for key in NEEDED[group]:
        if key not in node:
            raise ConfigError(f"{group}.{key}: expected a value, the key is missing; add it to the YAML file")
    _check_plain(group, node)
    checked(f"{group}._target_", node["_target_"], str)
    for key, (kind, allowed) in KEYS[group].items():
        if key in node:
            ranges.check(f"{group}.{key}", checked(f"{group}.{key}", node[key], kind), allowed)
    if node.get("classes") == 1 and node.get("task") != "segment":  # whose records have one mask
        raise ConfigError(f"{group}.classes=1: expected at least 2 (0: regression)")


def _check_plain(path: str, value: Any) -> None:
    """Keys that are words, and values that JSON knows."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ConfigError(f"{path}: key {key}: expected a word, in quotes if it looks like a number")
            _check_plain(f"{path}.{key}", inner)
    elif isinstance(value, list):
        for inner in value:
            _check_plain(path, inner)
    elif not isinstance(value, str | bool | int | float | None):
        raise ConfigError(f"{path}={value!r}: expected a number, a word, true, false, null or a list")
