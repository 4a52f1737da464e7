"""env.json: what a number was made with. diff.patch, beside it: what a commit alone does not
say.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import dpfl_bench
from dpfl_bench.machine import imports
from dpfl_bench.machine.device import numpy_multiplies
from dpfl_bench.machine.ranks import group
from dpfl_bench.results.code_hashes import PACKAGE, is_installed
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.origin import Origin

PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "hydra-core",
    "omegaconf",
    "dp-accounting",
    "scikit-learn",
    "pandas",
)
PATCH = "diff.patch"
MOST = 1_000_000  # characters of a patch
COUNTED = ("*.py", "*.yaml", "*.yml")  # untracked files of these kinds are code and settings too
DIFF = (
    "diff",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)  # whatever the user has set
NOT_COUNTED = "/.hydra/"  # runs write theirs


def write_environment(folder: RunFolder, device: str, origin: Origin) -> None:
    """env.json, and the patch where the code is not that of the commit."""
    description, patch = environment(device), _code()[1]
    own = [tree for tree in _own_trees(origin) if tree != _top(PACKAGE)]
    folder.write(
        "env.json", {**description, "targets": [{"folder": str(tree), **_checkout(tree)} for tree in own]}
    )
    if patch:
        folder.write(PATCH, patch)
    else:
        (folder.path / PATCH).unlink(missing_ok=True)


def environment(device: str) -> dict[str, Any]:
    """Commit and dirty flag (of the checkout, or of what the wheel was built from), versions,
    machine, device and command.
    """
    import torch

    return {
        **_code()[0],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": _cpuinfo("model name") or platform.processor() or None,
        "family": " ".join(filter(None, map(_cpuinfo, ("vendor_id", "cpu family", "model")))) or None,
        "simd": torch.backends.cpu.get_cpu_capability(),
        "device": device,
        "threads": torch.get_num_threads(),
        "ranks": group().size,
        "products": "numpy" if device.startswith("cpu") and numpy_multiplies() else "torch",
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "slurm": slurm_job(os.environ),
        "command": shlex.join(sys.argv),
        "cwd": str(Path.cwd()),
        "own_code": [*imports.OWN],
    }


def slurm_job(variables: Mapping[str, str]) -> dict[str, Any] | None:
    """The job of Slurm's that this process is in, as squeue and sacct call it; None outside of one.
    began: as Slurm tells it, else when this process began.
    """
    if not variables.get("SLURM_JOB_ID"):
        return None
    array, task = variables.get("SLURM_ARRAY_JOB_ID"), variables.get("SLURM_ARRAY_TASK_ID")
    start = variables.get("SLURM_JOB_START_TIME", "")
    began = float(start) if start.isdigit() else _process_began()
    return {
        "job": f"{array}_{task}" if array and task else variables["SLURM_JOB_ID"],
        "node": variables.get("SLURMD_NODENAME"),
        "cpus": variables.get("SLURM_CPUS_PER_TASK"),
        "restarts": variables.get("SLURM_RESTART_COUNT", "0"),
        "began": began and datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
    }


def _process_began() -> float | None:
    """Of this process, where Linux tells."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - (up - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, AttributeError):
        return None


@cache
def _code() -> tuple[dict[str, Any], str]:
    """Asked once a process, which goes on with the code that it has loaded, whatever becomes of the
    files. Second: the patch.
    """
    checkout = _checkout(PACKAGE) if _git(PACKAGE, "ls-files", "--error-unmatch", "__init__.py") else _built()
    patch = _patch(_top(PACKAGE)) if checkout["dirty"] and _top(PACKAGE) else ""
    description = {
        "dpfl_bench": dpfl_bench.__version__,
        "results_version": dpfl_bench.RESULTS_VERSION,
        **checkout,
        "diff": PATCH if patch else None,
        "versions": {name: _version(name) for name in PACKAGES},
    }
    return description, patch


def _checkout(folder: Path) -> dict[str, Any]:
    """Untracked code and settings count: an algorithm that was never committed is not in the
    commit.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    top = _top(folder)
    if commit is None or top is None:
        return {"commit": None, "dirty": None}
    return {
        "commit": commit,
        "dirty": bool(_git(top, "status", "--porcelain", "--untracked-files=no") or _untracked(top)),
    }


def _built() -> dict[str, Any]:
    """What an installed wheel knows of the checkout that it was built from."""
    try:
        built = import_module("dpfl_bench._build")
    except ImportError:
        return {"commit": None, "dirty": None}
    return {"commit": built.COMMIT, "dirty": built.DIRTY}


def _untracked(top: Path) -> list[str]:
    listing = _git(top, "ls-files", "--others", "--exclude-standard", "-z", "--", *COUNTED) or ""
    return [name for name in listing.split("\0") if name and NOT_COUNTED not in f"/{name}"]


def _patch(top: Path | None) -> str:
    """What was changed, and the untracked files, as `git apply` takes it; cut where it is long."""
    if top is None:
        return ""
    parts = [_git(top, *DIFF, "HEAD", strip=False) or "", *(_added(top, name) for name in _untracked(top))]
    patch = "".join(parts)
    return (
        patch
        if len(patch) <= MOST
        else f"{patch[:MOST]}\n[cut: {len(patch) - MOST} of {len(patch)} characters are left out]\n"
    )


def _added(top: Path, name: str) -> str:
    """git says with exit code 1 that the two differ."""
    return _git(top, *DIFF, "--no-index", "--", "/dev/null", name, strip=False, codes=(0, 1)) or ""


@cache
def _top(folder: Path) -> Path | None:
    folder_name = _git(folder, "rev-parse", "--show-toplevel")
    return Path(folder_name) if folder_name else None


def _own_trees(origin: Origin) -> list[Path]:
    """The checkouts in which the user's own code lies."""
    folders = {Path(file).parent for _, file in origin.code.values() if not is_installed(Path(file))}
    return sorted({top for folder in folders if (top := _top(folder))})


@cache
def _cpuinfo(key: str) -> str | None:
    """The processor's, where Linux tells."""
    try:
        lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
        return next(value.strip() for name, _, value in lines if name.strip() == key)
    except (OSError, StopIteration):
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str, strip: bool = True, codes: tuple[int, ...] = (0,)) -> str | None:
    """None where there is no git, no checkout, or git refuses."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stdout.decode(errors="replace")
    return None if done.returncode not in codes else said.strip() if strip else said
