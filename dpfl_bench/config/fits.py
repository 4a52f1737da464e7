"""Whether data set, partition and model go together, as far as their YAML files know. The records
are asked again when they are there.

What records are is said by a data set's `holds`, what a model takes by its `needs`. Where a user's
file leaves one out, it is not known here; the functions that deal the records and build the model
still refuse what they cannot take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from dpfl_bench.checks import ranges, signatures
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import catalogue
from dpfl_bench.config.identity import packaged
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import ours, target
from dpfl_bench.config.typed import checked
from dpfl_bench.data import published
from dpfl_bench.data.records import Scaling, check_tokens
from dpfl_bench.data.source import source_of
from dpfl_bench.federation import lot_size, preconditions
from dpfl_bench.federation.dealing import Node

GROUPS = ("dataset", "partition", "model")
TASKS = ("classify", "next_token", "segment")  # that a data set's file may name


def check(settings: Settings, used: Collection[str]) -> None:
    """Raise ConfigError for the first key of these groups that is out of its range, or does not fit
    the data set.
    """
    for group in used:
        node: Mapping[str, Any] = getattr(settings, group)
        declared = _declared(node)
        for key, kind in _types(node).items():
            if key in node and node[key] is None and kind is str and key in declared:
                raise ConfigError(f"{group}.{key}=null: expected {declared[key].expected}")
            if key in node:
                checked(f"{group}.{key}", node[key], kind)
        for key, allowed in declared.items():
            ranges.check(f"{group}.{key}", node.get(key), allowed)
        try:
            _CHECKS[group](settings)
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(str(error)) from None


def _types(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """The types that a function of ours declares; a user's own are checked at the call, too."""
    return signatures.types(target(node)) if ours(node) else {}


def _declared(node: Mapping[str, Any]) -> Mapping[str, ranges.Range]:
    """The ranges that a function of ours declares. A user's own is not imported here: its ranges
    are checked when a run calls it.
    """
    return signatures.ranges(target(node)) if ours(node) else {}


def _check_dataset(settings: Settings) -> None:
    dataset = settings.dataset
    split, fraction = dataset.get("split", "global"), dataset["test_fraction"]
    ranges.check("dataset.test_fraction", fraction, ranges.TEST_FRACTION)
    if split not in ("global", "client"):
        raise ConfigError(f"dataset.split={split}: expected global or client")
    if split == "client" and not fraction > 0:
        raise ConfigError(
            "dataset.split=client: expected dataset.test_fraction > 0, of each client's records; found"
            f" {fraction:g}"
        )
    if dataset.get("task", "classify") not in TASKS:
        raise ConfigError(f"dataset.task={dataset['task']}: expected classify, next_token or segment")
    if _facts(settings).get("tokens"):
        check_tokens(
            f"dataset={dataset['name']}",
            dataset["standardise"] != "none" or dataset["unit_norm"],
            dataset.get("transform"),
        )
    if dataset["standardise"] == "public":
        _check_published(dataset)


def _check_published(dataset: Mapping[str, Any]) -> None:
    """What `public` works with. Where the file has no numbers, a loader that generates records
    brings a law, and a user's own may.
    """
    centres, scales, limit = (dataset.get(key) for key in ("centres", "scales", "limit"))
    source = source_of(dataset)
    unknown = Scaling((), ()) if source is None or source.generated else None
    published.constants(centres, scales, limit, unknown, f"dataset={dataset['name']}")


def _check_partition(settings: Settings) -> None:
    """Of our own partitions, what they ask of the records before they deal them."""
    dataset, partition = settings.dataset, settings.partition
    by_client = dataset.get("split") == "client"
    if partition.get("deals", "disjoint") not in ("disjoint", "overlapping"):
        raise ConfigError(
            f"partition.deals={partition['deals']}: expected disjoint or overlapping, or leave it out if it"
            " is not known"
        )
    if by_client and settings.overlapping:
        raise ConfigError(
            f"dataset.split=client, partition={partition['name']}: one client's test records may train"
            " another; use partition=iid"
        )
    says = settings.dealing
    if says is None:
        return
    if says.by_class:
        name = str(partition["_target_"]).rpartition(".")[2]
        preconditions.classes(task(dataset) in ("classify", None), name)
    if says.natural:
        _check_natural(settings)
    # of records that clients split, the training records are not all
    known = None if by_client else dataset["records"]
    if known is None:
        return
    says.check(known, settings.clients, partition)
    if says.drawn is not None:
        _check_lots_of_chance(settings, says.drawn, known)


