"""The reference optimum of data that float64 cannot hold: there is none, and nothing else
changes.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.command import QUICK, call
from helpers.federations import player_on, settings_of

from dpfl_bench.data.records import Records
from dpfl_bench.problems import optimum
from dpfl_bench.problems.linear_problem import LinearProblem

KINDS = {"logistic": 2, "softmax": 3, "squares": 0}


def records_of(size: float, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(12, 4))
    x[0] *= size
    y = draw.integers(0, classes, 12) if classes else draw.normal(size=12)
    return torch.from_numpy(x), torch.from_numpy(y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e8, 1e20, 3e38, 1e160, 1e300, np.inf, np.nan])
def test_it_is_right_or_there_is_none(size: float, kind: str) -> None:
    """Never an error."""
    classes = KINDS[kind]
    x, y = records_of(size, classes)
    problem = LinearProblem(4, classes, classes > 2, 0.1)
    found = optimum.solve(problem, x, y, torch.full((12,), 1 / 12, dtype=torch.float64), 0.1)
    assert found is None or (np.isfinite(found.value) and found.x.isfinite().all())
    smooth = optimum.smoothness(problem, x, [0, 6, 12], 0.1)
    assert smooth > 0
    assert not np.isnan(smooth)
    assert (found is None) or size < 1e160


def test_usual_records_have_one() -> None:
    x, y = records_of(1.0, 2)
    found = optimum.solve(
        LinearProblem(4, 2, False, 0.1), x, y, torch.full((12,), 1 / 12, dtype=torch.float64), 0.1
    )
    assert found is not None


@pytest.mark.parametrize("size", [1e20, 3e38])
def test_a_run_goes_on_without_it(size: float) -> None:
    x, y = records_of(size, 2)
    flat, labels = np.clip(x.numpy(), -3.4e38, 3.4e38).astype(np.float32), y.numpy()
    records = Records(flat, labels, flat[6:], labels[6:], None, 2, "test", None)
    settings = settings_of(
        "algo=dp_scaffnew", "model=logreg", "model.l2=0.1", "dataset.shape=[4]", "dataset.classes=2",
        "partition=iid", "clients=2",
        "rounds=2", "local_steps=2", "device=cpu", "privacy.calibration=fixed", "privacy.noise_multiplier=1",
    )  # fmt: skip
    played = player_on(settings, records, [np.arange(6), np.arange(6, 12)])
    assert len(played.states()) == 2


def test_a_start_near_an_optimum_that_is_not_there_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimum, "solve", lambda *given: None)
    start = ("dataset=synthetic_linear", "model=linreg", "model.init=near_optimum")
    said = call("run", "algo=dp_fedavg", *start, "rounds=2", "local_steps=2", *QUICK)
    assert said.code == 2
    told = (
        "dpfl-bench: model.init=near_optimum: expected a problem whose optimum can be computed; use"
        " model.init=zeros"
    )
    assert said.err.strip().splitlines()[-1] == told
