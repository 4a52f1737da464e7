"""The linear models that conf/model names: logistic regression and least squares.

Without torch: `plan` asks them how many parameters they have. Beside a model NAME may stand a
function NAME_parameters that says so, with those of the model's arguments that it needs
(`assembly/dimension.py` looks for it). `closed_form.py` computes their gradients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpfl_bench.problems.linear_size import parameters

if TYPE_CHECKING:
    from dpfl_bench.problems.closed_form import LinearProblem


def logreg(shape: list[int], classes: int, l2: float, bias: bool | None) -> LinearProblem:
    """Logistic regression. bias=None: none for two classes (the strongly convex problem of
    `balancing`), one per class for more.
    """
    from dpfl_bench.problems.closed_form import LinearProblem

    if classes < 2:
        raise ValueError(
            "model=logreg: expected a classification data set, got regression (use model=linreg)"
        )
    return LinearProblem(math.prod(shape), classes, logreg_bias(classes, bias), l2)


def logreg_bias(classes: int, bias: bool | None) -> bool:
    """Whether there is a bias, where `model.bias` may leave it open."""
    return classes > 2 if bias is None else bias


def logreg_parameters(shape: list[int], classes: int, bias: bool | None) -> int:
    return parameters(math.prod(shape), classes, logreg_bias(classes, bias))


def linreg(
    shape: list[int], classes: int, l2: float, bias: bool, init: str, init_scale: float
) -> LinearProblem:
    """Least squares, loss 1/2 (x'w - y)^2."""
    from dpfl_bench.problems.closed_form import LinearProblem

    if classes != 0:
        raise ValueError(
            f"model=linreg: expected a regression data set, got one with {classes} classes (use model=logreg)"
        )
    if init not in ("zeros", "near_optimum"):
        raise ValueError(f"model.init={init}: expected zeros or near_optimum")
    return LinearProblem(math.prod(shape), 0, bias, l2, init, init_scale)


def linreg_parameters(shape: list[int], classes: int, bias: bool) -> int:
    return parameters(math.prod(shape), classes, bias)
