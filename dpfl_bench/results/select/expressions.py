"""Arithmetic over named quantities: `100 * test_metric`, `ln(suboptimality)`, `signal_norm /
noise_norm`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from dpfl_bench.checks.errors import ConfigError

_OPERATORS: dict[type[Any], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
_OF_ONE: dict[str, Callable[..., Any]] = {"ln": np.log, "log10": np.log10, "sqrt": np.sqrt, "abs": np.abs}
_OF_SEVERAL: dict[str, Callable[..., Any]] = {
    "min": np.minimum,
    "max": np.maximum,
    "first": lambda one, other: np.where(np.isnan(one), other, one),  # the first that is a number
}


@dataclass(frozen=True)
class Expression:
    text: str
    names: tuple[str, ...]  # the quantities in it
    _tree: ast.expr

    def of(self, values: Mapping[str, Any]) -> Any:
        """Its value where each name has that value: a number, or an array."""
        with np.errstate(all="ignore"):
            return _value(self._tree, {name: np.asarray(values[name], dtype=float) for name in self.names})


@lru_cache(maxsize=1000)
def parse(text: str) -> Expression:
    """ConfigError where it is no arithmetic over names."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        names: dict[str, None] = {}
        _look(tree, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError, _NoArithmetic):
        raise ConfigError(
            f"{' '.join(text.split())[:100]}: expected names of quantities, numbers, + - * / ** and"
            f" {', '.join((*_OF_ONE, *_OF_SEVERAL))}(...), as in 100 * test_metric"
        ) from None
    return Expression(text, tuple(names), tree)


class _NoArithmetic(Exception):
    pass


def _look(node: ast.expr, names: dict[str, None]) -> None:
    """Collects the names; raises _NoArithmetic at anything else than arithmetic."""
    if isinstance(node, ast.Name | ast.Attribute):
        name = _dotted(node)
        if "__" in name or name in (*_OF_ONE, *_OF_SEVERAL):
            raise _NoArithmetic
        names[name] = None
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        _look(node.left, names)
        _look(node.right, names)
    elif isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        _look(node.operand, names)
    elif isinstance(node, ast.Call) and not node.keywords and _takes(_dotted(node.func), len(node.args)):
        for argument in node.args:
            _look(argument, names)
    elif not (isinstance(node, ast.Constant) and type(node.value) in (int, float)):
        raise _NoArithmetic


def _takes(function: str, count: int) -> bool:
    """numpy would write the result into an argument too many."""
    return count == 1 if function in _OF_ONE else count > 1 and function in _OF_SEVERAL


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    raise _NoArithmetic


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name | ast.Attribute):
        return values[_dotted(node)]
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_value(node.operand, values))
    if isinstance(node, ast.Call):
        name, arguments = _dotted(node.func), [_value(argument, values) for argument in node.args]
        return _OF_ONE[name](*arguments) if name in _OF_ONE else reduce(_OF_SEVERAL[name], arguments)
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int | float)
    return np.float64(node.value)  # Python's own numbers raise at 1 / 0, and have no bound in size
