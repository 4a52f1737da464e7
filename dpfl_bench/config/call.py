"""Calls what a group's file names with the keys that it has parameters for. Without torch, so that
a loader can be asked without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from dpfl_bench.checks import signatures
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.checks.ranges import check
from dpfl_bench.config.targets import check_call, target
from dpfl_bench.config.typed import checked


def call(node: Mapping[str, Any], group: str, **given: Any) -> Any:
    """Call what `_target_` names with those of the node's keys (and of `given`) that it has
    parameters for.
    """
    check_call(node, group)
    function = target(node)
    wanted = inspect.signature(function).parameters
    offered = {**{k: v for k, v in node.items() if k in wanted}, **given}
    missing = [n for n, p in wanted.items() if n not in offered and p.default is inspect.Parameter.empty]
    if missing:
        raise ConfigError(
            f"{group}.{missing[0]}: expected a value, for {node['_target_']} needs it; add it to the YAML"
            " file"
        )
    hints = signatures.types(function)
    typed = {
        k: checked(f"{group}.{k}", v, hints[k]) if k in node and k in hints else v for k, v in offered.items()
    }
    for name, allowed in signatures.ranges(function).items():
        if name in node:
            check(f"{group}.{name}", typed[name], allowed)
    return function(**{k: v for k, v in typed.items() if k in wanted})
