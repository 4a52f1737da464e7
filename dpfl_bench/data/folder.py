"""Where data sets live on this machine."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def data_root(root: str | None) -> Path:
    """The explicit `root`, else the environment's DPFL_DATA_DIR, else the user's cache folder."""
    chosen = root or os.environ.get("DPFL_DATA_DIR")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("dpfl-bench")) / "data"


def fetch_command(name: str, root: Path) -> str:
    """What a user types to download a data set to `root`."""
    return shlex.join(["dpfl-bench", "data", "fetch", name, f"dataset.root={root}"])
