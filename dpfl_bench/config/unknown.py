"""Keys and choices that there are not: what was meant, in place of what Hydra says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpfl_bench.checks import nearest
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.catalogue import GROUPS, named

MOST = 3  # keys that a question names
SHOWS = "dpfl-bench run --cfg job shows every key"
_QUOTED = re.compile(r"'([^']*)'")  # the key that Hydra speaks of
_KEY_OF_LAUNCHER = re.compile(r"^([a-z]\w*):", re.MULTILINE)


@dataclass
class Asked:
    """What a command asked for, as far as it is known when Hydra refuses it."""

    words: Sequence[str]
    config_dir: str | None = None
    overrides: Sequence[Any] = ()  # as Hydra parsed them
    reference: Mapping[str, Any] | None = None  # the keys of the chosen files

    def of(self, key: str) -> Any:
        """The override of a key."""
        return next((o for o in self.overrides if o.key_or_group == key), None)


def key(path: str, shown: str, reference: Mapping[str, Any], config_dir: str | None = None) -> ConfigError:
    """A key that the chosen files do not have. shown: its value as it was typed, as in `=3`."""
    known = [*_paths(reference)]
    near, namesakes = nearest.key(path, known), nearest.namesakes(path, known)
    lead = f"{path}{shown}: unknown key"
    elsewhere = near is not None and near.rpartition(".")[2] == path.rpartition(".")[2]
    if not elsewhere and (other := _of_another_choice(path, reference, config_dir)):
        group = path.partition(".")[0]
        return ConfigError(f"{lead} of {group}={reference[group].get('name')}; {other} has it ({SHOWS})")
    siblings = _siblings(path, reference)
    if near is None:
        has = f"; expected one of {', '.join(siblings)}" if siblings else ""
        return ConfigError(f"{lead}{has} ({SHOWS})")
    if 1 < len(namesakes) <= MOST:
        return ConfigError(
            f"{lead}{nearest.did_you_mean(' or '.join(n + shown for n in namesakes))} ({SHOWS})"
        )
    is_value = near in GROUPS or not isinstance(_node(reference, near), Mapping)
    return ConfigError(f"{lead}{nearest.did_you_mean(near + shown if is_value else near)} ({SHOWS})")


def choice(group: str, name: str, options: Sequence[str]) -> ConfigError:
    """A choice that a group does not have."""
    shown = [option for option in options if not option.startswith("_")]  # _base is a part of others
    near = nearest.choice(name, shown)
    meant = nearest.did_you_mean(None if near is None else f"{group}={near}")
    return ConfigError(f"{group}={name}: no such choice; expected one of {', '.join(shown)}{meant}")


def of_hydra(error: Exception, asked: Asked) -> str | None:
    """What Hydra refuses, in our words; None where these would say no more."""
    text = str(error)
    if (options := getattr(error, "options", None)) is not None:
        return _missing_file(str(getattr(error, "missing_cfg_file", "")), options, asked)
    if text.startswith("Cannot find primary config"):
        (name,) = _QUOTED.findall(text)[:1]
        return f"-cn {name}: expected a primary config, there is none of that name; -cd DIR adds a folder"
    if unread := getattr(error, "override", None):
        return _unread(str(unread))
    if text.startswith("Config group override must"):
        wrong = next((o for o in asked.overrides if not isinstance(o.value(), str | list)), None)
        return wrong and f"{wrong.input_line}: expected the name of a choice; dpfl-bench list shows them"
    quoted = _QUOTED.findall(text)
    override = asked.of(quoted[0].partition("=")[0]) if quoted else None
    return None if override is None else _of_override(text, override, asked)


def _of_override(text: str, override: Any, asked: Asked) -> str | None:
    word, path = override.input_line, override.key_or_group
    shown = word[word.find("=") :] if "=" in word else ""
    if text.startswith("Ambiguous value"):
        return (
            f"{word}: expected one value; dpfl-bench run -m runs each, dpfl-bench plan shows each, and"
            f" {path}=[{shown.lstrip('=')}] is one list"
        )
    if text.startswith("Could not append"):
        return f"{word}: the key is there already; say {word.lstrip('+')}"
    if path.startswith("hydra."):
        return _of_hydras_own(path, shown)
    if path == "experiment":
        return f"{word}: expected a plus sign, for an experiment is added: +{word}"
    unknown = text.startswith(("Could not override", "Could not delete"))
    if not unknown or asked.reference is None or _node(asked.reference, path) is not None:
        return None
    return str(key(path, shown, asked.reference, asked.config_dir))


def _of_hydras_own(path: str, shown: str) -> str:
    launchers = (file.read_text() for file in named("hydra/launcher", None))
    names = {name for text in launchers for name in _KEY_OF_LAUNCHER.findall(text)}
    near = nearest.key(path, sorted(f"hydra.launcher.{name}" for name in names - {"defaults"}))
    meant = nearest.did_you_mean(near if near is None else near + shown)
    return f"{path}{shown}: unknown key of Hydra's or its launcher{meant} (dpfl-bench run --cfg hydra)"


def _missing_file(file: str, options: Sequence[str], asked: Asked) -> str | None:
    """A group's choice that there is not; None where a file, and no override, asks for it."""
    group, _, name = file.rpartition("/")
    override = asked.of(group)
    if override is None or name not in str(override.value()):
        return None
    plus = "+" if override.input_line.startswith("+") else ""
    return plus + str(choice(group, name, options)).replace("mean ", f"mean {plus}", 1)


def _unread(word: str) -> str:
    if "=" not in word:
        return f"{word}: expected KEY=VALUE, as in eps=2"
    return f"{word}: cannot be read; quote what is no plain word or number, as in 'outputs=\"a b\"'"


def _paths(reference: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Every key by its dotted name, branches too."""
    for name, value in reference.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{above}{name}.")


def _node(reference: Mapping[str, Any], path: str) -> Any:
    """What lies there, False for a null; None if there is no such key."""
    node: Any = reference
    for name in path.split("."):
        if not isinstance(node, Mapping) or name not in node:
            return None
        node = node[name]
    return False if node is None else node


def _siblings(path: str, reference: Mapping[str, Any]) -> list[str]:
    """The keys beside a missing one; none at the top, where they are too many to read."""
    above = path.rpartition(".")[0]
    node = _node(reference, above) if above else None
    return sorted({*node} - {"_target_", "name"}) if isinstance(node, Mapping) else []


def _of_another_choice(path: str, reference: Mapping[str, Any], config_dir: str | None) -> str:
    """partition=dirichlet, for partition.alpha under partition=shards."""
    group, _, name = path.partition(".")
    if group not in GROUPS or not name or not isinstance(reference.get(group), Mapping):
        return ""
    has = re.compile(rf"^{' +' if group == 'algo' else ''}{re.escape(name)}:", re.MULTILINE)
    found = [f"{group}={file.stem}" for file in named(group, config_dir) if has.search(file.read_text())]
    return " or ".join(found[:3])
