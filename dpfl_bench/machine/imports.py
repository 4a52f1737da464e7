"""Heavy imports in less time."""

from __future__ import annotations

import gc
import importlib
import os
import sys


def preload(name: str) -> None:
    """Import a module and all that it needs. What modules hold is no garbage: to look for some
    among it, again and again, takes a fifth of the time that torch's import does. Nor is it looked
    at later, so that forked processes keep sharing it.

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
