"""A YAML file of a user as plain data: each key once, numbers as on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError, located

LARGEST_FILE = 10_000_000  # bytes
MOST_NODES = 1_000_000  # once all aliases are written out: a few lines of them can mean any number
_NUMBER = re.compile(r"[-+]?(\.?inf|\d+(\.\d*)?[eE][-+]?\d+)")  # words of YAML 1.1, numbers of ours


def read(file: Path) -> tuple[str, Any]:
    """Its text and its content. ConfigError in one line where it is no YAML, or where a key has
    two values: YAML would keep the last in silence.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = read_text(file)
    with one_line():
        node = yaml.compose(text, loader)
        _check_size(node)
        _check_once(node)
        return text, _numbers(yaml.load(text, loader))


def read_text(file: Path) -> str:
    """Its text. ConfigError in one line where it is no text file of moderate size."""
    try:
        if not file.is_file():  # a pipe would be waited for
            raise ConfigError("expected a file")
        if file.stat().st_size > LARGEST_FILE:
            raise ConfigError(f"expected at most {LARGEST_FILE} bytes, it has {file.stat().st_size}")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"expected a text file that can be read ({error})") from None


def loaded(file: Path) -> Any:
    """The file as OmegaConf reads it. ConfigError, with the file's name, where it is no YAML, or no
    keys and values.
    """
    from omegaconf import OmegaConf

    with located(file), one_line():
        content = read(file)[1]
        if content is not None and not isinstance(content, Mapping):
            raise ConfigError(f"expected keys and values (key: value), it holds {_kind(content)}")
        keys = [key for key in content or {} if not isinstance(key, str)]
        if keys:
            raise ConfigError(f"key {keys[0]!r}: expected a word")
        if not _is_defaults((content or {}).get("defaults", [])):
            raise ConfigError("defaults: expected a list of files, like [mnist, _self_]")
        return OmegaConf.load(file)  # by another reader, which refuses more


@contextmanager
def one_line() -> Iterator[None]:
    """What a reader of YAML refuses inside, as a ConfigError of one line."""
    import yaml
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except ConfigError:
        raise
    # a date that is none is a ValueError
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, TypeError) as error:
        text = " ".join(str(error).replace('"<unicode string>", ', "").split())
        raise ConfigError(f"expected YAML ({text}); correct it") from None
    except RecursionError:
        raise ConfigError("expected YAML of a few levels, it is nested too deeply") from None


def _is_defaults(node: Any) -> bool:
    """Whether Hydra can read it as a list of other files."""
    return isinstance(node, list) and all(isinstance(each, str | dict) and each for each in node)


def _kind(content: Any) -> str:
    return "a list" if isinstance(content, list) else f"only {str(content)[:40]!r}"


def _check_size(node: Any) -> None:
    """Refuse a node that holds itself, and one that grows too large when its aliases are written
    out.
    """
    sizes: dict[int, int | None] = {}

    def size(node: Any) -> int:
        key = id(node)
        if key in sizes:
            known = sizes[key]
            if known is None:
                raise ConfigError(f"line {node.start_mark.line + 1}: expected no alias of what it is part of")
            return known
        sizes[key] = None
        value = getattr(node, "value", None)
        inner = [] if isinstance(value, str | None) else value
        parts = [part for each in inner for part in (each if isinstance(each, tuple) else (each,))]
        sizes[key] = total = 1 + sum(map(size, parts))
        if total > MOST_NODES:
            raise ConfigError(f"expected at most {MOST_NODES} values")
        return total

    size(node)


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
