"""How a run uses the machine: which gradient backend, how many clients at a time, how many worker
processes.

Up to rounding no result depends on it, and on the number of workers and ranks not a bit does.
"""

from __future__ import annotations

import math
import multiprocessing
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.federation import lot_size
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.ranks import Ranks
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.federation.workers import Workers
from dpfl_bench.machine import device, mapped, ranks
from dpfl_bench.problems.linear_problem import LinearProblem
from dpfl_bench.problems.problem import Problem

# numbers in a chunk's lots and models with which a linear model's arithmetic outweighs its calls
CACHE_NUMBERS = 2**18
CHUNK_NUMBERS = 2**20  # numbers in a chunk's lots and models that the caches hold
CHUNKS_OF_NETWORKS = 8  # the cohort's chunks at least, if there are so many clients: workers share them
GPU_CLIENTS = 256  # clients of a chunk at most, on a GPU
ACTIVATIONS = 16  # numbers that a network keeps for each number of its features: a guess
VECTORS = 8  # vectors (d,) that local work keeps for each client: model, gradient, noise, ...
SMALL_ROUND = 2**21  # a round that touches fewer numbers takes longer with workers than without


def chunk(settings: Settings, problem: Problem, federation: Federation) -> int:
    """How many clients are computed at once. On a CPU: as many as the caches hold, but few enough
    that several workers get chunks. On a GPU: as many as engine.gpu_memory holds. What is free is
    never asked, for sums over other chunks have other bits.
    """
    if settings.engine.chunk is not None:
        return settings.engine.chunk
    inputs, d = _lot_numbers(settings, federation), problem.dimension
    if federation.features.device.type != "cpu":
        numbers = int(settings.engine.gpu_memory * 1e9) // federation.dtype.itemsize
        noises = settings.local_steps if settings.private and settings.privacy.unit == "record" else 0
        each = (VECTORS + noises) * d + ACTIVATIONS * inputs
        return max(1, min(GPU_CLIENTS, numbers // each))
    fits, m = CHUNK_NUMBERS // (inputs + d), settings.sampled_clients
    if isinstance(problem, LinearProblem):
        return max(1, min(fits, max(math.ceil(m / 2), CACHE_NUMBERS // (inputs + d))))
    return max(1, min(fits, math.ceil(m / CHUNKS_OF_NETWORKS)))


def record(settings: Settings, problem: Problem, federation: Federation) -> dict[str, Any]:
    """result.json's `engine`: what the last bits of a run follow from, beside the processor."""
    backend = getattr(problem, "backend", "closed_form")
    return {"backend": backend, "chunk": chunk(settings, problem, federation)}


def crew(settings: Settings, player: RoundPlayer, state: TrainingState) -> Alone | Workers | Ranks:
    """Who works on one seed's rounds."""
    count, group = workers(settings, player), ranks.group()
    own = Alone(player) if count == 1 else Workers(player, state, count)
    return own if group.size == 1 else Ranks(own, group)


def workers(settings: Settings, player: RoundPlayer) -> int:
    """How many processes work, in each rank: engine.workers, or as many as cores, memory and groups
    allow.
    """
    federation, asked, here = player.federation, settings.engine.workers, ranks.group().here
    if not device.forks(federation.features.device):
        if asked is not None and asked > 1:
            raise ConfigError(
                f"engine.workers={asked}: expected 1 on device={federation.features.device.type} of this"
                " system"
            )
        return 1
    if multiprocessing.current_process().daemon:  # a daemon, as in a pool, may not have children
        return 1
    inputs, d = _lot_numbers(settings, federation), player.problem.dimension
    at_once = min(settings.sampled_clients, player.chunk) * (VECTORS * d + inputs)
    if asked is None:
        small = settings.sampled_clients * settings.local_steps * (inputs + d) < SMALL_ROUND
        asked = (
            1
            if small
            else min(
                device.cores_of_a_run(), max(1, _memory_numbers(settings, federation) // here // at_once)
            )
        )
    return max(1, min(asked, len(player.own_groups(player.groups(np.arange(settings.sampled_clients))))))


@contextmanager
def memories(settings: Settings, player: RoundPlayer, folder: Path) -> Iterator[Tensor | None]:
    """Zeros for the memories of this rank's clients, where engine.memories says, and where workers
    can share them. None where the algorithm remembers nothing or nobody shares them.

    folder: for the file.
    """
    on_disk = settings.engine.memories == "disk"
    if not player.algorithm.remembers or not (on_disk or workers(settings, player) > 1):
        yield None
        return
    shape = player.share.room(player.federation.clients), player.problem.dimension
    with mapped.zeros(shape, player.federation.dtype, folder if on_disk else None) as memory:
        yield memory


def check_place(settings: Settings, where: torch.device) -> None:
    """Refuse memories on disk for clients that work elsewhere than on a CPU, and for ranks, which
    have a part of the memories each.
    """
    if settings.engine.memories == "disk" and ranks.group().size > 1:
        raise ConfigError(
            f"engine.memories=disk: expected one rank, got {ranks.group().size}; use engine.memories=ram"
        )
    if settings.engine.memories == "disk" and where.type != "cpu":
        raise ConfigError(
            f"engine.memories=disk: expected device=cpu, got {where.type}; use engine.memories=ram or"
            " device=cpu"
        )


def check_memories(settings: Settings, problem: Problem, federation: Federation, remembers: bool) -> None:
    """Refuse client memories that do not fit, before they are allocated."""
    needed = federation.clients * problem.dimension * federation.dtype.itemsize if remembers else 0
    on_disk = settings.engine.memories == "disk"
    limit = _free_disk(settings.outputs) if on_disk else _memory(settings, federation)
    remedy = "free some disk" if on_disk else "say engine.memories=disk, raise engine.memory"
    if needed > limit:
        raise ConfigError(
            f"algo={settings.algo['name']} keeps a model-sized vector for each client, {federation.clients} x"
            f" {problem.dimension} numbers: {needed / 1e9:.1f} GB, expected at most {limit / 1e9:.1f};"
            f" {remedy}, lower clients or take a smaller model"
        )


def _free_disk(outputs: str) -> int:
    """Bytes where the run folders are."""
    path = Path(outputs).absolute()
    return shutil.disk_usage(next(p for p in (path, *path.parents) if p.exists())).free


def _lot_numbers(settings: Settings, federation: Federation) -> int:
    """How many numbers the features of one lot have."""
    largest = int(federation.sizes.max())
    lot = math.ceil(lot_size.expected(settings.batch_size, settings.sample_rate, largest))
    return lot * max(1, federation.features[:1].numel())


def _memory_numbers(settings: Settings, federation: Federation) -> int:
    return _memory(settings, federation) // federation.dtype.itemsize


def _memory(settings: Settings, federation: Federation) -> int:
    """Bytes of the working set: engine.memory, or half of what is free."""
    if settings.engine.memory is not None:
        return int(settings.engine.memory * 1e9)
    free = device.free_memory(federation.features.device)
    return (2**32 if free is None else free) // 2
