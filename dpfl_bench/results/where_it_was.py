"""Where a run was computed: its settings' relative paths are from there, and its own code lies
there.
"""

from __future__ import annotations

import os
from pathlib import Path

from dpfl_bench.machine import imports
from dpfl_bench.results.folder import BROKEN, RunFolder


def go(folder: RunFolder) -> None:
    """Change to that folder, and import from the folders that its `-cd` named. On another machine,
    where they are not, everything is from here.
    """
    try:
        told = folder.read("env.json") or {}
    except BROKEN:
        return
    where, own = told.get("cwd"), told.get("own_code")
    if isinstance(where, str) and Path(where).is_dir():
        os.chdir(where)
    for each in own if isinstance(own, list) else []:
        if isinstance(each, str) and Path(each).is_dir():
            imports.add_folder(each)
