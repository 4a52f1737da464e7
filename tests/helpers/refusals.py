"""Tables of refusals, and the shape that each refusal has."""

from __future__ import annotations

import re

import pytest

from helpers.command import Said


def table(text: str) -> list[pytest.param]:
    """A row a line; an indented line goes on with the row above it."""
    lines = re.sub(r"\n +", " ", text.strip()).splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return [pytest.param(overrides.split(), key, word, id=overrides) for overrides, key, word in rows]


def check(said: Said, key: str, word: str) -> None:
    assert said.code == 2, said.err
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("dpfl-bench: ")
    assert key in line
    assert word in line
