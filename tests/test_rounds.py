"""One round of every model on its data set, at both privacy units, on the smallest real sample there is."""

from __future__ import annotations

import math

import pytest
from command import QUICK, call, metrics, read
from conftest import CONF
from test_data import real_data

CIFAR = ("dataset=cifar100", "dataset.verify=false", "dataset.download=false", "clients=3", "partition=iid")
CASES = {
    "balancing_cnn": (*CIFAR, "cifar-100-python/train"),
    "pfl_cnn_cifar": (*CIFAR, "cifar-100-python/train"),
    "vgg11_light": (*CIFAR, "cifar-100-python/train"),
    "cnn": ("dataset=femnist", "clients=6", "femnist/data/train"),
    "mlp": ("dataset=femnist", "clients=6", "femnist/data/train"),
    "logreg": ("dataset=femnist", "clients=6", "femnist/data/train"),
    "fedexp_cdp": ("dataset=femnist", "clients=6", "femnist/data/train"),
    "fedexp_ldp": ("dataset=femnist", "clients=6", "femnist/data/train"),
    "pfl_cnn_mnist": ("dataset=femnist", "clients=6", "femnist/data/train"),
    "dnn_200": ("dataset=digits", "clients=20", ""),
    "linreg": ("dataset=quadratics", "dataset.clients=5", "clients=5", "dataset.dimension=10", "dataset.rank=4", ""),
    "lstm": ("dataset=reddit", "dataset.fraction=0.02", "clients=3", "dataset.clients=3", "reddit/data/train"),
    "unet3d": ("dataset=ixi", "dataset.owners=3", "clients=3", "IXI/IXI_sample"),
}
# heads on features, which test_features.py makes; a network of 129 million parameters, whose light form is here
ELSEWHERE = {"pfl_sn_linear", "pfl_sn_cnn_mnist", "pfl_sn_cnn_cifar", "vgg11"}
UNITS = {
    "client": ("algo=dp_fedavg", "batch_size=2"),
    "record": ("algo=dp_scaffold", "privacy=record", "batch_size=2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("model", CASES)
def test_one_round(model: str, unit: str) -> None:
    *overrides, file = CASES[model]
    if file:
        real_data(file)
    said = call("run", *overrides, f"model={model}", *UNITS[unit], "eps=8", "rounds=1", "local_steps=1", *QUICK)
    result, rows = read(said.folder, "result.json"), metrics(said.folder)
    assert (result["status"], result["unit"]) == ("done", unit)
    assert 0 < result["eps"] <= 8
    assert rows["train_loss"].map(math.isfinite).all()
    assert rows["train_loss"].nunique() == 2  # it moved
    assert bool(result["subset"]) == (file != "")


@pytest.mark.slow
def test_characters_are_predicted_from_the_last_position() -> None:
    real_data("shakespeare/data/train")
    said = call("run", "dataset=shakespeare", "dataset.fraction=0.005", "partition=iid", "clients=3", "algo=dp_fedavg", "batch_size=2",
                "rounds=1", "local_steps=1", *QUICK)  # fmt: skip
    assert read(said.folder, "result.json")["metric"] == "accuracy"


def test_every_model_is_here() -> None:
    assert {path.stem for path in (CONF / "model").glob("*.yaml")} == {*CASES, *ELSEWHERE}
