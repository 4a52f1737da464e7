"""From a composed config to typed, validated settings, before any data loads and without torch."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dpfl_bench.compose import GROUPS, Composed
from dpfl_bench.settings import ConfigError, Settings

ONLY_FOR_COMPOSING = ("default_local_steps", "default_total_steps")


def settings(composed: Composed) -> Settings:
    """Validate everything that can be known without data; ConfigError names the key, the value and the remedy."""
    config = dict(composed.config)
    _check_keys(config, composed.reference)
    _check_names("", config, [*(f.name for f in fields(Settings)), *ONLY_FOR_COMPOSING])
    for group in GROUPS[:-1]:
        config[group] = _as_reference(group, config[group], composed.reference[group])
    config["dataset"] = _without_stale(config["dataset"], composed.reference["dataset"])
    config.update(_schedule(config))
    _fill_suggested(config)
    if config["eval_every"] is None:
        config["eval_every"] = max(1, math.ceil(config["rounds"] / 25))
    for key in ONLY_FOR_COMPOSING:
        del config[key]
    made: Settings = checked("", config, Settings)
    _check_ranges(made)
    _check_privacy(made)
    _check_lots(made)
    return made


def _check_keys(config: Mapping[str, Any], reference: Mapping[str, Any], prefix: str = "") -> None:
    """The keys that the chosen files have, at every depth."""
    _check_names(prefix, config, reference)
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(reference[key], Mapping):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{path}={value}: expected keys of its own, like {path}.{next(iter(reference[key]))}")
            _check_keys(value, reference[key], f"{path}.")


def _check_names(prefix: str, given: Mapping[str, Any], names: Collection[str]) -> None:
    """Neither a key too many nor one too few (by `~key`, or in a user's own primary config)."""
    for name in names:
        if name not in given:
            raise ConfigError(f"{prefix}{name}: expected a value, the key is missing; dpfl-bench run --cfg job shows the default")
    for name, value in given.items():
        if name not in names:
            raise ConfigError(f"{prefix}{name}={value}: unknown key; expected one of {', '.join(sorted(names))}")


def _as_reference(path: str, value: Any, reference: Any) -> Any:
    """A group's values take the types of their defaults; a default of null takes anything."""
    if isinstance(reference, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}={value}: expected the name of a file in conf/{path}/ or the keys of one")
        return {key: _as_reference(f"{path}.{key}", value[key], reference[key]) for key in value}
    return value if reference is None else checked(path, value, type(reference))


def checked(path: str, value: Any, kind: Any) -> Any:
    """`value` as `kind` (a dataclass, Literal, optional, bool, int, float, str, list or dict), or a ConfigError."""
    if isinstance(kind, types.UnionType) or get_origin(kind) is typing.Union:
        inner = next(k for k in get_args(kind) if k is not type(None))
        return None if value is None else checked(path, value, inner)
    if kind is Any:
        return value
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(f"{path}={value}: expected {' or '.join(map(str, get_args(kind)))}")
        return value
    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
        hints = get_type_hints(kind)
        _check_names(f"{path}.".lstrip("."), value, hints)
        given = {f.name: checked(f"{path}.{f.name}".lstrip("."), value[f.name], hints[f.name]) for f in fields(kind)}
        return kind(**given)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = get_origin(kind) or kind
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise ConfigError(f"{path}={'null' if value is None else value}: expected {_WORDS.get(expected, expected)}")
    return value


_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word", list: "a list like [1,2]"}


def _without_stale(dataset: dict[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """What a data set's file says of its prepared records holds for the file's own preparation only; unknown under another."""
    if all(dataset[key] == reference[key] for key in ("test_fraction", "standardise", "unit_norm", "seed")):
        return dataset
    records = dataset["records"] if dataset["test_fraction"] == reference["test_fraction"] else None
    return {**dataset, "gram": None, "max_row_norm": 1.0 if dataset["unit_norm"] else None, "records": records}


def _schedule(config: Mapping[str, Any]) -> dict[str, int]:
    """Exactly two of rounds, local_steps and total_steps; the third follows."""
    names = ("rounds", "local_steps", "total_steps")
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


@dataclass(frozen=True)
class _Range:
    holds: Callable[[Any], bool]
    expected: str


_POSITIVE = _Range(lambda v: 0 < v < math.inf, "a number > 0")
_NOT_NEGATIVE = _Range(lambda v: 0 <= v < math.inf, "a number >= 0")
_FACTOR = _Range(lambda v: 0 <= v < 1, "a number >= 0 and < 1")
_COUNT = _Range(lambda v: v >= 1, "at least 1")
_RANGES = {
    "eps": _Range(lambda v: v > 0, "eps > 0 (use eps=inf for no privacy)"),
    "delta": _Range(lambda v: 0 < v < 1, "0 < delta < 1 (well below 1 / clients)"),
    "clients": _COUNT,
    "sampled_clients": _COUNT,
    "batch_size": _COUNT,
    "sample_rate": _Range(lambda v: 0 < v <= 1, "0 < sample_rate <= 1"),
    "records": _COUNT,
    "lr": _POSITIVE,
    "lr_decay": _Range(lambda v: 0 < v <= 1, "0 < lr_decay <= 1"),
    "local_momentum": _FACTOR,
    "weight_decay": _NOT_NEGATIVE,
    "server_lr": _POSITIVE,
    "server_momentum": _FACTOR,
    "seed": _Range(lambda v: 0 <= v < 2**62, "a whole number >= 0"),
    "repeats": _COUNT,
    "eval_every": _COUNT,
    "checkpoint_every": _COUNT,
    "privacy.clip": _Range(lambda v: 0 < v < math.inf, "a number > 0 (there is no privacy without a bound; eps=inf drops both)"),
    "privacy.v": _POSITIVE,
    "privacy.noise_multiplier": _POSITIVE,
    "engine.chunk": _COUNT,
    "theory.psi0": _POSITIVE,
    "theory.L": _POSITIVE,
}


def _check_ranges(made: Settings) -> None:
    for path, allowed in _RANGES.items():
        value: Any = made
        for part in path.split("."):
            value = getattr(value, part)
        if value is not None and not allowed.holds(value):
            raise ConfigError(f"{path}={value:g}: expected {allowed.expected}")
    if made.model.get("l2", 0) < 0:
        raise ConfigError(f"model.l2={made.model['l2']:g}: expected a number >= 0")
    if made.sampled_clients > made.clients:
        raise ConfigError(
            f"sampled_clients={made.sampled_clients}: expected at most clients={made.clients}; lower it or leave it out for all"
        )


def _check_privacy(made: Settings) -> None:
    """What can be refused by looking at the algorithm and the privacy model alone."""
    algo, privacy = made.algo, made.privacy
    if made.private and not algo["private"]:
        raise ConfigError(f"eps={made.eps:g}: algo={algo['name']} is the one without privacy; use algo=dp_{algo['name']} or eps=inf")
    if made.private and privacy.calibration == "fixed" and privacy.noise_multiplier is None:
        raise ConfigError("privacy.noise_multiplier=null: expected a number > 0 with privacy.calibration=fixed")
    for key, value, wanted in (("noise_multiplier", privacy.noise_multiplier, "fixed"), ("v", privacy.v, "formula")):
        if made.private and value is not None and privacy.calibration != wanted:
            raise ConfigError(
                f"privacy.{key}={value:g}: unused with privacy.calibration={privacy.calibration}; say {wanted} there, or leave it out"
            )
    if made.private and privacy.calibration == "formula" and privacy.v is None:
        raise ConfigError("privacy.v=null: expected the formula's constant, a number > 0, with privacy.calibration=formula")
    if target(algo).remembers:
        _check_memory(made)


def _check_memory(made: Settings) -> None:
    """What control variates need of the cohorts and of the place where the noise is added."""
    name, privacy = made.algo["name"], made.privacy
    if made.sampling == "poisson":
        raise ConfigError(
            f"client_sampling=poisson: algo={name} needs control variates that sum to 0, and dividing by the expected cohort size "
            "breaks that; use client_sampling=fixed"
        )
    if made.private and privacy.trust == "central" and privacy.memory != "own_update":
        raise ConfigError(
            f"privacy.trust=central: algo={name} needs control variates that sum to 0, and with noise added once at a trusted server "
            "their sum is a random walk of that noise; use privacy=secagg, or say privacy.memory=own_update to run the drifting form"
        )


def _check_lots(made: Settings) -> None:
    if made.batch_size is not None and made.sample_rate is not None:
        raise ConfigError(f"sample_rate={made.sample_rate:g}: expected one of the two, got batch_size={made.batch_size} too")
    known = made.dataset["records"]
    smallest = made.records or (known // made.clients if known else None)
    if made.batch_size is not None and smallest is not None and made.batch_size > smallest:
        raise ConfigError(
            f"batch_size={made.batch_size}: expected at most the smallest client's records, {smallest}; "
            f"lower it, or lower clients={made.clients}"
        )


def target(node: Mapping[str, Any]) -> Any:
    """What `_target_` of a group's file names."""
    path = str(node["_target_"])
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"_target_={path}: expected an importable package.module.Name ({error})") from None
