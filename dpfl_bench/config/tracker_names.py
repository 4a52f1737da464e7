"""The trackers that a run may be asked to write for."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from dpfl_bench.checks.errors import ConfigError

TRACKERS = ("tensorboard", "wandb")  # results/trackers.py has a writer for each


def check(names: Any) -> None:
    """Refuse unknown trackers and those whose package is missing, without importing any."""
    known = ", ".join(TRACKERS)
    if not isinstance(names, list):
        raise ConfigError(f"trackers={names}: expected a list of {known}, like [tensorboard]")
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"trackers={names}: expected a list of {known}, found {name}")
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # a folder of that name is not the package
            raise ConfigError(
                f"trackers={names}: expected the package {name}, there is none; pip install"
                f" 'dpfl-bench[{name}]'"
            )
