"""Ranks of a run, forked from the test's process. They meet by a file."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from dpfl_bench.machine import ranks
from dpfl_bench.machine.ranks import Group, Place


def in_ranks(count: int, work: Callable[[Group], Any]) -> list[Any]:
    """What `work` returns in each of so many ranks; AssertionError where one of them raises."""
    with tempfile.TemporaryDirectory() as folder:
        pids = [_forked(Place(rank, count, rank), work, Path(folder)) for rank in range(count)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        assert codes == [0] * count
        return [pickle.loads((Path(folder) / str(rank)).read_bytes()) for rank in range(count)]


def _forked(place: Place, work: Callable[[Group], Any], folder: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        group = ranks.join(place, dist.FileStore(str(folder / "store"), place.ranks))
        (folder / str(place.rank)).write_bytes(pickle.dumps(work(group)))
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    os._exit(code)
