"""A YAML file of a user as plain data: each key once, numbers as on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError

_NUMBER = re.compile(r"[-+]?(\.?inf|\d+(\.\d*)?[eE][-+]?\d+)")  # words of YAML 1.1, numbers of ours


def read(file: Path) -> tuple[str, Any]:
    """Its text and its content. ConfigError in one line where it is no YAML, or where a key has
    two values: YAML would keep the last in silence.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = file.read_text()
        _check_once(yaml.compose(text, loader))
        return text, _numbers(yaml.load(text, loader))
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(" ".join(str(error).split())) from None


def _check_once(node: Any) -> None:
    if isinstance(getattr(node, "value", None), str | None):
        return
    seen: dict[str, Any] = {}
    for pair in node.value:  # of a mapping; an entry of a list is alone
        key, value = pair if isinstance(pair, tuple) else (None, pair)
        if key and seen.setdefault(one_key(key.value), value.value) != value.value:
            raise ConfigError(f"line {key.start_mark.line + 1}: {one_key(key.value)}: expected each key once")
        _check_once(value)


def _numbers(node: Any) -> Any:
    """`inf` and `1e-5` as the numbers that they are on the command line, too."""
    if isinstance(node, Mapping):
        return {_numbers(key): _numbers(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_numbers(each) for each in node]
    is_number = isinstance(node, str) and _NUMBER.fullmatch(node)
    return float(node.replace(".inf", "inf")) if is_number else node


def one_key(value: Any) -> str:
    """10, 10.0 and "10" are one key; so are "0.1 / 5" and "0.10/5"."""
    if isinstance(value, bool) or value is None:
        return str(value)
    return " / ".join(_plain(part.strip()) for part in str(value).split("/"))


def _plain(text: str) -> str:
    try:
        return f"{float(text.replace('.inf', 'inf')):.12g}"
    except ValueError:
        return text


def entries(node: Mapping[Any, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value under nested keys, by these."""
    for name, value in node.items():
        at = (*above, one_key(name))
        if isinstance(value, Mapping):
            yield from entries(value, at)
        elif value is not None:
            yield at, value
