"""Every decision about devices and number formats."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.machine.place import place
from dpfl_bench.machine.ranks import group

if TYPE_CHECKING:
    import numpy as np
    import torch
    from threadpoolctl import ThreadpoolController

# torch's own names; which of these are in this machine is asked when a run starts, maybe on another
# one
TYPES = (
    *(
        "cpu",
        "cuda",
        "ipu",
        "xpu",
        "mkldnn",
        "opengl",
        "opencl",
        "ideep",
        "hip",
        "ve",
        "fpga",
        "maia",
        "xla",
        "lazy",
        "vulkan",
        "mps",
    ),
    *("meta", "hpu", "mtia", "privateuseone"),
)
# whose copies from the CPU can be queued: what is sent is kept aside, and the program goes on
QUEUED = {"cuda"}
CACHED = 2**20  # bytes
CPUINFO = Path("/proc/cpuinfo")
AVX512 = {"SkylakeX", "Cooperlake", "SapphireRapids"}  # OpenBLAS' names of kernels
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES, _SMALL_BYTES = 2**30, 2**25  # 32 MB is the most that older versions take


def is_name(name: str) -> bool:
    """`auto`, or what torch takes for a device's name: a type, or a type and a number. `meta` holds
    no numbers.
    """
    return name == "auto" or re.fullmatch(rf"(?!meta)({'|'.join(TYPES)})(:(0|[1-9]\d*))?", name) is not None


def choose(name: str) -> torch.device:
    """`auto` is the GPU where there is one (CUDA, then Apple's), else the CPU; any torch device
    name is taken as it is.
    """
    import torch

    if name in ("auto", "cuda") and torch.cuda.is_available():
        return _own_gpu()
    if name == "auto":
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"device={name}: expected a device that torch can use here, e.g. auto or cpu ({reason})"
        ) from None
    return device


def _own_gpu() -> torch.device:
    """The only one that this process uses: of several ranks on a machine, each has its own."""
    import torch

    here, count = place(), torch.cuda.device_count()
    if here.ranks == 1:
        return torch.device("cuda")
    if 1 < count <= here.local:
        raise ConfigError(f"device=cuda: expected a GPU for each rank, got {count} GPUs; start fewer ranks")
    torch.cuda.set_device(here.local % count)  # Slurm may show a single one to each rank
    return torch.device("cuda", here.local % count)


def check_ranks(name: str, device: torch.device) -> None:
    """Refuse a device on which several ranks cannot work."""
    if device.type not in ("cpu", "cuda") or re.search(r":\d", name):
        raise ConfigError(
            f"device={name}: expected cpu, cuda or auto where several ranks work (each rank takes a GPU of"
            " its own)"
        )


def cores() -> int:
    """How many a sweep may use: Slurm's word, else what the system allows."""
    return _number("SLURM_CPUS_PER_TASK") or _allowed()


def cores_of_a_run() -> int:
    """How many one run may use, or one of its ranks: where Slurm says nothing, OMP_NUM_THREADS
    speaks of a single process.
    """
    fair = max(1, _allowed() // group().here)
    return _number("SLURM_CPUS_PER_TASK") or _number("OMP_NUM_THREADS") or fair


def _number(name: str) -> int:
    word = os.environ.get(name, "")
    return int(word) if word.isdigit() else 0


def _allowed() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def forks(device: torch.device) -> bool:
    """Whether worker processes can share what is on this device: a CPU's memory, where forking is
    safe.
    """
    return device.type == "cpu" and sys.platform == "linux"


def for_small_tensors(device: torch.device) -> None:
    """How this process computes from now on, on a CPU.

    With one thread: cores are used by worker processes. Threads that wait for each other over
    matrices of a cache's size cost more than they give, and their number would move the last bits.
    And what is freed is kept: pages that go back to the system between two steps, and come again,
    can cost more than the arithmetic on them.
    """
    import torch

    if device.type == "cpu":
        torch.set_num_threads(1)
        _openblas().limit(limits=1)
        with suppress(AttributeError, OSError, TypeError):  # another C library than glibc
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
            mallopt(_MMAP_THRESHOLD, _SMALL_BYTES)


@cache
def numpy_multiplies() -> bool:
    """Whether numpy's products of small matrices are the faster ones here.

    torch's are MKL's in most builds, which keeps to AVX2 on AMD's processors. OpenBLAS, in numpy,
    does not: it is 2 to 4 times faster.
    """
    import torch

    kernels = {
        library["architecture"]
        for library in _openblas().info()
        if Path(library["filepath"]).parent.name == "numpy.libs"
    }
    mkl = bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]
    return set() < kernels <= AVX512 and _vendor() == "AuthenticAMD" and mkl


@cache
def _openblas() -> ThreadpoolController:
    """Those that are loaded: numpy's, where it came with one, and maybe scipy's."""
    import numpy  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(internal_api="openblas")


def _vendor() -> str | None:
    """The processor's, where Linux tells."""
    with suppress(OSError), CPUINFO.open() as file:
        for line in file:
            if line.startswith("vendor_id"):
                return line.split(":")[1].strip()
    return None


def apart(tensor: torch.Tensor) -> bool:
    """Whether the program would wait for a number of this tensor: on a GPU. Code that asks for a
    number to leave work out does not ask there. It does the work, and gets the same numbers.
    """
    return not tensor.is_cpu


def in_cache(rows: torch.Tensor) -> Iterator[torch.Tensor]:
    """Some rows after the other, so few that what is made of them stays in a processor's cache; a
    GPU gets all at once. rows: (c, ...).
    """
    one = rows[:1].numel() * rows.element_size()
    count = max(1, CACHED // max(1, one)) if rows.is_cpu else max(1, len(rows))
    for start in range(0, len(rows), count):
        yield rows[start : start + count]


def numbers(where: torch.device, *values: torch.Tensor | float) -> list[float]:
    """The values of tensors without axes, and plain numbers, in one transfer from their device."""
    import torch

    if where.type == "cpu":
        return list(map(float, values))
    like = torch.empty(0, dtype=wide(where), device=where)
    column = [v.to(like) if isinstance(v, torch.Tensor) else like.new_full((), v) for v in values]
    found: list[float] = torch.stack(column).tolist()
    return found


def placed(
    numbers: np.ndarray | torch.Tensor, like: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The CPU's numbers on the device of `like`, in one piece. dtype: their format there; None:
    their own.
    """
    import torch

    here = numbers if isinstance(numbers, torch.Tensor) else torch.from_numpy(numbers)
    if dtype is not None:
        here = here.to(dtype)
    if like.is_cpu:
        return here
    return here.to(like.device, non_blocking=like.device.type in QUEUED)


def free_memory(where: torch.device | None = None) -> int | None:
    """Bytes that can be had without swapping, or that nobody uses of a GPU; None where the system
    does not tell.
    """
    if where is not None and where.type == "cuda":
        import torch

        free: int = torch.cuda.mem_get_info(where)[0]
        return free
    try:
        lines = dict(line.split(":", 1) for line in open("/proc/meminfo"))  # noqa: SIM115
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def dtype(name: str) -> torch.dtype:
    import torch

    return {"float32": torch.float32, "float64": torch.float64}[name]


@cache
def wide(device: torch.device) -> torch.dtype:
    """The widest format of the device, for sums over many records (Apple's GPUs have no
    float64).
    """
    import torch

    return torch.float32 if device.type == "mps" else torch.float64
