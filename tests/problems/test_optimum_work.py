"""How large a problem may be for its exact optimum to be computed."""

from __future__ import annotations

import pytest
import torch

from dpfl_bench.problems import optimum
from dpfl_bench.problems.linear_problem import LinearProblem


def test_only_half_of_the_blocks_count() -> None:
    """Ten classes of 40 features and a bias: 55 blocks of 41 x 41, not 100."""
    ten = LinearProblem(40, 10, True, 0.1)
    assert optimum.work(ten, 1000) == 1000 * 55 * 41**2 + 410**3
    two = LinearProblem(40, 2, True, 0.1)
    assert optimum.work(two, 1000) == 1000 * 41**2 + 41**3
    least_squares = LinearProblem(40, 0, False, 0.1)
    assert optimum.work(least_squares, 1000) == 1000 * 40**2 + 40**3


@pytest.mark.parametrize(
    ("records", "features", "classes", "fits"),
    [(400_000, 40, 10, True), (450_000, 40, 10, False), (60_000, 784, 10, False), (10, 784, 10, False)],
)
def test_what_is_worth_it(records: int, features: int, classes: int, fits: bool) -> None:
    """dpscaffold's synthetic data are, MNIST's 7,850 parameters are not."""
    work = optimum.work(LinearProblem(features, classes, True, 0.1), records)
    assert (work <= optimum.LARGEST_WORK) == fits


def test_too_large_a_problem_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = LinearProblem(3, 3, True, 0.1)
    x, y = torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4)
    weights = torch.full((12,), 1 / 12, dtype=torch.float64)
    assert optimum.solve(problem, x, y, weights, 0.1) is not None
    monkeypatch.setattr(optimum, "LARGEST_WORK", optimum.work(problem, 12) - 1)
    assert optimum.solve(problem, x, y, weights, 0.1) is None
