"""One choice of groups, composed once. Each job of a sweep sets its values on a copy."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

NAME = re.compile(r"\$\{\.*[A-Za-z_][\w.\[\]]*\}")  # a reference to another key: ${clients}, ${.shape[0]}


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
    # the same as dictionaries, resolved; None where a reference is more than the name of another
    # key
    values: bytes | None
    referred: frozenset[str]  # parts of the names that other keys refer to
    reference: dict[str, Any]

    @staticmethod
    def of(config: Any, reference: dict[str, Any]) -> Template:
        from omegaconf import OmegaConf

        references = [
            leaf for leaf in _leaves(OmegaConf.to_container(config)) if isinstance(leaf, str) and "${" in leaf
        ]
        values = pickle.dumps(plain(config)) if all(map(NAME.fullmatch, references)) else None
        referred = frozenset(re.findall(r"\w+", " ".join(references)))
        return Template(pickle.dumps(config), values, referred, reference)

    def changed(self, overrides: Sequence[Any]) -> dict[str, Any]:
        """A number or word in place of another is set in the dictionaries; whatever is less plain,
        by Hydra's own function.
        """
        if self.values is not None:
            values: dict[str, Any] = pickle.loads(self.values)
            if all(_replaced(values, override, self.referred) for override in overrides):
                return values
        from hydra._internal.config_loader_impl import ConfigLoaderImpl

        config = pickle.loads(self.config)
        ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)
        return plain(config)


def _leaves(node: Any) -> Iterator[Any]:
    if isinstance(node, dict | list):
        for inner in node.values() if isinstance(node, dict) else node:
            yield from _leaves(inner)
    else:
        yield node


def _replaced(values: dict[str, Any], override: Any, referred: frozenset[str]) -> bool:
    """Set one value, if it is a plain one in the place of a plain one that no other key refers
    to.
    """
    value, (*path, last) = override.value(), override.key_or_group.split(".")
    if (
        override.type.name != "CHANGE"
        or override.package
        or isinstance(value, dict | list)
        or "${" in str(value)
        or value == "???"
    ):
        return False
    node: Any = values
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    if (
        not isinstance(node, dict)
        or last not in node
        or isinstance(node[last], dict | list)
        or not referred.isdisjoint((*path, last))
    ):
        return False
    node[last] = value
    return True
