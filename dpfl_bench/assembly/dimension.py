"""The number of a model's parameters, before any data load."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import check_call, target


def dimension(settings: Settings) -> int:
    """Parameters of the model, before any data load. Imports torch for networks only.

    From the first of: `parameters` in the model's YAML file (a run compares it with the model that
    is built), the function NAME_parameters beside the model's own, the model itself.
    """
    model, dataset = settings.model, settings.dataset
    if dataset["shape"] is None or dataset["classes"] is None:
        raise ConfigError(
            "dataset.shape=null: the noise depends on the number of parameters, which"
            f" dataset={dataset['name']} does not tell before it loads; say dataset.shape=[N] and"
            " dataset.classes=K"
        )
    if model.get("parameters") is not None:
        return int(model["parameters"])
    counted = _counted(model, dataset)
    if counted is not None:
        return counted
    from dpfl_bench.assembly.model import build_problem

    return build_problem(settings, dataset["shape"], dataset["classes"]).dimension


def _counted(model: Mapping[str, Any], dataset: Mapping[str, Any]) -> int | None:
    """What the function NAME_parameters beside the model's own says; None where there is none."""
    check_call(model, "model")
    target(model)  # refuses what cannot be imported
    module, _, name = str(model["_target_"]).rpartition(".")
    count = getattr(import_module(module), f"{name}_parameters", None)
    if count is None:
        return None
    wanted = inspect.signature(count).parameters
    given = {**model, "shape": dataset["shape"], "classes": dataset["classes"]}
    if not wanted.keys() <= given.keys():
        return None  # building the model says which key is missing
    return int(count(**{key: given[key] for key in wanted}))
