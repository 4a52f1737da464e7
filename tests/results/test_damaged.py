"""`status` and `collect` over folders whose files are damaged: they say so, and neither fails nor
waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.command import QUICK, call
from helpers.fuzzing import limited

DEEP = '{"a":' * 20000 + "1" + "}" * 20000


def binary(file: Path) -> None:
    file.write_bytes(bytes(range(256)))


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def deep(file: Path) -> None:
    file.write_text(DEEP)


def huge(file: Path) -> None:
    """Numbers that no float can hold."""
    file.write_text(file.read_text().replace('"eps_target": 2.0', f'"eps_target": 1{"0" * 400}'))


@pytest.mark.parametrize("damage", [binary, pipe, deep])
@pytest.mark.parametrize(
    "name", ["result.json", "status.json", ".hydra/overrides.yaml", ".hydra/config.yaml"]
)
def test_a_damaged_file(name: str, damage: Callable[[Path], None], one_run: Path) -> None:
    damage(one_run / name)
    for verb in ("status", "collect"):
        with limited(60):
            said = call(verb, "outputs")
        assert said.code in (0, 1, 2), said
        assert "Traceback" not in said.err


def test_absurd_numbers(one_run: Path) -> None:
    huge(one_run / "result.json")
    for verb in ("status", "collect"):
        assert call(verb, "outputs").code in (0, 1, 2)


@pytest.fixture
def one_run() -> Path:
    return call("run", *QUICK, "total_steps=2", "local_steps=1").folder


@pytest.mark.parametrize("damage", [binary, pipe, deep])
def test_a_damaged_sweep(damage: Callable[[Path], None]) -> None:
    assert call("run", "-m", *QUICK, "total_steps=2", "local_steps=1").code == 0
    (file,) = Path("outputs/sweeps").glob("*/sweep.json")
    damage(file)
    for verb in ("status", "collect"):
        with limited(60):
            assert call(verb, "outputs").code in (0, 1, 2)
    assert "1 folders with a sweep.json that cannot be read" in call("collect", "outputs").out


def test_a_refused_data_show_leaves_nothing() -> None:
    said = call("data", "show", "dataset.shape=[7]")
    assert said.code == 2
    assert not Path("outputs").exists()
    assert call("data", "show").code == 0