def _check_natural(settings: Settings) -> None:
    """`holds.natural` is none, files, the key of the data set that counts its clients, or
    `client`, the key of the column that names them.
    """
    key = _facts(settings).get("natural")
    owners = 0 if key == "none" else settings.dataset.get(str(key))
    if key == "client" and owners is None:
        raise ConfigError(
            f"partition=natural: expected whose each record is; say dataset.{key}=COLUMN, or partition=iid"
        )
    if isinstance(owners, int):
        preconditions.natural(owners, settings.clients)


def _check_lots_of_chance(settings: Settings, drawn: Callable[[int, int, Node], int], known: int) -> None:
    """Chance decides how small the smallest client is. Between the least and the mean, the
    partition's seed is asked.
    """
    size, least, mean = settings.batch_size, settings.smallest_client, settings.records_per_client
    if (
        size is None
        or settings.records is not None
        or least is None
        or mean is None
        or not least < size <= mean
    ):
        return
    lot_size.check(size, drawn(known, settings.clients, settings.partition))


def _check_model(settings: Settings) -> None:
    dataset, needs = settings.dataset, settings.model.get("needs") or {}
    if "tasks" in needs:
        check_task(settings, needs["tasks"])
    _check_tokens(settings, needs.get("tokens"))
    if dataset["shape"] is not None and needs.get("axes") not in (None, len(dataset["shape"])):
        use = (
            "lstm"
            if _facts(settings).get("tokens")
            else {3: "cnn"}.get(len(dataset["shape"]), "mlp or model=logreg")
        )
        raise ConfigError(
            f"model={settings.model['name']}: expected records with {_axes(needs['axes'])},"
            f" dataset={dataset['name']} has dataset.shape={dataset['shape']}; use model={use}"
        )
    check = signatures.check_of(target(settings.model)) if ours(settings.model) else None
    if check is not None:
        check(settings.model, dataset["shape"], settings.eps)


def check_task(settings: Settings, tasks: Collection[str]) -> None:
    """Whether the model is for what the data set asks for."""
    asked = task(settings.dataset)
    if asked is not None and asked not in tasks:
        raise ConfigError(
            f"model={settings.model['name']}: expected a data set for {' or '.join(tasks)},"
            f" dataset={settings.dataset['name']} is for {asked}; use model={_default_for(asked)}"
        )


@cache
def _default_for(task: str) -> str:
    """The model whose file says, under `needs`, that it is the first to try for this task."""
    names = (entry["name"] for entry in catalogue.entries() if entry["group"] == "model")
    for name in names:
        needs = packaged("model", str(name)).get("needs") or {}
        if task in needs.get("default_for", ()):
            return str(name)
    return f"one for {task}"


def _check_tokens(settings: Settings, wanted: bool | None) -> None:
    tokens = _facts(settings).get("tokens")
    if wanted is None or tokens is None or wanted == tokens:
        return
    names = (
        f"model={settings.model['name']}: expected records of {'tokens' if wanted else 'numbers'},"
        f" dataset={settings.dataset['name']} holds"
    )
    raise ConfigError(
        f"{names} {'tokens; use model=lstm' if tokens else 'numbers; use model=mlp or model=logreg'}"
    )


def task(dataset: Mapping[str, Any]) -> str | None:
    """What is asked of a model: classify, regress, next_token or segment; None where only the
    records know.
    """
    said: str = dataset.get("task", "classify")
    if said != "classify" or dataset["classes"] is None:
        return None if said == "classify" else said
    return "classify" if dataset["classes"] else "regress"


def _axes(count: int) -> str:
    names = {1: "length", 3: "channels, height, width", 4: "channels, depth, height, width"}
    return f"shape [{names[count]}]" if count in names else f"{count} axes"


def _facts(settings: Settings) -> Mapping[str, Any]:
    """What the data set's file says of its records, under `holds`."""
    return settings.dataset.get("holds") or {}


_CHECKS: dict[str, Callable[[Settings], None]] = {
    "dataset": _check_dataset,
    "partition": _check_partition,
    "model": _check_model,
}
