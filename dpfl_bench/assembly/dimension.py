"""The number of a model's parameters, before any data load."""

from __future__ import annotations

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.checks.signatures import count_of
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import check_call, target


def dimension(settings: Settings) -> int:
    """Parameters of the model, before any data load. Imports torch for networks only.

    From the first of: `parameters` in the model's YAML file (a run compares it with the model that
    is built), what the model's function was marked with by `counted_by`, the model itself.
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
    check_call(model, "model")
    count = count_of(target(model))
    if count is not None:
        return count(model, dataset["shape"], dataset["classes"])
    from dpfl_bench.assembly.model import build_problem

    return build_problem(settings, dataset["shape"], dataset["classes"]).dimension
