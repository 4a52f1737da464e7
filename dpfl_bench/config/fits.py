"""Whether data set, partition and model go together, as far as their YAML files know. The records
are asked again when they are there.

What records are is said by a data set's `holds`, what a model takes by its `needs`. Where a user's
file leaves one out, it is not known here; the functions that deal the records and build the model
still refuse what they cannot take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

from dpfl_bench.checks import ranges
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import PARTITIONS, Settings
from dpfl_bench.data import published
from dpfl_bench.data.records import Scaling, check_tokens
from dpfl_bench.data.source import source_of
from dpfl_bench.federation import shares
from dpfl_bench.problems.models.sizes import VGG_KERNEL, convolutions

GROUPS = ("dataset", "partition", "model")
# what the functions that our files name can take
_LEAF, _OWNED = {"fraction": ranges.FRACTION}, {"owners": ranges.COUNT}
_CNN, _VGG = "dpfl_bench.problems.models.cnn.cnn", "dpfl_bench.problems.models.vgg.vgg"
_CONVOLVED = {
    "hidden": ranges.HIDDEN,
    "pooled": ranges.POOLED,
    "norm": ranges.NORM,
    "activation": ranges.ACTIVATION,
}
_OF_MAPS = ("channels", "kernel", "padding", "stride", "pool", "pool_stride", "input_groups")
_GENERATED = dict.fromkeys(("clients", "records_per_client", "dimension", "rank"), ranges.COUNT)
_RANGES: dict[str, dict[str, ranges.Range]] = {
    f"{PARTITIONS}.shards": {"shards_per_client": ranges.COUNT},
    f"{PARTITIONS}.similarity": {"percent": ranges.SIMILARITY},
    f"{PARTITIONS}.overlap": {"percent": ranges.OVERLAP},
    f"{PARTITIONS}.dirichlet": {"alpha": ranges.ALPHA},
    "dpfl_bench.data.femnist.load": _LEAF,
    "dpfl_bench.data.shakespeare.load": _LEAF,
    "dpfl_bench.data.reddit.load": {**_LEAF, "clients": ranges.COUNT},
    "dpfl_bench.data.ixi.load": _OWNED,
    "dpfl_bench.data.messidor.load": _OWNED,
    "dpfl_bench.data.synthetic.linear": _GENERATED,
    "dpfl_bench.data.synthetic.quadratics": _GENERATED,
    "dpfl_bench.data.synthetic.logistic": {
        **_GENERATED,
        "alpha": ranges.NOT_NEGATIVE,
        "beta": ranges.NOT_NEGATIVE,
        "flip": ranges.CHANCE,
    },
    "dpfl_bench.problems.models.mlp.mlp": {"hidden": ranges.HIDDEN},
    _CNN: _CONVOLVED,
    _VGG: _CONVOLVED,
    "dpfl_bench.problems.models.lstm.lstm": dict.fromkeys(
        ("embedding", "hidden", "layers", "vocabulary"), ranges.COUNT
    ),
    "dpfl_bench.problems.models.unet3d.unet3d": dict.fromkeys(("channels", "blocks"), ranges.COUNT),
}
_NEAREST = {"classify": "logreg", "regress": "linreg", "next_token": "lstm", "segment": "unet3d"}


def check(made: Settings, used: Collection[str]) -> None:
    """Raise ConfigError for the first key of these groups that is out of its range, or does not fit
    the data set.
    """
    for group in used:
        node: Mapping[str, Any] = getattr(made, group)
        for key, allowed in _RANGES.get(node["_target_"], {}).items():
            ranges.check(f"{group}.{key}", node.get(key), allowed)
        try:
            _CHECKS[group](made)
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(str(error)) from None


def _check_dataset(made: Settings) -> None:
    dataset = made.dataset
    split, fraction = dataset.get("split", "global"), dataset["test_fraction"]
    ranges.check("dataset.test_fraction", fraction, ranges.TEST_FRACTION)
    if split not in ("global", "client"):
        raise ConfigError(f"dataset.split={split}: expected global or client")
    if split == "client" and not fraction > 0:
        raise ConfigError(
            "dataset.split=client: expected dataset.test_fraction > 0, of each client's records; found"
            f" {fraction:g}"
        )
    if dataset.get("task", "classify") not in _NEAREST.keys() - {"regress"}:
        raise ConfigError(f"dataset.task={dataset['task']}: expected classify, next_token or segment")
    if _held(made).get("tokens"):
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


def _check_partition(made: Settings) -> None:
    """Of our own partitions, what they ask of the records before they deal them."""
    dataset, partition = made.dataset, made.partition
    by_client = dataset.get("split") == "client"
    if partition.get("deals", "disjoint") not in ("disjoint", "overlapping"):
        raise ConfigError(
            f"partition.deals={partition['deals']}: expected disjoint or overlapping, or leave it out if it"
            " is not known"
        )
    if by_client and made.overlapping:
        raise ConfigError(
            f"dataset.split=client, partition={partition['name']}: one client's test records may train"
            " another; use partition=iid"
        )
    kind = made.dealing
    if kind is None:
        return
    if kind in ("shards", "similarity", "dirichlet"):
        shares.classes(task(dataset) in ("classify", None), kind)
    if kind == "natural":
        _check_natural(made)
    known = (
        None if by_client else dataset["records"]
    )  # of records that clients split, the training records are not all
    if known is None:
        return
    if kind == "overlap":
        shares.overlapping(known, partition["percent"])
    elif kind != "natural":
        shares.enough(known, made.clients, partition.get("shards_per_client", 1))
    if kind == "shards":
        _check_lots_of_shards(made, known)


def _check_natural(made: Settings) -> None:
    """`natural` is none, files, or the key of the data set that counts its clients."""
    told = _held(made).get("natural")
    found = 0 if told == "none" else made.dataset.get(str(told))
    if found is not None:
        shares.natural(found, made.clients)


def _check_lots_of_shards(made: Settings, known: int) -> None:
    """Chance decides whether a client gets only the smaller shards, so between the least and the
    mean it has to be asked.
    """
    size, least, mean = made.batch_size, made.smallest_client, made.records_per_client
    if size is None or made.records is not None or least is None or mean is None or not least < size <= mean:
        return
    smallest = _smallest(known, made.clients, made.partition["shards_per_client"], made.partition["seed"])
    if size > smallest:
        raise ConfigError(lot_too_large(size, smallest))


@lru_cache(maxsize=1000)
def _smallest(records: int, clients: int, shards_per_client: int, seed: int) -> int:
    from dpfl_bench import rng
    from dpfl_bench.federation import partition  # with numpy, which a dry run mostly does without

    return partition.smallest_by_shards(records, clients, rng.generator(seed, "partition"), shards_per_client)


def lot_too_large(size: int, smallest: int) -> str:
    return (
        f"batch_size={size}: expected at most the smallest client's records, {smallest}; lower it, or use"
        " fewer clients"
    )


def _check_model(made: Settings) -> None:
    dataset, needs = made.dataset, made.model.get("needs") or {}
    if "tasks" in needs:
        check_task(made, needs["tasks"])
    _check_tokens(made, needs.get("tokens"))
    if dataset["shape"] is not None and needs.get("axes") not in (None, len(dataset["shape"])):
        use = "lstm" if _held(made).get("tokens") else {3: "cnn"}.get(len(dataset["shape"]), "mlp or logreg")
        raise ConfigError(
            f"model={made.model['name']}: expected records with {_axes(needs['axes'])},"
            f" dataset={dataset['name']} has dataset.shape={dataset['shape']}; use model={use}"
        )
    if made.model["_target_"] in (_CNN, _VGG):
        _check_convolutions(made)


def _check_convolutions(made: Settings) -> None:
    """Whether the images are large enough for all layers."""
    model, shape = made.model, made.dataset["shape"]
    if made.private and model.get("norm") == "batch":
        raise ConfigError(
            f"model.norm=batch: no clipping bounds BatchNorm's batch statistics, and eps={made.eps:g} is"
            " finite; use model.norm=group or eps=inf"
        )
    given: dict[str, Any] = {"kernel": VGG_KERNEL} if model["_target_"] == _VGG else {}
    given |= {key: model[key] for key in _OF_MAPS if key in model}
    if shape is not None and len(shape) == 3 and {"channels", "kernel"} <= given.keys():
        convolutions(shape, **given)


def check_task(made: Settings, tasks: Collection[str]) -> None:
    """Whether the model is for what the data set asks for."""
    asked = task(made.dataset)
    if asked is not None and asked not in tasks:
        raise ConfigError(
            f"model={made.model['name']}: expected a data set for {' or '.join(tasks)},"
            f" dataset={made.dataset['name']} is for {asked}; use model={_NEAREST[asked]}"
        )


def _check_tokens(made: Settings, wanted: bool | None) -> None:
    held = _held(made).get("tokens")
    if wanted is None or held is None or wanted == held:
        return
    names = (
        f"model={made.model['name']}: expected records of {'tokens' if wanted else 'numbers'},"
        f" dataset={made.dataset['name']} holds"
    )
    raise ConfigError(f"{names} {'tokens; use model=lstm' if held else 'numbers; use model=mlp or logreg'}")


def task(dataset: Mapping[str, Any]) -> str | None:
    """What is asked of a model: classify, regress, next_token or segment; None where only the
    records know.
    """
    told: str = dataset.get("task", "classify")
    if told != "classify" or dataset["classes"] is None:
        return None if told == "classify" else told
    return "classify" if dataset["classes"] else "regress"


def _axes(count: int) -> str:
    names = {1: "length", 3: "channels, height, width", 4: "channels, depth, height, width"}
    return f"shape [{names[count]}]" if count in names else f"{count} axes"


def _held(made: Settings) -> Mapping[str, Any]:
    return made.dataset.get("holds") or {}


_CHECKS: dict[str, Callable[[Settings], None]] = {
    "dataset": _check_dataset,
    "partition": _check_partition,
    "model": _check_model,
}
