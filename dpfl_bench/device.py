"""Every decision about devices and number formats."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from dpfl_bench.settings import ConfigError

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "float64")


def choose(name: str) -> torch.device:
    """`auto` is the GPU where there is one (CUDA, then Apple's), else the CPU; any torch device name is taken as it is."""
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={name}: expected a device that torch can use here, e.g. auto or cpu ({reason})") from None
    return device


def cores() -> int:
    """How many this process may use: Slurm's or OMP_NUM_THREADS' word, else what the system allows."""
    told = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("OMP_NUM_THREADS") or ""
    if told.isdigit() and int(told) > 0:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def forks(device: torch.device) -> bool:
    """Whether worker processes can share what is on this device: a CPU's memory, where forking is safe."""
    return device.type == "cpu" and sys.platform == "linux"


def one_thread(device: torch.device) -> None:
    """Cores are used by worker processes. Threads that wait for each other over matrices of a cache's size cost more than they give, and
    their number would move the last bits."""
    import torch

    if device.type == "cpu":
        torch.set_num_threads(1)


def free_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not tell."""
    try:
        lines = dict(line.split(":", 1) for line in open("/proc/meminfo"))  # noqa: SIM115
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def dtype(name: str) -> torch.dtype:
    import torch

    return {"float32": torch.float32, "float64": torch.float64}[name]


def wide(device: torch.device) -> torch.dtype:
    """The widest format of the device, for sums over many records (Apple's GPUs have no float64)."""
    import torch

    return torch.float32 if device.type == "mps" else torch.float64
