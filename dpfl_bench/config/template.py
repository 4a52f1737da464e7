"""One choice of groups, composed once. Each job of a sweep sets its values on a copy."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

NAME = re.compile(r"\$\{\.*[A-Za-z_][\w.\[\]]*\}")  # a reference to another key: ${clients}, ${.shape[0]}
OTHER = re.compile(r"\$\{([A-Za-z_]\w*(?:\.\w+)*)\}")  # one that is named from the top: ${seed}
Place = tuple[tuple[str, ...], str]  # the keys above, and the last one


class _Other(str):
    """The name of the key whose value is meant, which a later override may still set."""


def plain(config: Any) -> dict[str, Any]:
    """OmegaConf's config as dictionaries, references resolved."""
    from omegaconf import OmegaConf

    values: Any = OmegaConf.to_container(config, resolve=True)
    return dict(values)


@dataclass(frozen=True)
class Template:
    """A composed config before any value is set. It is pickled, for that is quicker to copy than
    the config itself.
    """

    config: bytes
    # the same as dictionaries, resolved but for `others`; None where a reference is more than the
    # name of another key
    values: bytes | None
    others: tuple[Place, ...]  # where the name of another key stands, whose value a job may set
    referred: frozenset[str]  # parts of the names that further keys refer to
    reference: dict[str, Any]

    @staticmethod
    def of(config: Any, reference: dict[str, Any]) -> Template:
        from omegaconf import OmegaConf

        unresolved: Any = OmegaConf.to_container(config)
        references = [(place, leaf) for place, leaf in _leaves(unresolved) if "${" in str(leaf)]
        if not all(NAME.fullmatch(leaf) for _, leaf in references):
            return Template(pickle.dumps(config), None, (), frozenset(), reference)
        values = plain(config)
        others, referred = _sorted(references, unresolved)
        for (path, last), name in others.items():
            _node(values, path)[last] = name
        return Template(pickle.dumps(config), pickle.dumps(values), tuple(others), referred, reference)

    def changed(self, overrides: Sequence[Any]) -> dict[str, Any]:
        """A number, a word or the name of another key in place of a number or word is set in the
        dictionaries; whatever is less plain, by Hydra's own function.
        """
        if self.values is not None:
            values: dict[str, Any] = pickle.loads(self.values)
            if all(_replaced(values, override, self.referred) for override in overrides) and all(
                _taken(values, *place) for place in (*self.others, *map(_place, overrides))
            ):
                return values
        from hydra._internal.config_loader_impl import ConfigLoaderImpl

        config = pickle.loads(self.config)
        ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)
        return plain(config)


def _leaves(node: Any, above: tuple[str, ...] | None = ()) -> Iterator[tuple[Place | None, Any]]:
    """The place and the value of each number and word; no place in a list."""
    for key, inner in node.items() if isinstance(node, dict) else ((None, inner) for inner in node):
        here = None if above is None or key is None else (*above, key)
        if isinstance(inner, dict | list):
            yield from _leaves(inner, here)
        else:
            yield here and (here[:-1], here[-1]), inner


def _sorted(
    references: Sequence[tuple[Place | None, str]], unresolved: dict[str, Any]
) -> tuple[dict[Place, _Other], frozenset[str]]:
    """References whose value can be taken at the end, and the parts of the names of all others.

    The first name a number or word from the top, and nobody refers to where they stand.
    """
    others = {place: name for place, leaf in references if place and (name := _other(unresolved, leaf))}
    while True:
        names = " ".join(leaf for place, leaf in references if place not in others)
        referred = frozenset(re.findall(r"\w+", names))
        kept = {
            (path, last): name for (path, last), name in others.items() if referred.isdisjoint((*path, last))
        }
        if len(kept) == len(others):
            return kept, referred
        others = kept


def _other(unresolved: dict[str, Any], leaf: str) -> _Other | None:
    """The key that a reference names from the top, if a number or word stands there."""
    if not (named := OTHER.fullmatch(leaf)):
        return None
    *above, last = named[1].split(".")
    there = _node(unresolved, above)
    if (
        not isinstance(there, dict)
        or isinstance(there.get(last, {}), dict | list)
        or "${" in str(there[last])
    ):
        return None
    return _Other(named[1])


def _place(override: Any) -> Place:
    *path, last = override.key_or_group.split(".")
    return tuple(path), last


def _node(values: Any, path: Sequence[str]) -> Any:
    """What lies there; None if nothing does."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _replaced(values: dict[str, Any], override: Any, referred: frozenset[str]) -> bool:
    """Set one value, if it is a plain one in the place of a plain one that no other key refers
    to.
    """
    value, (path, last) = override.value(), _place(override)
    other = OTHER.fullmatch(str(value))
    if (
        override.type.name != "CHANGE"
        or override.package
        or isinstance(value, dict | list)
        or ("${" in str(value) and not other)
        or value == "???"
    ):
        return False
    node = _node(values, path)
    if (
        not isinstance(node, dict)
        or last not in node
        or isinstance(node[last], dict | list)
        or not referred.isdisjoint((*path, last))
    ):
        return False
    node[last] = _Other(other[1]) if other else value
    return True


def _taken(values: dict[str, Any], path: Sequence[str], last: str) -> bool:
    """Put the value of the other key in the place of its name, if it is a plain one."""
    node = _node(values, path)
    if isinstance(node[last], _Other):
        *above, name = node[last].split(".")
        there = _node(values, above)
        if not isinstance(there, dict) or name not in there:
            return False
        if isinstance(there[name], _Other | dict | list) or there[name] == "???":
            return False
        node[last] = there[name]
    return True
