"""From a composed config to typed, validated settings, before any data loads and without torch."""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.checks.ranges import check as check_range
from dpfl_bench.config import fits, refusals, trackers
from dpfl_bench.config.compose import GROUPS, Composed
from dpfl_bench.config.ranges import SETTINGS
from dpfl_bench.config.settings import Settings, equal_share
from dpfl_bench.federation import lot_size

# what a user's own file has to choose from, too
CHOICES: dict[str, Any] = {
    "dataset.standardise": Literal["public", "data", "none"],
    "dataset.vocabulary_from": Literal["public", "data"],
}
NAME = re.compile(r"\w[\w.+-]{0,99}")  # of a choice: it becomes part of file names
ONLY_FOR_COMPOSING = ("default_local_steps", "default_total_steps", "local_epochs", "total_epochs")


def settings(composed: Composed, used: Collection[str] = fits.GROUPS) -> Settings:
    """Validate everything that can be known without data; ConfigError names the key, the value and
    the remedy.

    used: the groups that have to fit the data set; where its files alone are looked at, the default
    model need not.
    """
    config = dict(composed.config)
    _check_keys(config, composed.reference)
    _check_names("", config, [*(f.name for f in fields(Settings)), *ONLY_FOR_COMPOSING])
    for group in GROUPS[:-1]:
        config[group] = _as_reference(group, config[group], composed.reference[group])
    _check_choices(config)
    config["dataset"] = _as_the_model_sees(_without_stale(config["dataset"], composed.reference["dataset"]))
    _fill_suggested(config)
    trackers.check(config["trackers"])
    config.update(_schedule(config))
    suggested = config["eval_every"] is None
    for key in ONLY_FOR_COMPOSING:
        del config[key]
    made: Settings = checked("", {**config, "eval_every": 1} if suggested else config, Settings)
    _check_ranges(made)
    fits.check(made, used)
    refusals.check(made)
    return replace(made, eval_every=_evaluation_interval(made)) if suggested else made


def _evaluation_interval(made: Settings) -> int:
    """About 25 evaluations; fewer where they would be more than 4 % of the work, but four. A
    gradient is three evaluations.
    """
    often = math.ceil(made.rounds / 25)
    each, everything = made.records_per_client, made.dataset["records"]
    if not each or everything is None:
        return often
    lot = lot_size.expected(made.batch_size, made.sample_rate, each)
    work = 3 * made.sampled_clients * made.local_steps * lot
    rarely: int = math.ceil(25 * everything / work)
    return max(often, min(rarely, math.ceil(made.rounds / 4)))


def _check_keys(config: Mapping[str, Any], reference: Mapping[str, Any], prefix: str = "") -> None:
    """The keys that the chosen files have, at every depth."""
    _check_names(prefix, config, reference)
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(reference[key], Mapping):
            if not isinstance(value, Mapping):
                raise ConfigError(
                    f"{path}={value}: expected keys of its own, like {path}.{next(iter(reference[key]))}"
                )
            _check_keys(value, reference[key], f"{path}.")


def _check_choices(config: Mapping[str, Any]) -> None:
    """What the five groups' choices are called."""
    for group in GROUPS:
        name = config[group].get("name") if isinstance(config[group], Mapping) else None
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            told = " ".join(str(name).split())
            raise ConfigError(
                f"{group}.name={told}: expected letters, digits, _ - . and +, the first a letter, a digit"
                " or _"
            )


def _check_names(prefix: str, given: Mapping[str, Any], names: Collection[str]) -> None:
    """Neither a key too many nor one too few (by `~key`, or in a user's own primary config)."""
    for name in names:
        if name not in given:
            raise ConfigError(
                f"{prefix}{name}: expected a value, the key is missing; dpfl-bench run --cfg job shows the"
                " default"
            )
    for name, value in given.items():
        if name not in names:
            raise ConfigError(
                f"{prefix}{name}={value}: unknown key; expected one of {', '.join(sorted(names))}"
            )


def _as_reference(path: str, value: Any, reference: Any) -> Any:
    """A group's values take the types of their defaults; a default of null takes anything."""
    if isinstance(reference, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{path}={value}: expected the name of a file in conf/{path}/ or the keys of one"
            )
        return {key: _as_reference(f"{path}.{key}", value[key], reference[key]) for key in value}
    kind = CHOICES.get(path, Any if reference is None else type(reference))
    return checked(path, value, kind)


def checked(path: str, value: Any, kind: Any) -> Any:
    """`value` as `kind` (a dataclass, Literal, optional, bool, int, float, str, list or dict), or a
    ConfigError.
    """
    if isinstance(kind, types.UnionType) or get_origin(kind) is typing.Union:
        if value is None and type(None) in get_args(kind):
            return None
        first, *others = (k for k in get_args(kind) if k is not type(None))
        word = next((k for k in others if get_origin(k) is Literal and value in get_args(k)), None)
        return checked(path, value, first if word is None else word)
    if kind is Any:
        return value
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(f"{path}={value}: expected {' or '.join(map(str, get_args(kind)))}")
        return value
    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
        hints = _hints(kind)
        _check_names(f"{path}.".lstrip("."), value, hints)
        given = {
            f.name: checked(f"{path}.{f.name}".lstrip("."), value[f.name], hints[f.name])
            for f in fields(kind)
        }
        return kind(**given)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = get_origin(kind) or kind
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise ConfigError(
            f"{path}={'null' if value is None else value}: expected {_WORDS.get(expected, expected)}"
        )
    return value


