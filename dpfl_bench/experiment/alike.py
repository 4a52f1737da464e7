"""What the ranks of a run must have in common: settings, code and the kind of machine, looked at
before data load; then the data. Products differ in their last bits from one kind of processor to
another, and every rank takes the server's step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.machine import device, ranks
from dpfl_bench.results import code_hashes, made
from dpfl_bench.results.environment import environment
from dpfl_bench.results.origin import Origin


def check_ranks(settings: Settings) -> None:
    """Refuse ranks that would compute other bits. To be called by all of them."""
    if ranks.group().size == 1:
        return
    where = device.choose(settings.device)
    device.check_ranks(settings.device, where)
    # rounds are played with one thread (`device.for_small_tensors`), whatever there are now
    kind = made.of_environment({**environment(where.type), "threads": None})
    gpu = torch.cuda.get_device_name(where) if where.type == "cuda" else None
    own = {"kind": kind, "gpu": gpu, "run": settings.run_id, "code": code_hashes.package()}
    _compare(own, _kinds, "choose nodes of one kind, with one installation")


def check_data(origin: Origin, digest: str) -> None:
    """Refuse ranks that have loaded other records, or other code of the user's own."""
    own = {"data": [digest, origin.hashes]}
    _compare(own, lambda one, other: ["data or code"] if one != other else [], "the same files for all")


def _kinds(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    names = {"run": "settings", "code": "code of dpfl-bench", "gpu": "GPU"}
    return [
        *made.differing([one["kind"]], [other["kind"]]),
        *(name for key, name in names.items() if one[key] != other[key]),
    ]


def _compare(own: dict[str, Any], differing: Callable[[Any, Any], list[str]], remedy: str) -> None:
    group = ranks.group()
    first, *others = map(json.loads, group.gathered(json.dumps(own).encode()))
    for rank, other in enumerate(others, start=1):
        if lines := differing(first, other):
            raise ConfigError(
                f"rank {rank} on {group.hosts[rank]} is unlike rank 0 on {group.hosts[0]}"
                f" ({'; '.join(lines)}): expected ranks that compute the same bits; {remedy}"
            )
