"""What was swept: the settings in which run folders differ, under dotted names, from the configs
that the runs wrote.

The YAML of a config is read line by line: ten thousand of them take seconds, a parser minutes. Only
the values of columns are parsed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from sys import intern
from typing import Any

import yaml

from dpfl_bench.config.identity import UNTOLD, UNTOLD_OF_DATASET, UNTOLD_OF_MODEL, untold_of
from dpfl_bench.data.source import source_of
from dpfl_bench.results.folder import plain_text

_LINE = re.compile(r"( *)(?:'([^']+)'|([^\s#:'\"\[{&*!|>%@`-][^:]*)):(?: (.*))?$")
_IDLE = ""  # no value is empty
# these keys act after our loaders have returned, so they do not change the raw records
_STEPS = (
    "test_fraction",
    "split",
    "standardise",
    "centres",
    "scales",
    "limit",
    "unit_norm",
    "transform",
    "dimensions",
    "weights",
    "augment",
)
PREPARING = {f"dataset.{key}" for key in _STEPS}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Columns:
    rows: list[dict[str, Any]]  # run by run: name -> value, None where the run has no such setting
    differing: list[str]  # those in which runs differ
    sources: list[Source]  # run by run


@dataclass(frozen=True)
class Source:
    """What a run names: its code and its records. Runs of one source share both. None where the
    run's config does not say.
    """

    targets: tuple[str, ...] | None  # every `_target_`
    records: tuple[Any, ...] | None  # the settings that the raw records depend on


def columns(folders: Sequence[Path]) -> Columns:
    """A column for each setting that an override set or in which two runs differ."""
    given = [_overrides(folder) for folder in folders]
    configs, targets = [], []
    for folder, words in zip(folders, given, strict=True):
        config = _config(folder, words)
        configs.append(counted(config))
        targets.append({key: value for key, value in config.items() if key.endswith("_target_")})
    keys = list(dict.fromkeys(key for config in configs for key in config))
    differing = [key for key in keys if len({config.get(key) for config in configs} - {_IDLE}) > 1]
    groups = {key.rpartition(".")[0] for key in keys}
    asked = {f"{key}.name" if key in groups else key for names in given for key in names}
    shown = [key for key in keys if key in asked or key in differing]
    rows = [{key: value_of(config.get(key, _IDLE)) for key in shown} for config in configs]
    of_dataset = sorted(key for key in keys if key.startswith("dataset."))
    sources = [_source(*each, of_dataset) for each in zip(targets, configs, strict=True)]
    return Columns(rows, differing, sources)


def _source(targets: Mapping[str, str], config: Mapping[str, str], of_dataset: Sequence[str]) -> Source:
    """What a run's records come from. A new `dataset.seed` means new records if the records are
    generated, or if the loader is unknown.
    """
    loader = targets.get("dataset._target_")
    records = None
    if loader is not None:
        source = source_of({"_target_": loader})  # of ours alone
        dropped = set() if source is None else PREPARING
        if source is not None and not source.generated:  # what the seed draws is of the same files
            dropped = dropped | {"dataset.seed"}
        records = (
            loader,
            *((key, config[key]) for key in of_dataset if key in config and key not in dropped),
        )
    whole = all(f"{group}._target_" in targets for group in ("algo", "model", "dataset", "partition"))
    return Source(tuple(map("=".join, targets.items())) if whole else None, records)


def flat(text: str) -> dict[str, str]:
    """Dotted name -> the YAML of its value, of a config as OmegaConf writes it: block style, a key
    a line, nothing in flow style but empty collections. A line continues the value above it if it
    is no key, or if it is indented deeper than a key that has a value.
    """
    values: dict[str, str] = {}
    above: list[
        tuple[int, str]
    ] = []  # indent and dotted name of the key at hand and of those that it is inside of
    for line in text.splitlines():
        match = _LINE.match(line)
        indent = len(match[1]) if match else -1
        if match is None or (above and indent > above[-1][0] and values[above[-1][1]]):
            if above:
                values[above[-1][1]] += "\n" + line
            continue
        while above and above[-1][0] >= indent:
            above.pop()
        key = match[2] or match[3]
        name = intern(f"{above[-1][1]}.{key}" if above else key)
        values[name] = intern(match[4] or "")
        above.append((indent, name))
    return {name: value for name, value in values.items() if value}


def overrides(folder: Path) -> list[str]:
    """The words of the run's command, as they stand in its folder."""
    try:
        lines = plain_text(folder / ".hydra" / "overrides.yaml").splitlines()
    except (OSError, ValueError):
        return []
    words = (line.removeprefix("- ") for line in lines if line.startswith("- "))
    return [str(value_of(word)) if word[:1] in ("'", '"') else word for word in words]


def _overrides(folder: Path) -> dict[str, str]:
    """Overrides as key -> text. An override that chooses a file of a group counts under the group's
    name.
    """
    pairs = (word.partition("=") for word in overrides(folder) if "=" in word and not word.startswith("~"))
    return {key.lstrip("+").partition("@")[0].replace("/", "."): value for key, _, value in pairs}


def _config(folder: Path, overrides: Mapping[str, str]) -> dict[str, str]:
    """Of a folder without its config, the overrides have to do."""
    try:
        return flat(plain_text(folder / ".hydra" / "config.yaml"))
    except (OSError, ValueError):
        return dict(overrides)


def counted(config: Mapping[str, str]) -> dict[str, str]:
    """What is part of a run's id. Runs that differ in idle privacy settings alone share an id; the
    folder shows those of the first run.
    """
    idle = config.get("eps") in (".inf", "inf") and config.get("privacy.bound_without_noise") != "true"
    return {
        key: _IDLE if idle and _is_of_privacy(key) else value
        for key, value in config.items()
        if _counts(key, _target_of(key, config))
    }


def _is_of_privacy(key: str) -> bool:
    return key == "delta" or key.startswith("privacy.")


def _target_of(key: str, config: Mapping[str, str]) -> str:
    """Whose loader or model reads it; ours where that is not known."""
    return config.get(f"{key.partition('.')[0]}._target_", "dpfl_bench.")


@lru_cache(maxsize=100_000)
def _counts(key: str, target: str) -> bool:
    group, _, inner = key.partition(".")
    untold = untold_of(
        {"_target_": target}, {"dataset": UNTOLD_OF_DATASET, "model": UNTOLD_OF_MODEL}.get(group, {})
    )
    return not (group in UNTOLD or inner == "_target_" or inner.partition(".")[0] in untold)


@lru_cache(maxsize=100_000)
def value_of(text: str) -> Any:
    if text == _IDLE:
        return None
    try:
        value = yaml.load(text, _LOADER)
    except (yaml.YAMLError, ValueError, RecursionError):  # a number of too many digits, a date that is none
        return text
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
