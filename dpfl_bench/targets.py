"""What the `_target_` of a group's file names, and what the classes there say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dpfl_bench.algorithms.scaffold import default_warm_rounds
from dpfl_bench.settings import ConfigError, Settings


def remembers(algo: Mapping[str, Any]) -> bool:
    """Whether clients keep something between rounds; a step rule (FedEXP) has the memory of the work it is put over."""
    return remembers(algo["work"]) if "work" in algo else bool(target(algo).remembers)


def uses_norms(algo: Mapping[str, Any]) -> bool:
    """Whether the server's step looks at the updates' norms."""
    return bool(getattr(target(algo), "uses_norms", False))


def naive(algo: Mapping[str, Any]) -> bool:
    """Whether that step takes the messages' norms as they are, noise and all."""
    return bool(algo.get("naive", False))


def warm_rounds(settings: Settings) -> int:
    """Rounds at the beginning in which the model stands still (SCAFFOLD's warm start)."""
    node = settings.algo.get("work", settings.algo)
    given = node.get("warm_rounds", 0)
    return default_warm_rounds(settings.sampled_clients / settings.clients) if given is None else int(given)


def target(node: Mapping[str, Any]) -> Any:
    """What `_target_` of a group's file names."""
    path = str(node["_target_"])
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"_target_={path}: expected an importable package.module.Name ({error})") from None
