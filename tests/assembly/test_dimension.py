"""The number of a model's parameters is known before any data load, and it is that of the model."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from helpers.command import call
from helpers.federations import settings_of
from helpers.imported import loaded_by

from dpfl_bench.assembly.dimension import dimension
from dpfl_bench.assembly.model import build_problem
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.checks.signatures import count_of
from dpfl_bench.config.settings import Settings
from dpfl_bench.problems import linear


def settings_for(model: str, shape: list[int], classes: int, *overrides: str) -> Settings:
    settings = settings_of("algo=fedavg", f"model={model}", "clients=10", *overrides)
    return replace(settings, dataset={**settings.dataset, "shape": shape, "classes": classes})


@pytest.mark.parametrize("bias", ["null", "true", "false"])
@pytest.mark.parametrize(("shape", "classes"), [([5], 2), ([5], 3), ([2, 4, 4], 10)])
def test_logistic_regression_counts_what_is_built(shape: list[int], classes: int, bias: str) -> None:
    settings = settings_for("logreg", shape, classes, "dataset=digits", f"model.bias={bias}")
    outputs = 1 if classes == 2 else classes
    with_bias = {"null": classes > 2, "true": True, "false": False}[bias]
    assert dimension(settings) == outputs * (math.prod(shape) + with_bias)
    assert dimension(settings) == build_problem(settings, shape, classes).dimension


@pytest.mark.parametrize("bias", [True, False])
def test_least_squares_counts_what_is_built(bias: bool) -> None:
    settings = settings_for(
        "linreg", [7], 0, "dataset=synthetic_linear", "dataset.clients=10", f"model.bias={bias}"
    )
    assert dimension(settings) == 7 + bias == build_problem(settings, [7], 0).dimension


def test_a_network_is_built_to_be_counted() -> None:
    settings = settings_for("mlp", [64], 10, "dataset=digits", "model.hidden=[3]")
    assert count_of(linear.logreg) is not None
    assert dimension(settings) == 64 * 3 + 3 + 3 * 10 + 10


def test_what_the_yaml_file_says_comes_first_and_a_run_compares_it() -> None:
    settings = settings_for("logreg", [5], 2, "dataset=digits")
    stated = replace(settings, model={**settings.model, "parameters": 99})
    assert (dimension(settings), dimension(stated)) == (5, 99)


def test_without_a_shape_nothing_is_counted() -> None:
    settings = settings_for("logreg", [5], 2, "dataset=digits")
    with pytest.raises(
        ConfigError, match=r"dataset\.shape=null: the noise depends on the number of parameters"
    ):
        dimension(replace(settings, dataset={**settings.dataset, "shape": None}))


@pytest.mark.slow
def test_linear_models_are_counted_without_torch() -> None:
    """FedEXP's noise on the norms follows from the number of parameters."""
    code = "from dpfl_bench.cli import main; main({})"
    plan = ["plan", "algo=dp_fedexp", "privacy=central", "dataset=digits", "model={}"]
    assert call(*[word.format("logreg") for word in plan]).code == 0
    linear_model, network = (
        loaded_by(code.format([word.format(model) for word in plan])) for model in ("logreg", "mlp")
    )
    assert "torch" not in linear_model
    assert "torch" in network
