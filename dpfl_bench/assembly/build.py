"""From settings to objects: the only place that knows which classes the YAML files name."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from dpfl_bench import rng
from dpfl_bench.algorithms.base import Algorithm
from dpfl_bench.assembly.holders import Holders
from dpfl_bench.budget.budget import BITS_SENSITIVITY, Budget
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import fits
from dpfl_bench.config.call import call as call
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import target, uses_norms
from dpfl_bench.config.validate import checked
from dpfl_bench.data import contents
from dpfl_bench.data.contents import Contents
from dpfl_bench.data.indices import Indices
from dpfl_bench.data.prepare import arranged, owned, prepare
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.experiment import engine
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.cohort import Cohort
from dpfl_bench.federation.doors import GradientDoor, Quantile, SendDoor
from dpfl_bench.federation.local import Optimiser
from dpfl_bench.federation.partition import by_owner, digest
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.machine import device
from dpfl_bench.privacy import lattice
from dpfl_bench.problems import optimum, tasks
from dpfl_bench.problems.linear import LinearProblem
from dpfl_bench.problems.module import ModuleProblem, check_module
from dpfl_bench.problems.problem import Problem

DESCRIBING = {"_target_", "name", "private", "coins", "needs", "deals"}  # keys that describe a choice and are no parameters of it


def algorithm(settings: Settings) -> Algorithm:
    return _algorithm(settings.algo, "algo")


def _algorithm(node: Mapping[str, Any], path: str) -> Algorithm:
    """With the algorithm that it is put over (`work`), if there is one."""
    unknown = set(node) - set(inspect.signature(target(node)).parameters) - DESCRIBING
    if unknown:
        raise ConfigError(f"{path}.{unknown.pop()}: {node['_target_']} has no such parameter; remove it from the YAML file")
    work = {"work": _algorithm(node["work"], f"{path}.work")} if "work" in node else {}
    return cast(Algorithm, call({k: v for k, v in node.items() if k != "work"}, path, **work))


def problem(settings: Settings, shape: list[int], classes: int) -> Problem:
    """The model for records of this shape, checked against the privacy model."""
    task = settings.dataset.get("task", "classify")
    if settings.model["_target_"].startswith("dpfl_bench.problems.linear"):  # in a user's file, which need not say what it needs
        fits.check_task(settings, ("classify", "regress"))
    try:
        make = partial(call, settings.model, "model", shape=shape, classes=classes, task=task)
        with torch.device("meta"):  # shapes and no numbers: a large network takes seconds and half a gigabyte
            made = make()
        if not isinstance(made, nn.Module):
            return _closed_form(settings, made)
        if classes == 0:
            raise ConfigError(f"model={settings.model['name']}: expected a classification data set, got regression (use model=linreg)")
        check_module(made, settings.private)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return ModuleProblem(make, classes, task=_task(settings), backend=engine.backend(settings, made, device.choose(settings.device)))


def check_parameters(settings: Settings, made: Problem) -> None:
    """The noise may have been chosen by what a file of one's own says."""
    said = settings.model.get("parameters")
    if said not in (None, made.dimension):
        raise ConfigError(f"model.parameters={said}: the model has {made.dimension}; correct the YAML file")


def _closed_form(settings: Settings, made: Any) -> Problem:
    """A model that computes its gradients itself."""
    if settings.engine.backend not in ("auto", "closed_form"):
        raise ConfigError(f"engine.backend={settings.engine.backend}: model={settings.model['name']} has closed forms; use auto")
    return cast(Problem, made)


def _task(settings: Settings) -> tasks.Task:
    """What the data set asks for."""
    name = settings.dataset.get("task", "classify")
    if name == "next_token":
        return tasks.next_token(settings.dataset.get("unknown"))
    return {"classify": tasks.classify, "segment": tasks.segment}[checked("dataset.task", name, Literal["classify", "segment"])]()


@dataclass(frozen=True)
class Data:
    """What was loaded and how it was dealt."""

    federation: Federation
    records: Records
    parts: list[np.ndarray]
    holders: Holders
    dealt: str = ""  # the partition's digest, where `records` have been put in its order
    contents: Contents = field(default_factory=Contents)  # of what was loaded, before it was split and dealt
    indices: Indices | None = None  # by the source's order

    @property
    def partition_hash(self) -> str:
        return self.dealt or digest(self.parts)

    @cached_property
    def digest(self) -> str:
        """16 hex digits that name the records and who holds which."""
        found = hashlib.blake2b(self.partition_hash.encode(), digest_size=8)
        for column in (self.records.train_x, self.records.train_y, self.records.test_x, self.records.test_y):
            found.update(f"{column.shape} {column.dtype}".encode())
            found.update(np.ascontiguousarray(column).reshape(-1).view(np.uint8).data)
        return found.hexdigest()

    def partition_csv(self) -> str:
        """A line for each client: its records and, in classification, how many of each label."""
        classes = range(self.records.classes if self.records.task == "classify" else 0)
        lines = [",".join(["client", "records", *(f"label_{k}" for k in classes)])]
        for client, part in enumerate(self.parts):
            counts = [int((self.records.train_y[part] == k).sum()) for k in classes]
            lines.append(",".join(map(str, [client, len(part), *counts])))
        return "\n".join(lines) + "\n"


