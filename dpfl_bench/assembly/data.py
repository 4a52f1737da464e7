"""The data that a run's YAML names: loaded, prepared and dealt to the clients."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from dpfl_bench import rng
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.call import call as call
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import check_call
from dpfl_bench.config.typed import checked
from dpfl_bench.data import contents
from dpfl_bench.data.contents import Contents
from dpfl_bench.data.indices import Indices
from dpfl_bench.data.prepare import arranged, owned, prepare
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.federation import lot_size
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.holders import Holders
from dpfl_bench.federation.parts import by_owner, digest
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.machine import device


@dataclass(frozen=True)
class Data:
    """The records that were loaded, and how they were dealt.

    federation: the records as the clients hold them. parts: each client's indices into the training
    records. holders: who holds which record. dealt: the partition's digest, where `records` have
    been put in its order. contents: what was loaded, before it was split and dealt. indices: the
    same parts in the source's order.
    """

    federation: Federation
    records: Records
    parts: list[np.ndarray]
    holders: Holders
    dealt: str = ""
    contents: Contents = field(default_factory=Contents)
    indices: Indices | None = None

    @property
    def partition_hash(self) -> str:
        return self.dealt or digest(self.parts)

    @cached_property
    def digest(self) -> str:
        """16 hex digits that name the records and who holds which."""
        content = hashlib.blake2b(self.partition_hash.encode(), digest_size=8)
        for column in (self.records.train_x, self.records.train_y, self.records.test_x, self.records.test_y):
            content.update(f"{column.shape} {column.dtype}".encode())
            content.update(np.ascontiguousarray(column).reshape(-1).view(np.uint8).data)
        return content.hexdigest()

    def partition_csv(self) -> str:
        """A line for each client: its records, its own test records where it has some, and, in
        classification, how many of each label.
        """
        classes = range(self.records.classes if self.records.task == "classify" else 0)
        own = self.test_sizes
        lines = [",".join(["client", "records", "test_records", *(f"label_{k}" for k in classes)])]
        for client, part in enumerate(self.parts):
            counts = [int((self.records.train_y[part] == k).sum()) for k in classes]
            tests = "" if own is None else own[client]
            lines.append(",".join(map(str, [client, len(part), tests, *counts])))
        return "\n".join(lines) + "\n"

    @property
    def test_sizes(self) -> list[int] | None:
        """How many test records are each client's own; None where all share one test set."""
        owners = self.federation.test_owners
        if owners is None:
            return None
        known = owners[owners >= 0].cpu().numpy()
        return [int(count) for count in np.bincount(known, minlength=len(self.parts))]


def load_data(settings: Settings) -> Data:
    """Load, prepare and deal the records. Errors in the data are ValueErrors of one line."""
    dataset = settings.dataset
    check_call(dataset, "dataset")  # before its module is imported, to ask which files it reads
    before = contents.stamps(dataset)
    raw = _records(dataset)
    loaded = _contents(dataset, raw, before)
    _check_task(dataset, raw)
    records, parts = _dealt(settings, raw)
    _check_declared(dataset, records)
    holders = _holders(settings, parts, len(records.train_y))
    lot_size.check(settings.batch_size, holders.smallest)
    lots = LotRule(settings.batch_size, settings.sample_rate)
    where, numbers = device.choose(settings.device), device.dtype(settings.dtype)
    indices = Indices.of(len(raw.train_y), records.split_off, parts, records.taken)
    dealt = digest(indices.parts)
    records, parts = arranged(records, parts)
    return Data(
        Federation(records, parts, lots, where, numbers), records, parts, holders, dealt, loaded, indices
    )


def _records(dataset: Mapping[str, Any]) -> Records:
    raw = call(dataset, "dataset")
    if not isinstance(raw, Records):
        raise ConfigError(
            f"dataset._target_={dataset['_target_']}: expected a function that returns"
            f" dpfl_bench.data.records.Records, got {type(raw).__name__}"
        )
    return raw


def _dealt(settings: Settings, raw: Records) -> tuple[Records, list[np.ndarray]]:
    """The prepared records, and each client's indices into them. With `split: client` the records
    are dealt first, and each client splits off test records of its own.
    """
    if settings.dataset.get("split") == "client":
        records = _prepared(settings.dataset, owned(raw, _parts(settings, raw)))
        return records, by_owner(cast(np.ndarray, records.owners))
    records = _prepared(settings.dataset, raw)
    return records, _parts(settings, records)


def _check_task(dataset: Mapping[str, Any], raw: Records) -> None:
    declared = dataset.get("task", "classify")
    if raw.task != declared:
        raise ConfigError(
            f"dataset.task={declared}: the records of {raw.source} are for {raw.task}; correct the YAML file"
        )


def _contents(dataset: Mapping[str, Any], raw: Records, before: object) -> Contents:
    """What was loaded, by its hash. Refuses files that changed while they were read: the hash might
    be of other bytes than the records.

    before: the files' stamps before they were read.
    """
    if not contents.has_known_files(dataset):
        return contents.of_records(raw)
    loaded = contents.of_files(dataset)
    if loaded is None or (before is not None and before != contents.stamps(dataset)):
        raise DataError(
            f"{raw.source}: its files changed while they were read; expected them to stay as they are; start"
            " the run again"
        )
    return loaded


def _check_declared(dataset: Mapping[str, Any], records: Records) -> None:
    """Refuse records with another shape or other classes than the YAML file says: the noise may
    follow from what it says, which counts as public.
    """
    for key, loaded in (("shape", list(records.train_x.shape[1:])), ("classes", records.classes)):
        if dataset[key] is not None and dataset[key] != loaded:
            raise ConfigError(
                f"dataset.{key}={dataset[key]}: the records of {records.source} have {loaded}; correct the"
                " YAML file, or replace the data"
            )


def _prepared(dataset: Mapping[str, Any], raw: Records) -> Records:
    names = ("test_fraction", "standardise", "unit_norm", "seed")
    published = {"centres": list | None, "scales": list | None, "limit": float | None}
    optional = {
        **published,
        "transform": str | None,
        "dimensions": int | None,
        "weights": str | None,
        "augment": bool | None,
    }
    given = {n: checked(f"dataset.{n}", dataset.get(n), kind) for n, kind in optional.items()}
    return prepare(raw, **{n: dataset[n] for n in names}, **given)


def _parts(settings: Settings, records: Records) -> list[np.ndarray]:
    """Each client's indices into the training records, as the partition deals them."""
    draw = rng.generator(settings.partition["seed"], "partition")
    given = {"labels": records.train_y, "owners": records.owners, "clients": settings.clients, "rng": draw}
    try:
        return cast(list[np.ndarray], call(settings.partition, "partition", **given))
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _holders(settings: Settings, parts: list[np.ndarray], records: int) -> Holders:
    """Who holds which record, counted from the parts. Refuses parts that no partition may deal, a
    partition that does not do what it declares, and a client without records.
    """
    name = settings.partition["name"]
    if len(parts) != settings.clients:
        raise ConfigError(
            f"partition={name}: expected {settings.clients} clients (clients=), it dealt records to"
            f" {len(parts)}"
        )
    try:
        holders = Holders.of(parts, records)
    except ValueError as error:
        raise ConfigError(f"partition={name}: {error}") from None
    if holders.most > 1 and settings.overlapping is False:
        raise ConfigError(
            f"partition={name}: it declares that no record sits in two clients, and one sits in"
            f" {holders.most}; say deals: overlapping in its YAML file, or correct it"
        )
    if not holders.smallest:
        raise ConfigError(
            f"partition={name}: a client of {settings.clients} has no records; use fewer clients"
        )
    return holders
