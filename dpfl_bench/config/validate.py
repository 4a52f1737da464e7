"""From a composed config to typed, validated settings, before any data loads and without torch."""

from __future__ import annotations

import pickle
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.checks.ranges import LEAST
from dpfl_bench.checks.ranges import check as check_range
from dpfl_bench.config import fits, group_keys, measures, refusals, rounds, tracker_names, unknown
from dpfl_bench.config.catalogue import GROUPS
from dpfl_bench.config.compose import Composed
from dpfl_bench.config.ranges import MOST_DRAWN, MOST_ROUNDS, SETTINGS
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import ours
from dpfl_bench.config.typed import check_names, checked
from dpfl_bench.federation import dealing

NAME = re.compile(r"\w[\w.+-]{0,99}")  # of a choice: it becomes part of file names
SAYS_CLIENTS = re.compile(r"\+*dataset\.clients=")
ONLY_FOR_COMPOSING = (*rounds.DEFAULTS, "local_epochs", "total_epochs", "expected_lot", "points")


def settings(composed: Composed, used: Collection[str] = fits.GROUPS) -> Settings:
    """Validate everything that can be known without data; ConfigError names the key, the value and
    the remedy.

    used: the groups that have to fit the data set; where its files alone are looked at, the default
    model need not.
    """
    config = dict(composed.config)
    if config.get("points") is not None:
        raise ConfigError(f"points={config['points']}: expected a sweep; say -m too (dpfl-bench run -m ...)")
    _check_keys(config, composed.reference)
    check_names("", config, [*(f.name for f in fields(Settings)), *ONLY_FOR_COMPOSING])
    nodes = [_Node(group, repr(config[group]), id(composed.reference), composed) for group in GROUPS[:-1]]
    config.update((node.group, pickle.loads(_typed(node))) for node in nodes)
    _check_choices(config)
    for node in nodes:
        _check_group(node)
    dataset, reference = _kept(_as_many_clients(config, composed), composed.reference["dataset"])
    config["dataset"] = _as_the_model_sees(_without_stale(dataset, reference))
    _fill_suggested(config)
    tracker_names.check(config["trackers"])
    config["measure"] = measures.check(config["measure"])
    config["sample_rate"] = rounds.sample_rate(config, composed.reference)
    config.update(rounds.lengths(config))
    suggested = config["eval_every"] is None
    for key in ONLY_FOR_COMPOSING:
        del config[key]
    given: Settings = checked("", {**config, "eval_every": 1} if suggested else config, Settings)
    _check_ranges(given)
    fits.check(given, used)
    refusals.check(given)
    return replace(given, eval_every=rounds.evaluation_interval(given)) if suggested else given


@dataclass(frozen=True)
class _Node:
    """A group of a job as it is composed. Most jobs of a sweep have it too: it is looked at
    once.
    """

    group: str
    content: str
    reference: int  # which one
    job: Composed = field(compare=False)  # the first with this group


@lru_cache(maxsize=1000)
def _typed(node: _Node) -> bytes:
    """The group's values as their types, pickled: each job has its own."""
    group, job = node.group, node.job
    return pickle.dumps(_as_reference(group, job.config[group], job.reference[group]))


@lru_cache(maxsize=1000)
def _check_group(node: _Node) -> None:
    group_keys.check(node.group, pickle.loads(_typed(node)))


def _check_keys(
    config: Mapping[str, Any],
    reference: Mapping[str, Any],
    prefix: str = "",
    whole: Mapping[str, Any] | None = None,
) -> None:
    """The keys that the chosen files have, at every depth. whole: with those above the prefix."""
    whole = reference if whole is None else whole
    check_names(prefix, config, reference, lambda path, shown: unknown.key(path, shown, whole))
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(reference[key], dict):
            if not isinstance(value, dict):
                raise ConfigError(
                    f"{path}={value}: expected keys of its own, like {path}.{next(iter(reference[key]))}"
                )
            _check_keys(value, reference[key], f"{path}.", whole)


def _check_choices(config: Mapping[str, Any]) -> None:
    """What the five groups' choices are called."""
    for group in GROUPS:
        name = config[group].get("name") if isinstance(config[group], Mapping) else None
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            shown = " ".join(str(name).split())
            raise ConfigError(
                f"{group}.name={shown}: expected letters, digits, _ - . and +, the first a letter, a digit"
                " or _"
            )