def data(settings: Settings) -> Data:
    """Load, prepare and deal the records. Errors in the data are ValueErrors of one line."""
    dataset, partition = settings.dataset, settings.partition
    before = contents.stamps(dataset)
    raw = call(dataset, "dataset")
    loaded = _contents(dataset, raw, before)
    if raw.task != dataset.get("task", "classify"):
        told = dataset.get("task", "classify")
        raise ConfigError(f"dataset.task={told}: the records of {raw.source} are for {raw.task}; correct the YAML file")
    if dataset.get("split") == "client":
        records = _prepared(dataset, owned(raw, _parts(settings, raw)))
        parts = by_owner(cast(np.ndarray, records.owners))
    else:
        records = _prepared(dataset, raw)
        parts = _parts(settings, records)
    _check_declared(dataset, records)
    holders = _holders(settings, parts, len(records.train_y))
    smallest = holders.smallest or 0
    if smallest == 0:
        raise ConfigError(f"partition={partition['name']}: a client of {settings.clients} has no records; use fewer clients")
    if settings.batch_size is not None and settings.batch_size > smallest:
        raise ConfigError(fits.lot_too_large(settings.batch_size, smallest))
    lots = LotRule(settings.batch_size, settings.sample_rate)
    where, numbers = device.choose(settings.device), device.dtype(settings.dtype)
    dealt, indices = digest(parts), Indices.of(len(raw.train_y), records.split_off, parts)
    records, parts = arranged(records, parts)
    return Data(Federation(records, parts, lots, where, numbers), records, parts, holders, dealt, loaded, indices)


def _contents(dataset: Mapping[str, Any], raw: Records, before: object) -> Contents:
    """What was loaded. Files that were written to meanwhile may be neither what was read nor what is hashed."""
    if not contents.has_known_files(dataset):
        return contents.of_records(raw)
    found = contents.of_files(dataset)
    if found is None or (before is not None and before != contents.stamps(dataset)):
        raise DataError(f"{raw.source}: its files changed while they were read; expected them to stay as they are; start the run again")
    return found


def _check_declared(dataset: Mapping[str, Any], records: Records) -> None:
    """The noise may have been chosen by what the file says, and what it says counts as public."""
    for key, found in (("shape", list(records.train_x.shape[1:])), ("classes", records.classes)):
        if dataset[key] is not None and dataset[key] != found:
            raise ConfigError(
                f"dataset.{key}={dataset[key]}: the records of {records.source} have {found}; correct the YAML file, or replace the data"
            )


def _prepared(dataset: Mapping[str, Any], raw: Records) -> Records:
    names = ("test_fraction", "standardise", "unit_norm", "seed")
    published = {"centres": list | None, "scales": list | None, "limit": float | None}
    optional = {**published, "transform": str | None, "dimensions": int | None, "weights": str | None, "augment": bool | None}
    given = {n: checked(f"dataset.{n}", dataset.get(n), kind) for n, kind in optional.items()}
    return prepare(raw, **{n: dataset[n] for n in names}, **given)


def _parts(settings: Settings, records: Records) -> list[np.ndarray]:
    """As the partition deals the training records."""
    draw = rng.generator(settings.partition["seed"], "partition")
    given = {"labels": records.train_y, "owners": records.owners, "clients": settings.clients, "rng": draw}
    try:
        return cast(list[np.ndarray], call(settings.partition, "partition", **given))
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _holders(settings: Settings, parts: list[np.ndarray], records: int) -> Holders:
    """Who holds what was dealt. Refuses parts that are none, and a partition that does not do what it declares."""
    name = settings.partition["name"]
    if len(parts) != settings.clients:
        raise ConfigError(f"partition={name}: expected {settings.clients} clients (clients=), it dealt records to {len(parts)}")
    try:
        holders = Holders.of(parts, records)
    except ValueError as error:
        raise ConfigError(f"partition={name}: {error}") from None
    if holders.most > 1 and settings.overlapping is False:
        raise ConfigError(
            f"partition={name}: it declares that no record sits in two clients, and one sits in {holders.most}; "
            "say deals: overlapping in its YAML file, or correct it"
        )
    return holders


