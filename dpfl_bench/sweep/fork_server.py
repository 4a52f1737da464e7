"""A process that imports everything while the sweep is still planned. The workers are forked from
it.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import sys
from typing import Any

from dpfl_bench.machine.imports import preload

_started = False


def start() -> None:
    """Start that process, on Linux alone (forking is safe there), and not where torch is imported
    already.
    """
    global _started
    if sys.platform == "linux" and "torch" not in sys.modules and not _started:
        multiprocessing.set_forkserver_preload(["dpfl_bench.sweep.fork_server_imports"])
        multiprocessing.forkserver.ensure_running()
        _started = True


def context() -> Any:
    """The multiprocessing context for workers: forked from that process, else from this one."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    if _started:
        return multiprocessing.get_context("forkserver")
    preload("dpfl_bench.experiment.run")  # once, for all workers
    return multiprocessing.get_context("fork")
