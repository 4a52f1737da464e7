"""What a run's id is made of: every setting that can change a number, and no import path of ours.

A packaged option's `_target_` counts as the option's name, so our modules can move. Any other
`_target_` counts as it is written. There are three kinds: a user's own, one that the command line
sets, and one in a file whose name no packaged option has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Set
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from dpfl_bench import RESULTS_VERSION

GROUPS = ("algo", "dataset", "model", "partition")  # those whose options name code

# Settings that stay out of a run's id, and why a change of one moves no number beyond float
# rounding
UNTOLD = {
    "device": "where it runs",
    "checkpoint_every": "a run that goes on ends with the same bits",
    "outputs": "where it is written",
    "plot": "drawn of the numbers",
    "trackers": "they get copies of the numbers",
    "engine": "how the machine is used",
    "theory": "only `plan` reads it",
    "records": "only `plan` reads it",
}
# The same of a group's keys. This holds for the loaders and models of this package alone: nobody
# knows what a user's own code does with a key of that name
UNTOLD_OF_DATASET = {
    "root": (
        "where the files lie; the run keeps a hash of what they hold (origin.json), which is compared before"
        " the run is taken"
    ),
    "url": "where the files come from; the same hash",
    "licence": "for a reader",
    "address": "for a reader",
    "download": "whether missing files are fetched; the same hash",
    "lr": "a suggestion; the run's own lr is in the id",
    "records": "read before the data are there: by `plan`, and by the refusals of what cannot be dealt",
    "gram": "only `plan` reads it",
    "max_row_norm": "only `plan` reads it",
    "holds": "only the refusals of what does not fit read it",
}
UNTOLD_OF_MODEL = {"needs": "only the refusals of what does not fit read it"}
# repeats of one point differ in these
REPEATS = {"seed", "repeats", "eval_every", "eval_last", "evaluate", "measure", "measured_client"}
SEEDS = {"seed"}  # and in these keys of the data set and of the partition


def untold_of(node: Mapping[str, Any], untold: Mapping[str, str]) -> Set[str]:
    """The keys of a group's node that stay out of the id."""
    return untold.keys() if str(node.get("_target_")).startswith("dpfl_bench.") else frozenset()


def run_id(settings: Mapping[str, Any], doors_open: bool) -> str:
    """10 hex of everything that can change a number.

    settings: every field of `Settings`, as plain dictionaries and values.
    doors_open: nothing is bounded and no noise is added, so nothing reads the privacy settings.
    """
    return _hash(settings, doors_open, UNTOLD.keys(), frozenset())


def point_id(settings: Mapping[str, Any], doors_open: bool) -> str:
    """`run_id` without the seeds and without `eval_every`. Repeats share it."""
    return _hash(settings, doors_open, UNTOLD.keys() | REPEATS, SEEDS)


def _idle(settings: Mapping[str, Any]) -> set[str]:
    """Of what a run measures, what asks for nothing: a run that measures nothing more keeps the id
    that it had before there was anything more to measure.
    """
    asked = settings["measure"]
    idle = {
        "measure": not asked,
        "measured_client": "client" not in asked,
        "eval_last": settings["eval_last"] == 1,
        "evaluate": settings["evaluate"] == "all",
        "train_subset": settings["train_subset"] is None,
    }
    return {key for key, nothing in idle.items() if nothing}


def _of_privacy(privacy: Mapping[str, Any]) -> dict[str, Any]:
    """Without what nobody states, for the same reason."""
    stated = ("nominal", "nominal_how", "client_share")
    return {key: value for key, value in privacy.items() if value is not None or key not in stated}


def _hash(settings: Mapping[str, Any], doors_open: bool, left_out: Collection[str], seeds: Set[str]) -> str:
    left_out = {*left_out, *_idle(settings)}
    kept = {key: value for key, value in settings.items() if key not in left_out}
    hidden: dict[str, Set[str]] = {
        "algo": set(),
        "dataset": untold_of(kept["dataset"], UNTOLD_OF_DATASET) | seeds,
        "model": untold_of(kept["model"], UNTOLD_OF_MODEL),
        "partition": seeds,
    }
    for group in GROUPS:
        node = by_choice(group, kept[group])
        if group == "dataset" and node.get("keep", 0) is None and untold_of(kept[group], {"keep": ""}):
            hidden[group] = {*hidden[group], "keep"}  # all of a set, as before there was that key
        kept[group] = {key: value for key, value in node.items() if key not in hidden[group]}
    kept["privacy"] = _of_privacy(kept["privacy"])
    if doors_open:
        kept["privacy"] = kept["delta"] = None
    text = json.dumps([RESULTS_VERSION, kept], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def by_choice(group: str, node: Mapping[str, Any]) -> dict[str, Any]:
    """The node with {"option": NAME} in place of each `_target_` that the packaged option of the
    node's own name has at the same place.

    Only the packaged `_target_` is replaced, so two different computations never get one id.
    """
    name = str(node.get("name"))
    return _replaced(node, packaged(group, name), name)


def _replaced(node: Mapping[str, Any], option: Mapping[str, Any], name: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in node.items():
        shipped = option.get(key)
        if key == "_target_" and isinstance(shipped, str) and value == shipped:
            kept[key] = {"option": name}  # no `_target_` that can be called is a dictionary
        elif isinstance(value, Mapping):
            kept[key] = _replaced(value, shipped if isinstance(shipped, Mapping) else {}, name)
        else:
            kept[key] = value
    return kept


@cache
def packaged(group: str, name: str) -> Mapping[str, Any]:
    """What this package's own file of an option says; nothing where there is no such option."""
    import yaml

    file = Path(str(files("dpfl_bench.conf"))) / group / f"{name}.yaml"
    if not file.is_file():
        return {}
    content = yaml.safe_load(file.read_text()) or {}
    within = content.get(group, content)  # a file of `@package _global_` has its keys under the group's
    return within if isinstance(within, Mapping) else {}