_hints = cache(get_type_hints)
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
    list: "a list like [1,2]",
}


def _without_stale(dataset: dict[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """What a data set's file says of its prepared records holds for the file's own preparation
    only; unknown under another.
    """
    scaling = ("standardise", "centres", "scales", "limit", "unit_norm")
    preparing = ("test_fraction", "split", *scaling, "seed", "transform", "dimensions", "weights")
    if all(dataset.get(key) == reference.get(key) for key in preparing):
        return dataset
    split_alike = all(dataset.get(key) == reference.get(key) for key in ("test_fraction", "split"))
    told = dataset["records"] != reference["records"] or split_alike
    records = dataset["records"] if told else None
    return {
        **dataset,
        "gram": None,
        "max_row_norm": 1.0 if dataset["unit_norm"] else None,
        "records": records,
    }


def _as_the_model_sees(dataset: dict[str, Any]) -> dict[str, Any]:
    """`shape` of what `transform` makes of the records."""
    if dataset.get("transform") is None:
        return dataset
    from dpfl_bench.data.features import transformed_shape

    try:
        return {
            **dataset,
            "shape": transformed_shape(dataset["shape"], dataset["transform"], dataset.get("dimensions")),
        }
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _schedule(config: Mapping[str, Any]) -> dict[str, int]:
    """Exactly two of rounds, local_steps and total_steps; the third follows."""
    names = ("rounds", "local_steps", "total_steps")
    config = {**config, **_epochs_as_steps(config)}
    given = {n: checked(n, config[n], int) for n in names if config[n] is not None}
    if len(given) == 3:
        text = ", ".join(f"{n}={v}" for n, v in given.items())
        raise ConfigError(f"{text}: expected exactly two of the three, the third follows; leave one out")
    if len(given) < 2 and "local_steps" not in given:
        given["local_steps"] = checked("default_local_steps", config["default_local_steps"], int)
    if len(given) < 2:
        given["total_steps"] = checked("default_total_steps", config["default_total_steps"], int)
    for name, value in given.items():
        if value < 1:
            raise ConfigError(f"{name}={value}: expected at least 1")
    if "total_steps" not in given:
        given["total_steps"] = given["rounds"] * given["local_steps"]
    for known, follows in (("local_steps", "rounds"), ("rounds", "local_steps")):
        if known in given and follows not in given:
            given[follows] = _divide(given["total_steps"], known, given[known])
    return given


def _epochs_as_steps(config: Mapping[str, Any]) -> dict[str, int]:
    """local_steps and total_steps of local_epochs and total_epochs."""
    asked = {
        name: f"{name.removesuffix('epochs')}steps"
        for name in ("local_epochs", "total_epochs")
        if config[name] is not None
    }
    steps = {}
    for name, follows in asked.items():
        epochs = checked(name, config[name], int)
        if config[follows] is not None:
            raise ConfigError(f"{name}={epochs}, {follows}={config[follows]}: expected one of the two")
        if epochs < 1:
            raise ConfigError(f"{name}={epochs}: expected at least 1")
        steps[follows] = epochs * _steps_per_epoch(name, config)
    return steps


def _steps_per_epoch(name: str, config: Mapping[str, Any]) -> int:
    """Values out of their range count as 1: the range is refused later."""
    if config["sample_rate"] is not None:
        rate = checked("sample_rate", config["sample_rate"], float)
        steps: int = round(1 / rate) if 0 < rate <= 1 else 1
        return steps
    if config["batch_size"] is None:
        return 1
    size: int = checked("batch_size", config["batch_size"], int)
    clients: int = checked("clients", config["clients"], int)
    records: int | None = config["records"]
    if records is None and config["dataset"]["records"] is not None:
        records = equal_share(config["dataset"]["records"], config["partition"], max(1, clients))
    if records is None:
        raise ConfigError(
            f"{name}={config[name]}: expected to know a client's records; say records=N, or sample_rate in"
            " place of batch_size"
        )
    return max(1, -(-records // max(1, size)))


def _divide(total: int, name: str, part: int) -> int:
    if total % part:
        divisors = [k for k in range(1, total + 1) if total % k == 0]
        below = [k for k in divisors if k < part][-2:]
        above = [k for k in divisors if k > part][:2]
        near = ", ".join(map(str, below + above))
        raise ConfigError(f"{name}={part}: expected a divisor of total_steps={total}; the nearest are {near}")
    return total // part


def _fill_suggested(config: dict[str, Any]) -> None:
    for key in ("clients", "lr"):
        if config[key] is None:
            config[key] = config["dataset"][key]
    if config["clients"] is None:
        raise ConfigError("clients=null: expected a whole number, for this data set suggests none")
    if config["sampled_clients"] is None:
        config["sampled_clients"] = config["clients"]


def _check_ranges(made: Settings) -> None:
    for path, allowed in SETTINGS.items():
        value: Any = made
        for part in path.split("."):
            value = getattr(value, part)
        check_range(path, value, allowed)
    if made.model.get("l2", 0) < 0:
        raise ConfigError(f"model.l2={made.model['l2']:g}: expected a number >= 0")
    if made.sampled_clients > made.clients:
        raise ConfigError(
            f"sampled_clients={made.sampled_clients}: expected at most clients={made.clients}; lower it or"
            " leave it out for all"
        )
