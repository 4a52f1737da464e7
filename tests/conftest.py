"""Fixtures, and which tests are slow. What is no fixture lies in helpers/."""

from __future__ import annotations

import gc
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from helpers.algorithms import ALGORITHMS, Algo
from helpers.forks import Forks, forks

from dpfl_bench.machine import device
from dpfl_bench.results.collect import pictures
from dpfl_bench.results.figures.files import FORMATS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

torch.set_num_threads(1)  # the tests' tensors are too small to share out


@pytest.fixture(params=ALGORITHMS, ids=lambda algo: algo.id)
def algo(request: pytest.FixtureRequest) -> Algo:
    """Every algorithm, one after the other."""
    algorithm: Algo = request.param
    return algorithm


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


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The session's folder, of all workers of pytest-xdist."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def calibrations(shared: Path) -> Path:
    """One cache for the whole session: what one worker of pytest-xdist calibrates, the others
    read.
    """
    folder = shared / "calibrations"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _quick_rdp() -> None:
    """Epsilons of lots without replacement, to the same bits. A process that only hands tests out
    needs none.
    """
    from helpers import differences

    differences.take_once()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, calibrations: Path, shared: Path) -> Iterator[Forks]:
    """A process to fork commands from."""
    with forks(tmp_path_factory.mktemp("server"), calibrations, shared) as running:
        yield running


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pytest's own, without its link to the newest folder of a name: 10,000 tests ask for one."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=tmp_path_factory.getbasetemp()))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, calibrations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and calibrations of the tests stay out of the repository and of the user's cache."""
    monkeypatch.setenv("DPFL_CACHE_DIR", str(calibrations))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def hollow_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """`collect` lays out its pictures and leaves empty files. Rendering takes most of its time, and
    is checked where the tests are about pictures.
    """

    def save(_: Figure, stem: Path) -> None:
        for ending in FORMATS:
            stem.with_name(f"{stem.name}.{ending}").touch()

    monkeypatch.setattr(pictures, "save", save)


# They take longest, and come first: at the end the workers share out what takes a moment. Those
# that wait for other processes stand between those that compute.
FIRST = (
    "sweep/test_slurm_real",
    "sweep/test_joblib",
    "sweep/test_compose",
    "federation/test_rounds",
    "experiment/test_resume",
    "test_same_numbers",
    "federation/test_crew_signals",
    "privacy/test_brackets",
    "federation/test_crew_deaths",
    "privacy/test_attacks",
    "federation/test_crew",
    "docs/test_commands",
    "test_wheel",
    "privacy/test_calibration",
    "results/test_origin",
    "results/collect/test_escape",
    "federation/test_adversarial",
    "budget/test_epsilons",
    "commands/test_reproduce",
    "papers/test_scales",
    "algorithms/test_toy",
)
TESTS = Path(__file__).parent


def _place(item: pytest.Item) -> int:
    name = str(item.path).removeprefix(f"{TESTS}/").removesuffix(".py")
    return FIRST.index(name) if name in FIRST else len(FIRST)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Python looks for garbage among 10,000 cases again and again, and they all stay: that took
    two fifths of collecting. Then it looks less often than it would: that took a part in 25.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first. Under `one_in(n)`, each n-th case of a test belongs to the fast part
    and the others are slow.
    """
    items.sort(key=_place)
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("one_in")
        if mark is not None:
            name = item.nodeid.partition("[")[0]
            if seen[name] % mark.args[0]:
                item.add_marker("slow")
            seen[name] += 1
