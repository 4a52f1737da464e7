"""Arithmetic over named quantities: what it gives, and that nothing else gets through."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.select.expressions import parse

X = np.array([0.5, 2.0, 3.0])
Y = np.array([4.0, -1.0, 0.25])

CASES = {
    "x": X,
    " x\n": X,
    "x + y": X + Y,
    "x - y": X - Y,
    "x * y": X * Y,
    "x / y": X / Y,
    "x ** 2": X**2,
    "-x": -X,
    "-x ** 2": -(X**2),
    "(x + y) * 2 - 1.5e1": (X + Y) * 2 - 15,
    "1 - x - y": 1 - X - Y,
    "x / y / 2": X / Y / 2,
    "ln(x)": np.log(X),
    "log10(x)": np.log10(X),
    "sqrt(x)": np.sqrt(X),
    "abs(y)": np.abs(Y),
    "min(x, y)": np.minimum(X, Y),
    "max(x, y)": np.maximum(X, Y),
    "min(x, y, 1)": np.minimum(np.minimum(X, Y), 1),
    "max(1, x, y)": np.maximum(np.maximum(X, Y), 1),
    "result.a.b * x": 7 * X,
    "first(x, y)": X,
    "first(sqrt(0 - abs(x) - 1), y)": Y,
    "ln(max(x, abs(y)))": np.log(np.maximum(X, np.abs(Y))),
}


@pytest.mark.parametrize("text", CASES)
def test_against_numpy(text: str) -> None:
    x, y = X.copy(), Y.copy()
    found = parse(text).of({"x": x, "y": y, "result.a.b": 7, "unused": 3})
    np.testing.assert_array_equal(found, CASES[text])
    np.testing.assert_array_equal([x, y], [X, Y])  # numpy's third argument is where it writes


def test_names() -> None:
    assert parse("a * b.c / a - ln(d)").names == ("a", "b.c", "d")
    assert parse("1 + 2").names == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x / 0", math.inf),
        ("1 / 0", math.inf),
        ("-1 / 0 + x", -math.inf),
        ("ln(0 * x)", -math.inf),
        ("0 / 0", math.nan),
        ("(0 - 8) ** (1 / 3)", math.nan),  # complex in Python
        ("sqrt(0 - x)", math.nan),
        ("10 ** 10 ** 10", math.inf),  # no end in Python's whole numbers
        ("10.0 ** 400", math.inf),
    ],
)
def test_what_is_no_number_is_inf_or_nan(text: str, expected: float) -> None:
    assert float(parse(text).of({"x": 1.0})) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "best local_steps",
        "x[0]",
        "f(x)",
        "ln",
        "ln + x",
        "ln(x).real",
        "ln()",
        "ln(x, y)",
        "sqrt(x, x)",
        "min(x)",
        "max()",
        "min(*x)",
        "min(x, y=1)",
        "min(x, out=y)",
        "(lambda: 0)()",
        "lambda: 0",
        "'x'",
        "'x' * 100",
        "x.__class__",
        "__import__",
        "__import__('os').system('true')",
        "x if y else 1",
        "x < y",
        "x and y",
        "not x",
        "x // y",
        "x % y",
        "x @ y",
        "~x",
        "True",
        "None",
        "1j",
        "[x, y]",
        "{x: y}",
        "(x, y)",
        "(y := x)",
        "f'{x}'",
        "x; y",
        "x = y",
        "import os",
        "x\ny",
        "x\0",
        "(" * 5000 + "x" + ")" * 5000,
        "-" * 100_000 + "x",
    ],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match="expected names of quantities") as error:
        parse(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300
