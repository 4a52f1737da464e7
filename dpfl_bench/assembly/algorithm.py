"""The algorithm that a run's YAML names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from dpfl_bench.algorithms.base import Algorithm
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.call import call as call
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import target

DESCRIBING = {
    "_target_",
    "name",
    "private",
    "coins",
    "needs",
    "deals",
}  # keys that describe a choice and are no parameters of it


def build_algorithm(settings: Settings) -> Algorithm:
    return _algorithm(settings.algo, "algo")


def _algorithm(node: Mapping[str, Any], path: str) -> Algorithm:
    """With the algorithm that it is put over (`work`), if there is one."""
    unknown = set(node) - set(inspect.signature(target(node)).parameters) - DESCRIBING
    if unknown:
        raise ConfigError(
            f"{path}.{unknown.pop()}: {node['_target_']} has no such parameter; remove it from the YAML file"
        )
    work = {"work": _algorithm(node["work"], f"{path}.work")} if "work" in node else {}
    return cast(Algorithm, call({k: v for k, v in node.items() if k != "work"}, path, **work))
