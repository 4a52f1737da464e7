"""The number of a model's parameters, before any data loads."""

from __future__ import annotations

import math

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.call import call as call
from dpfl_bench.config.settings import Settings


def dimension(settings: Settings) -> int:
    """Parameters of the model, before any data loads. Torch is imported for networks only."""
    model, shape, classes = settings.model, settings.dataset["shape"], settings.dataset["classes"]
    if shape is None or classes is None:
        raise ConfigError(
            "dataset.shape=null: the noise depends on the number of parameters, which"
            f" dataset={settings.dataset['name']} does not tell before it loads; say dataset.shape=[N] and"
            " dataset.classes=K"
        )
    if model["_target_"] in ("dpfl_bench.problems.linear.logreg", "dpfl_bench.problems.linear.linreg"):
        bias = model["bias"] if model["bias"] is not None else classes > 2
        return int((1 if classes <= 2 else classes) * (math.prod(shape) + bias))
    if (
        model.get("parameters") is not None
    ):  # said by a file of one's own; a run holds it to the model that is built
        return int(model["parameters"])
    from dpfl_bench.assembly.model import build_problem

    return build_problem(settings, shape, classes).dimension
