"""env.json: what a number was made with."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import dpfl_bench
from dpfl_bench.device import numpy_multiplies

PACKAGES = ("torch", "torchvision", "numpy", "scipy", "hydra-core", "omegaconf", "dp-accounting", "scikit-learn", "pandas")


def environment(device: str) -> dict[str, Any]:
    """Commit and dirty flag (null outside a git checkout), versions, host, device and command."""
    import torch

    return {
        **_code(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "device": device,
        "threads": torch.get_num_threads(),
        "products": "numpy" if device.startswith("cpu") and numpy_multiplies() else "torch",
        "command": shlex.join(sys.argv),
    }


@cache
def _code() -> dict[str, Any]:
    """Asked once a process, which goes on with the code that it has loaded, whatever becomes of the files."""
    source = Path(dpfl_bench.__file__).parent
    commit = _git(source, "rev-parse", "HEAD")
    return {
        "dpfl_bench": dpfl_bench.__version__,
        "results_version": dpfl_bench.RESULTS_VERSION,
        "commit": commit,
        "dirty": None if commit is None else bool(_git(source, "status", "--porcelain", "--untracked-files=no")),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    """None where there is no git, no checkout, or the checkout is not this project's (an installed wheel)."""
    try:
        tracked = subprocess.run(["git", "ls-files", "--error-unmatch", "__init__.py"], cwd=folder, capture_output=True, timeout=10)
        if tracked.returncode:
            return None
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