def cohort(settings: Settings, budget: Budget, made: Problem, loaded: Data, seed: int) -> Cohort:
    """The round player of one seed."""
    privacy = settings.privacy
    closed = settings.private or privacy.bound_without_noise
    at_records = closed and privacy.unit == "record"
    return Cohort(
        algorithm=algorithm(settings),
        problem=made,
        federation=loaded.federation,
        optimiser=_optimiser(settings),
        door=send_door(settings, budget, seed) if closed and not at_records else _open_door(settings, seed),
        chunk=engine.chunk(settings, made, loaded.federation),
        seed=seed,
        clip=privacy.clip if isinstance(privacy.clip, float) else 0.0,
        records=GradientDoor(privacy.fixed_clip, budget.noise_ratio, seed) if at_records else None,
        average_last=settings.average_last,
    )


def _optimiser(settings: Settings) -> Optimiser:
    decay = settings.lr_decay if settings.server_momentum_of == "direction" else 1.0
    return Optimiser(settings.local_momentum, settings.weight_decay, settings.server_lr, settings.server_momentum, decay)


def send_door(settings: Settings, budget: Budget, seed: int) -> SendDoor:
    """Client level."""
    privacy, companions = settings.privacy, {c.name: c for c in budget.companions}
    quantile = None
    if privacy.quantile is not None:
        noise = companions["bits"].noise_multiplier(budget.noise_multiplier) if settings.private else 0.0
        quantile = Quantile(privacy.quantile, privacy.quantile_lr, noise * BITS_SENSITIVITY[privacy.neighbours])
    norms = None
    if uses_norms(settings.algo):
        norms = companions["norms"].noise_multiplier(budget.noise_multiplier) if "norms" in companions else 0.0
    return SendDoor(
        bound=privacy.bound,
        trust=privacy.trust,
        noise=budget.noise_ratio,
        memory=privacy.remembered,
        seed=seed,
        median=privacy.clip == "median",
        quantile=quantile,
        privunit=budget.privunit,
        norms=norms,
        discrete=settings.private and privacy.noise == "discrete",
    )


def check_grid(settings: Settings, budget: Budget) -> None:
    """Refuse privacy.noise=discrete where sums of whole multiples of its grid's spacing would not be exact."""
    if not settings.private or settings.privacy.noise != "discrete":
        return
    clients = settings.clients if settings.sampling == "poisson" else settings.sampled_clients
    share = clients**-0.5 if settings.privacy.trust == "secagg" else 1.0
    if device.wide(device.choose(settings.device)) != torch.float64:
        raise ConfigError(f"privacy.noise=discrete: device={settings.device} has no float64, in which its sums are exact; use device=cpu")
    for noise in (budget.noise_ratio * share, *(c.noise_multiplier(budget.noise_multiplier) for c in budget.companions)):
        if not lattice.sums_exactly(clients, noise):
            raise ConfigError(
                f"privacy.noise=discrete: noise of {noise:.3g} C is too small for {clients} updates to be added up exactly; use gaussian"
            )


def _open_door(settings: Settings, seed: int) -> SendDoor:
    return SendDoor(None, settings.privacy.trust, 0.0, "own_message", seed, norms=0.0 if uses_norms(settings.algo) else None)


@dataclass(frozen=True)
class Reference:
    """The exact optimum and the constants of the problem at hand."""

    x_star: Tensor  # (d,) float64
    f_star: float
    h_star: Tensor  # (M, d) float64: each client's gradient there
    mu: float
    L: float  # the largest over all clients


def reference(settings: Settings, made: Problem, federation: Federation) -> Reference | None:
    """For linear problems small enough to solve exactly; None else."""
    if not isinstance(made, LinearProblem) or device.wide(federation.features.device) != torch.float64:
        return None
    decay = made.l2 + settings.weight_decay
    features = federation.features / 255 if federation.features.dtype == torch.uint8 else federation.features
    best = optimum.solve(made, features, federation.targets, federation.record_weights, decay)
    if best is None:
        return None
    exact = LinearProblem(made.features, made.classes, made.bias, decay)
    everyone = np.arange(federation.clients)
    rows = [exact.gradient(best.x[None], batch) for batch in federation.whole_in_float64(everyone)]
    slopes, largest = torch.cat(rows), optimum.smoothness(made, features, federation.offsets.tolist(), decay)
    known = math.isfinite(largest) and bool(slopes.isfinite().all())
    return Reference(best.x, best.value, slopes, decay, largest) if known else None
