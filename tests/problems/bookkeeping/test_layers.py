"""Records' gradients from one forward and one backward pass, against each record alone in an
ordinary float64 module.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.networks import CASES, Case, started
from helpers.odd_layers import LAYERS
from oracles.record_gradients import DTYPES, built, errors, records
from torch import nn

from dpfl_bench.problems import tasks
from dpfl_bench.problems.bookkeeping import rules, supported

pytestmark = pytest.mark.one_in(12)

each_dtype = pytest.mark.parametrize("dtype", DTYPES)


@pytest.mark.usefixtures("multiplies")
@each_dtype
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, dtype: torch.dtype) -> None:
    make, shape = LAYERS[name]
    module, x = built(make, dtype), records(shape, dtype)
    assert supported(module)
    assert supported(module, x)
    assert errors(module, x) < DTYPES[dtype]


def test_every_rule_is_tested() -> None:
    kinds = {type(layer) for make, _ in LAYERS.values() for layer in make().modules()}
    assert kinds >= {*rules.RULES, nn.LSTM}


@pytest.mark.usefixtures("multiplies")
@each_dtype
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name != "vgg11_light"],  # layers of vgg11
    ids=lambda case: case.id,
)
def test_models(case: Case, dtype: torch.dtype) -> None:
    small = case.smaller
    n = 2 if "vgg" in case.name else 3
    module, x = started(small).to(dtype), small.records(n, dtype)
    draw = np.random.default_rng(2)
    if case.name == "unet3d":
        task, targets = tasks.segment(), torch.from_numpy(draw.integers(0, 2, (n, *small.shape[1:])))
    elif case.tokens and not case.overrides:
        task, targets = (
            tasks.next_token(None),
            torch.from_numpy(draw.integers(-1, case.classes, (n, *small.shape))),
        )
    else:
        task, targets = tasks.classify(), torch.from_numpy(draw.integers(0, case.classes, n))
    assert supported(module, x)
    assert errors(module, x, task.losses, targets) < DTYPES[dtype]
