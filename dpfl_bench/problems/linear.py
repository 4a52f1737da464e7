"""The linear models of conf/model: logistic regression and least squares.

What a dry run reads of them is here, so torch is imported where they are built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from dpfl_bench.checks.ranges import NOT_NEGATIVE
from dpfl_bench.checks.signatures import counted_by
from dpfl_bench.problems.linear_size import parameters

if TYPE_CHECKING:
    from dpfl_bench.problems.linear_problem import LinearProblem


def logreg_bias(classes: int, bias: bool | None) -> bool:
    """Whether there is a bias, where `model.bias` may leave it open."""
    return classes > 2 if bias is None else bias


def _logreg_parameters(model: Mapping[str, Any], shape: Sequence[int], classes: int) -> int:
    return parameters(math.prod(shape), classes, logreg_bias(classes, model.get("bias")))


def _linreg_parameters(model: Mapping[str, Any], shape: Sequence[int], classes: int) -> int:
    return parameters(math.prod(shape), classes, bool(model.get("bias")))


@counted_by(_logreg_parameters)
def logreg(
    shape: list[int], classes: int, l2: Annotated[float, NOT_NEGATIVE], bias: bool | None
) -> LinearProblem:
    """Logistic regression. bias=None: none for two classes (the strongly convex problem of
    `balancing`), one per class for more.
    """
    from dpfl_bench.problems.linear_problem import LinearProblem

    if classes < 2:
        raise ValueError(
            "model=logreg: expected a classification data set, got regression (use model=linreg)"
        )
    return LinearProblem(math.prod(shape), classes, logreg_bias(classes, bias), l2)


@counted_by(_linreg_parameters)
def linreg(
    shape: list[int],
    classes: int,
    l2: Annotated[float, NOT_NEGATIVE],
    bias: bool,
    init: str,
    init_scale: float,
) -> LinearProblem:
    """Least squares, loss 1/2 (x'w - y)^2."""
    from dpfl_bench.problems.linear_problem import LinearProblem

    if classes != 0:
        raise ValueError(
            f"model=linreg: expected a regression data set, got one with {classes} classes (use model=logreg)"
        )
    if init not in ("zeros", "near_optimum"):
        raise ValueError(f"model.init={init}: expected zeros or near_optimum")
    return LinearProblem(math.prod(shape), 0, bias, l2, init, init_scale)
