"""What the `_target_` of a group's file names, and what the classes there say of themselves.

A `_target_` in a file of one's own is code: `run` calls it. What only looks (`plan`, `data show`)
calls none but those of our files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any

from dpfl_bench.algorithms.scaffold import default_warm_rounds
from dpfl_bench.checks.errors import ConfigError, NotForeseeable
from dpfl_bench.config import catalogue
from dpfl_bench.config.settings import Settings

_REFUSAL: ContextVar[str | None] = ContextVar(
    "refusal", default=None
)  # why nobody's own code is called at the moment


@contextmanager
def only_ours(refusal: str) -> Iterator[None]:
    """Inside, a `_target_` that none of our files names is not called: a ConfigError says so, with
    this reason and remedy.
    """
    before = _REFUSAL.set(refusal)
    try:
        yield
    finally:
        _REFUSAL.reset(before)


def check_call(node: Mapping[str, Any], group: str) -> None:
    """Raise ConfigError where this target must not be called now."""
    refusal = _REFUSAL.get()
    if refusal is not None and node["_target_"] not in _shipped():
        raise NotForeseeable(f"{group}._target_={node['_target_']}: {refusal}")


@cache
def _shipped() -> frozenset[str | None]:
    return frozenset(entry["module"] for entry in catalogue.entries())


def remembers(algo: Mapping[str, Any]) -> bool:
    """Whether clients keep something between rounds; a step rule (FedEXP) has the memory of the
    work it is put over.
    """
    if "work" in algo:
        return remembers(algo["work"])
    kind = target(algo)
    if not hasattr(kind, "remembers"):
        raise ConfigError(
            f"_target_={algo['_target_']}: expected an algorithm's class, which says whether its clients"
            " remember"
        )
    return bool(kind.remembers)


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


def ours(node: Mapping[str, Any]) -> bool:
    """Whether `_target_` names a function or class of this package, which may be imported to look
    at. Those that conf/ names import no torch.
    """
    return str(node["_target_"]).startswith("dpfl_bench.")


def target(node: Mapping[str, Any]) -> Any:
    """What `_target_` of a group's file names. Its module is imported; nothing is called."""
    path = str(node["_target_"])
    module, _, name = path.rpartition(".")
    if module.partition(".")[0] in sys.stdlib_module_names:  # os.system and its like
        raise ConfigError(
            f"_target_={path}: expected a function or class of dpfl_bench or of your own, not one of Python's"
            " library"
        )
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"_target_={path}: expected an importable package.module.Name ({error})") from None
