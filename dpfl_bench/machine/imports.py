"""Heavy imports in less time."""

from __future__ import annotations

import gc
import importlib
import os
import sys


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
