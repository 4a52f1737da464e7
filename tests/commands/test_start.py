"""What starting up costs: help, list, --cfg job and plan load no torch, and help answers in under
half a second.
"""

from __future__ import annotations

import subprocess
import time

import pytest
from helpers.command import BINARY
from helpers.imported import loaded_by

HEAVY = {
    "torch",
    "torchvision",
    "pandas",
    "matplotlib",
    "sklearn",
    "dp_accounting",
    "scipy",
    "hydra",
    "omegaconf",
    "numpy",
}
# what each may load; dp_accounting brings scipy
MAY = {
    "--help": set(),
    "version": set(),
    "run --help": set(),
    "plan --help": set(),
    "replay --help": set(),
    "status --help": set(),
    "collect --help": set(),
    "data show --help": set(),
    "version --verbose": set(),
    "completion --help": set(),
    "completion bash": set(),
    "audit --help": set(),
    "reproduce --help": set(),
    "data --help": set(),
    "list --help": set(),
    "list": set(),
    "list --json": set(),
    "run -m --dry-run eps=1,2 hydra/launcher=joblib": {"hydra", "omegaconf", "numpy"},
    "run --cfg job algo=dp_fedavg eps=3": {"hydra", "omegaconf"},
    "plan eps=1": {"hydra", "omegaconf", "numpy", "dp_accounting", "scipy"},
    "plan --json algo=dp_fedavg privacy=central sampled_clients=9": {
        "hydra",
        "omegaconf",
        "numpy",
        "dp_accounting",
        "scipy",
    },
}


@pytest.mark.parametrize("arguments", MAY)
def test_nothing_heavy_is_loaded(arguments: str) -> None:
    loaded = loaded_by(f"from dpfl_bench.cli import main; main({arguments.split()!r})")
    assert loaded & HEAVY <= MAY[arguments]
    assert "dpfl_bench" in loaded


@pytest.mark.slow
def test_the_check_sees_torch() -> None:
    assert "torch" in loaded_by("import dpfl_bench.experiment.run")


def test_help_takes_less_than_half_a_second() -> None:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run([BINARY, "--help"], check=True, capture_output=True)
        return time.perf_counter() - start

    assert min(once() for _ in range(3)) < 0.5
