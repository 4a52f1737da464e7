"""Keys and values as words that Hydra reads back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.words import of_points, text, word


def read_back(value: Any, override: str) -> Any:
    (parsed,) = OverridesParser.create().parse_overrides([override])
    assert parsed.key_or_group == "key"
    assert not parsed.is_sweep_override(), override
    return _plain(parsed.value())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return getattr(value, "text", value)  # Hydra's QuotedString


VALUES = [
    *(0, -3, 10**20, 0.1, -2.5, 1e-05, 1e22, 5.0, math.inf, -math.inf, True, False, None),
    *("dp_fedavg", "a b", "a,b", "it's", 'say "so"', "'", "''", "\\", "a\\", "\\'", "a\\'b", "\\\\", "", " "),
    *("true", "False", "null", "inf", "-inf", "nan", "NULL", "yes", "off"),
    *(
        "1",
        "1.5",
        "1e5",
        ".5",
        "-2",
        "+2",
        "1_000",
        "0x10",
        "1/L",
        "../x",
        "/a/b",
        "C:/x",
        "a:b",
        "a=b",
        "=",
        "a=b,c",
    ),
    *(
        "{a}",
        "[a]",
        "(a)",
        "$x",
        "#no",
        "%",
        "*",
        "@",
        "~x",
        "é",
        "10%",
        "near_optimum",
        "best:outputs/x",
        "tab\tx",
    ),
    *("glob(*)", "range(3)", "choice(a,b)", "sort(1)"),
    *([], [1, 2.5], ["client", "a b"], [[1, 2], [3]], [True, None, "x,y"]),
    *({"a": 1}, {"lr": 0.1, "algo": "x y"}, [{"a.b": 1}, {"c": [1]}]),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_hydra_reads_back(value: Any) -> None:
    found = read_back(value, word("key", value))
    assert found == value
    assert isinstance(found, bool) == isinstance(value, bool)
    assert isinstance(found, str) == isinstance(value, str)


def test_nan() -> None:
    assert math.isnan(read_back(math.nan, word("key", math.nan)))


def test_random_strings() -> None:
    rng = np.random.default_rng(0)
    letters = list("ab '\"\\,[]{}()=:.-+1e$@~#%*/|&<>!?;\t")
    for _ in range(1500):
        value = "".join(rng.choice(letters, rng.integers(0, 9)))
        assert read_back(value, word("key", value)) == value


def test_random_numbers_to_the_last_bit() -> None:
    rng = np.random.default_rng(1)
    for value in (*rng.normal(0, 1, 200) * 10.0 ** rng.integers(-300, 300, 200), 0.1 + 0.2, 5e-324):
        assert read_back(float(value), word("key", float(value))) == value


def test_a_reference_stays_one() -> None:
    assert word("lr", "${dataset.lr}") == "lr=${dataset.lr}"


def test_points() -> None:
    points = [{"lr": 0.1, "local_steps": 5}, {"lr": 1, "privacy.clip": None, "+algo.mu": 2}]
    assert of_points(points) == [("lr=0.1", "local_steps=5"), ("lr=1", "privacy.clip=null", "+algo.mu=2")]
    assert of_points(None) == []
    assert text(points[0]) == "{lr:0.1,local_steps:5}"


@pytest.mark.parametrize(
    "points",
    [[], {}, "x", 3, [{}], [3], [[]], [{"points": 1}], [{"": 1}], [{"a b": 1}], [{1: 2}], [{"a=b": 1}]],
    ids=repr,
)
def test_points_that_are_none(points: Any) -> None:
    with pytest.raises(ConfigError, match="expected") as error:
        of_points(points)
    assert "\n" not in str(error.value)
