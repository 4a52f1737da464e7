"""A process that imports everything while the sweep is still planned, and of which its workers are
then forked.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import sys
from typing import Any

from dpfl_bench.machine.imports import preload

_started = False


def start() -> None:
    """Not where everything is imported already, nor where forking is not safe."""
    global _started
    if sys.platform == "linux" and "torch" not in sys.modules and not _started:
        multiprocessing.set_forkserver_preload(["dpfl_bench.sweep.warm"])
        multiprocessing.forkserver.ensure_running()
        _started = True


def context() -> Any:
    """How workers are started: of that process, else of this one."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    if _started:
        return multiprocessing.get_context("forkserver")
    preload("dpfl_bench.experiment.run")  # once, for all workers
    return multiprocessing.get_context("fork")
