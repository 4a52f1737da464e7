"""Where this process stands among those that torchrun or srun has started, by the environment
alone.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass

PORTS = range(20000, 40000)  # of which a job of Slurm takes one


@dataclass(frozen=True)
class Place:
    """Where a process stands among those that torchrun or srun has started."""

    rank: int = 0
    ranks: int = 1
    local: int = 0  # among those of its machine
    starter: str = ""


def place() -> Place:
    """As the environment says. A shell that srun started, and a batch script, have one process."""
    names = {
        "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    }
    for starter, (rank, ranks, local) in names.items():
        numbers = [os.environ.get(name, "") for name in (rank, ranks, local)]
        if all(number.isdigit() for number in numbers[:2]) and int(numbers[1]) > 1:
            return Place(int(numbers[0]), int(numbers[1]), int(numbers[2] or 0), starter)
    return Place()


def hush() -> None:
    """Before torch is imported: its warnings about a rank that is gone say nothing more."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def name_rank_0(here: Place) -> None:
    """Where the others meet rank 0, if srun has started them; torchrun says it itself."""
    if here.starter == "srun":
        listed = os.environ.get("SLURM_STEP_NODELIST", "")
        os.environ.setdefault("MASTER_ADDR", _known(_first_name(listed)))
        job, step = (int(os.environ.get(name, "0")) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        os.environ.setdefault("MASTER_PORT", str(PORTS.start + (job * 7 + step) % len(PORTS)))


def _first_name(listed: str) -> str:
    """Of Slurm's list of nodes: n1,n2 or n[01-03,7]."""
    found = re.match(r"([^,\[]*)\[?(\w*)", listed)
    return "".join(found.group(1, 2)).strip() if found else ""


def _known(node: str) -> str:
    """The node, or where srun was called, which is the first node in a batch script."""
    with suppress(OSError):
        socket.getaddrinfo(node, None)
        return node
    return os.environ.get("SLURM_LAUNCH_NODE_IPADDR", node)