def _as_reference(path: str, value: Any, reference: Any) -> Any:
    """A group's values take the types of their defaults; a default of null takes anything."""
    if isinstance(reference, dict):
        if not isinstance(value, dict):
            raise ConfigError(
                f"{path}={value}: expected the name of a file in conf/{path}/ or the keys of one"
            )
        return {key: _as_reference(f"{path}.{key}", value[key], reference[key]) for key in value}
    group, _, key = path.partition(".")
    known = group_keys.KEYS[group].get(key)
    return checked(path, value, known.kind if known else Any if reference is None else type(reference))


def _kept(dataset: dict[str, Any], reference: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Both with so many records as `keep` leaves of an image set."""
    keep, known = dataset.get("keep"), reference["records"]
    if keep is None or not ours(dataset) or known is None:
        return dataset, reference
    if not isinstance(keep, int) or isinstance(keep, bool) or not 1 <= keep <= known:
        raise ConfigError(
            f"dataset.keep={keep}: expected a whole number, at least 1 and at most {known}, the training"
            " images of the set (null: all)"
        )
    records = keep if dataset["records"] == known else dataset["records"]
    return {**dataset, "records": records}, {**reference, "records": keep}


def _as_many_clients(config: Mapping[str, Any], composed: Composed) -> dict[str, Any]:
    """The data set, with as many natural clients as `clients` says, where its own key `clients`
    counts them and nobody said that. Both said and different is refused by `fits`.
    """
    dataset, file, asked = config["dataset"], composed.reference["dataset"], config["clients"]
    says, facts = dealing.of(config["partition"]), dataset.get("holds") or {}
    follows = says is not None and says.natural and facts.get("natural") == "clients"
    said = says_clients(composed.overrides)
    if not follows or said or not isinstance(asked, int) or dataset["clients"] != file["clients"]:
        return dict(dataset)
    records = dataset["records"]
    if records is not None and records == file["records"]:
        records = records * asked // file["clients"]
    return {**dataset, "clients": asked, "records": records}


def says_clients(overrides: Sequence[str]) -> bool:
    """Whether a job says how many clients its data set has. Of its overrides, nothing else is
    asked: the composed config holds the rest.
    """
    return any(SAYS_CLIENTS.match(word) for word in overrides)


def _without_stale(dataset: dict[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """What a data set's file says of its prepared records holds for the file's own preparation
    only; unknown under another.
    """
    scaling = ("standardise", "centres", "scales", "limit", "unit_norm")
    preparing = ("test_fraction", "split", *scaling, "seed", "transform", "dimensions", "weights")
    if all(dataset.get(key) == reference.get(key) for key in preparing):
        return dataset
    split_alike = all(dataset.get(key) == reference.get(key) for key in ("test_fraction", "split"))
    stated = dataset["records"] != reference["records"] or split_alike
    records = dataset["records"] if stated else None
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


def _fill_suggested(config: dict[str, Any]) -> None:
    for key in ("clients", "lr"):
        if config[key] is None:
            config[key] = config["dataset"][key]
    for key, kind in (("clients", "a whole number"), ("lr", "a number")):
        if config[key] is None:
            raise ConfigError(f"{key}=null: expected {kind}, for this data set suggests none; say {key}=")
    if config["sampled_clients"] is None:
        config["sampled_clients"] = config["clients"]


def _check_ranges(settings: Settings) -> None:
    for path, allowed in SETTINGS.items():
        check_range(path, attrgetter(path)(settings), allowed)
    if settings.measured_client >= settings.clients and "client" in settings.measure:
        raise ConfigError(
            f"measured_client={settings.measured_client}: expected one of 0..{settings.clients - 1}, the"
            " clients of this run"
        )
    if settings.sampled_clients > settings.clients:
        raise ConfigError(
            f"sampled_clients={settings.sampled_clients}: expected at most clients={settings.clients}; lower"
            " it or leave it out for all"
        )
    _check_length(settings)


def _check_length(settings: Settings) -> None:
    """Whether the rounds can be drawn before training, and whether the last one still moves."""
    last = 1.0 if settings.lr == "1/L" else settings.lr * settings.lr_decay ** (settings.rounds - 1)
    if last < LEAST:
        raise ConfigError(
            f"lr_decay={settings.lr_decay:g}: expected lr >= {LEAST:g} in the last of {settings.rounds}"
            f" rounds, it would be {last:g}; raise lr_decay"
        )
    rounds = settings.rounds * settings.repeats
    each = settings.clients if settings.sampling == "poisson" else settings.sampled_clients
    most = MOST_ROUNDS if settings.sampling == "full" else max(1, min(MOST_ROUNDS // 10, MOST_DRAWN // each))
    if rounds > most:
        raise ConfigError(
            f"rounds={settings.rounds}, repeats={settings.repeats}: expected at most {most} rounds of all"
            f" seeds together, for their cohorts are drawn before training, got {rounds}"
        )
