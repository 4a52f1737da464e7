"""Where data sets live on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def data_root(root: str | None) -> Path:
    """The explicit `root`, else the environment's DPFL_DATA_DIR, else the user's cache folder."""
    chosen = root or os.environ.get("DPFL_DATA_DIR")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("dpfl-bench")) / "data"
