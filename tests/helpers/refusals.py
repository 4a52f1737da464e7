"""Tables of refusals, and the shape that each refusal has."""

from __future__ import annotations

import pytest

from helpers.command import Said


def table(text: str) -> list[pytest.param]:
    rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return [pytest.param(overrides.split(), key, word, id=overrides) for overrides, key, word in rows]


def check(said: Said, key: str, word: str) -> None:
    assert said.code == 2, said.err
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("dpfl-bench: ")
    assert key in line
    assert word in line
