"""How the points of a sweep are run: here (basic), on this machine's cores (cores), on a cluster
(slurm), or by a launcher of the user's own.

`hydra/launcher=NAME` names a YAML file, whose `_target_` is the class. There is no other list.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import catalogue
from dpfl_bench.config.targets import target
from dpfl_bench.sweep.launchers.base import Launcher

# what `hydra/launcher=basic` names: it is Hydra's own YAML
HYDRAS_BASIC = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
BASIC = f"{__name__}.basic.Basic"
HYDRAS = ("hydra.", "hydra_plugins.")  # launchers of Hydra take other calls
OWES = ("launch", "at_once", "waits_for_others")  # the attributes of `base.Launcher`


def chosen(node: Mapping[str, Any]) -> Launcher:
    """The launcher of `hydra/launcher=...`, constructed with the node's other keys.

    A user's own class is imported and called here, so a dry run asks `is_shipped` first.
    ConfigError for a class that is no launcher, and for a key that it does not take.
    """
    path = BASIC if node["_target_"] == HYDRAS_BASIC else str(node["_target_"])
    if path.startswith(HYDRAS):
        raise _refusal(path)
    options = {key: value for key, value in node.items() if key != "_target_"}
    try:
        launcher: Launcher = target({"_target_": path})(**options)
    except TypeError as error:
        raise ConfigError(f"hydra/launcher: {path} does not take these keys: {error}") from None
    if not all(hasattr(launcher, name) for name in OWES):
        raise _refusal(path)
    return launcher


def is_shipped(node: Mapping[str, Any]) -> bool:
    """Whether a YAML file of this package names the class, or Hydra's for `basic`."""
    return node["_target_"] == HYDRAS_BASIC or node["_target_"] in _shipped()


def with_answer(node: Mapping[str, Any], on_interrupt: str | None) -> Mapping[str, Any]:
    """The node with what becomes of the jobs after Ctrl-C, where the command line says it."""
    if on_interrupt is None:
        return node
    if "on_interrupt" not in node:
        raise ConfigError(
            f"--{on_interrupt}: expected hydra/launcher=slurm; the jobs of the other launchers end with them"
        )
    return {**node, "on_interrupt": on_interrupt}


def _refusal(path: str) -> ConfigError:
    return ConfigError(
        f"hydra/launcher: expected basic, {', '.join(catalogue.launchers())} or a class of your own with"
        f" {', '.join(OWES)}, got the class {path}"
    )


@cache
def _shipped() -> frozenset[str]:
    return frozenset(path for path in catalogue.launchers().values() if path)
