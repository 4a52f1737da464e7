"""What the tests of the engine share: composed settings, the player that `run` would build of them,
and every algorithm there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from helpers.algorithms import ALGORITHMS, Algo
from helpers.forks import Forks, forks

from dpfl_bench.machine import device

torch.set_num_threads(1)  # the tests' tensors are too small to share out


@pytest.fixture(params=ALGORITHMS, ids=lambda algo: algo.id)
def algo(request: pytest.FixtureRequest) -> Algo:
    """Every algorithm, one after the other."""
    found: Algo = request.param
    return found


@pytest.fixture
def private_algo(algo: Algo) -> Algo:
    if not algo.settings().private:
        pytest.skip("an algorithm without privacy")
    return algo


@pytest.fixture(params=["torch", "numpy"])
def multiplies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whose products of small matrices are taken, whatever this machine's processor."""
    name: str = request.param
    monkeypatch.setattr(device, "numpy_multiplies", lambda: name == "numpy")
    return name


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A process to fork commands from."""
    with forks(tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("calibrations")) as running:
        yield running


@pytest.fixture(scope="session")
def calibrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, calibrations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and calibrations of the tests stay out of the repository and of the user's cache."""
    monkeypatch.setenv("DPFL_CACHE_DIR", str(calibrations))
    monkeypatch.chdir(tmp_path)
