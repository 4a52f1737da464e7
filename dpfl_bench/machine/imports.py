"""Heavy imports in less time, and a user's own folder among the places to import from."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path


def preload(name: str) -> None:
    """Import a module and all that it needs, without garbage collection: modules hold no garbage,
    and looking for some takes a fifth of the time of torch's import. The collector never looks at
    these objects later, either, so forked processes keep sharing their memory.

    numpy's linear algebra gets one thread, as in `device.for_small_tensors`: others would spin from
    its import on.
    """
    if name in sys.modules:
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    enabled = gc.isenabled()
    gc.disable()
    try:
        importlib.import_module(name)
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


OWN: list[str] = []  # folders of `-cd DIR`, whose modules can be imported


def add_folder(folder: str) -> None:
    """Make the modules in `-cd DIR` importable. Whatever is installed comes first, so that a file
    there replaces no other program's module. Processes that Python starts get this path too.
    """
    path = str(Path(folder).absolute())
    if path not in OWN:
        OWN.append(path)
    if path not in sys.path:
        sys.path.append(path)
        importlib.invalidate_caches()
