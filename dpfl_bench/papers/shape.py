"""What the keys of an artefact's file may hold. Checked when the file is read, before anything
runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dpfl_bench.checks.errors import ConfigError

SCALES = ("smoke", "cpu", "full")
READINGS = ("paper", "exact")
DOES = ("run", "plan", "data")
OVERLAYS = (*READINGS, *SCALES)
KEYS = ("does", "set", "over", "points", "at_best", "absent", *OVERLAYS)
STAGE = ("of", "keys", "for", "by", "last", "better", "where")


def known(where: str, given: Iterable[Any], names: Collection[str]) -> None:
    """ConfigError at the first that is none of the names."""
    for name in given:
        if name not in names:
            raise ConfigError(f"{where}: {name}: expected one of {', '.join(names)}")


def check_sweeps(sweeps: Mapping[Any, Any]) -> None:
    for name, node in sweeps.items():
        _check_sweep(f"sweeps.{name}", node)


def _check_sweep(where: str, node: Any) -> None:
    """A sweep, or what is laid over one."""
    _mapping(where, node)
    known(where, node, KEYS)
    known(f"{where}.does", [node.get("does", "run")], DOES)
    for key in ("set", "over"):
        _mapping(f"{where}.{key}", node.get(key, {}))
    for key, value in node.get("over", {}).items():
        if value == []:
            raise ConfigError(f"{where}.over.{key}: expected at least one value")
    points = node.get("points") or []
    if not isinstance(points, list) or not all(isinstance(each, Mapping) and each for each in points):
        raise ConfigError(f"{where}.points: expected a list like [{{lr: 0.1, local_steps: 5}}]")
    if node.get("at_best") is not None:
        _check_stage(f"{where}.at_best", node["at_best"])
    for inner in OVERLAYS:
        if inner in node:
            _check_sweep(f"{where}.{inner}", node[inner])


def _check_stage(where: str, node: Any) -> None:
    _mapping(where, node)
    known(where, node, STAGE)
    for key in ("of", "keys"):
        if not node.get(key):
            raise ConfigError(f"{where}.{key}: expected a value, the key is missing")
    for key in ("keys", "for"):
        if not isinstance(node.get(key, []), list):
            raise ConfigError(f"{where}.{key}={node[key]}: expected a list")
    known(f"{where}.better", [node.get("better", "least")], ("least", "most"))


def _mapping(where: str, node: Any) -> None:
    if not isinstance(node, Mapping):
        raise ConfigError(f"{where}={'null' if node is None else node}: expected keys and values")


def check_once(text: str) -> None:
    """ConfigError where a key has two values: YAML would keep the last in silence."""
    import yaml

    nodes = [yaml.compose(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            seen: dict[str, Any] = {}
            for key, value in node.value:
                name = word(key.value)
                if seen.setdefault(name, value.value) != value.value:
                    raise ConfigError(f"line {key.start_mark.line + 1}: {name}: expected each key once")
                nodes.append(value)


_NUMBER = re.compile(r"[-+]?(\.?inf|\d+(\.\d*)?[eE][-+]?\d+)")  # words of YAML 1.1, numbers of ours


def numbers(node: Any) -> Any:
    """`inf` and `1e-5` as the numbers that they are on the command line, too."""
    if isinstance(node, Mapping):
        return {numbers(key): numbers(value) for key, value in node.items()}
    if isinstance(node, list):
        return [numbers(each) for each in node]
    is_number = isinstance(node, str) and _NUMBER.fullmatch(node)
    return float(node.replace(".inf", "inf")) if is_number else node


def word(value: Any) -> str:
    """A key of a table: 10, 10.0 and "10" are one; so are "0.1 / 5" and "0.10/5"."""
    if isinstance(value, bool) or value is None:
        return str(value)
    return " / ".join(_plain(part.strip()) for part in str(value).split("/"))


def _plain(text: str) -> str:
    try:
        return f"{float(text.replace('.inf', 'inf')):.12g}"
    except ValueError:
        return text
