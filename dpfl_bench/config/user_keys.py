"""The keys that a user's YAML file of a data set may leave out, with what they then are. Their home
is `conf/dataset/_base.yaml`.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any


def complete(config: Any, file: Path) -> None:
    """Add to a data set's config, as Hydra read it, what the file leaves out. One that builds on
    another data set's file (`defaults`) has that one's keys.
    """
    from omegaconf import DictConfig, OmegaConf, open_dict

    if not isinstance(config, DictConfig) or "_target_" not in config or _builds_on_another(config):
        return
    base = OmegaConf.load(Path(str(files("dpfl_bench.conf"))) / "dataset" / "_base.yaml")
    with open_dict(config):
        for key, value in {"name": file.stem, **base}.items():
            if key not in config:
                config[key] = value


def _builds_on_another(config: Any) -> bool:
    """Whether its defaults list names more than other groups to override."""
    defaults = config.get("defaults") or []
    return any(
        not str(next(iter(each), "") if hasattr(each, "keys") else each).startswith("override ")
        and each != "_self_"
        for each in defaults
    )
