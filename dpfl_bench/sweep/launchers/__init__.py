"""How the points of a sweep are run: here (basic), on this machine's cores (joblib), on a cluster
(slurm).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.targets import target
from dpfl_bench.sweep.launchers.base import Launcher

OURS = {
    f"{__name__}.{path}" for path in ("basic.Basic", "cores.Joblib", "slurm.launcher.Slurm")
}  # a dry run calls them: nothing else
HYDRAS_BASIC = (
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher"  # what `hydra/launcher=basic` names
)


def chosen(node: Mapping[str, Any]) -> Launcher:
    """The launcher of `hydra/launcher=...`, made of its options; they are checked here."""
    if node["_target_"] == HYDRAS_BASIC:
        node = {"_target_": f"{__name__}.basic.Basic"}
    if node["_target_"] not in OURS:
        raise ConfigError(
            f"hydra/launcher: expected basic, joblib or slurm, got the class {node['_target_']}"
        )
    made: Launcher = target(node)(**{key: value for key, value in node.items() if key != "_target_"})
    return made
