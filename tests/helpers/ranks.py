"""Ranks of a run, forked from the test's process. They meet by a file."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from dpfl_bench import cli
from dpfl_bench.machine import ranks
from dpfl_bench.machine.place import Place
from dpfl_bench.machine.ranks import Group


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


@dataclass(frozen=True)
class Said:
    """How one rank of a command ended."""

    code: int
    out: str
    err: str


def run_in_ranks(count: int, *words: str, before: Callable[[int], None] = lambda rank: None) -> list[Said]:
    """`dpfl-bench WORDS` in so many ranks, as torchrun starts them: it keeps the store. before: is
    called in each with its rank.
    """
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder:
        files = [[Path(folder) / f"{rank}.{name}" for name in ("out", "err")] for rank in range(count)]
        pids = [
            _forked_command(Place(rank, count, rank), words, before, files[rank], store.port)
            for rank in range(count)
        ]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        texts = [[file.read_text() for file in each] for each in files]
    return [Said(code, *said) for code, said in zip(codes, texts, strict=True)]


def _forked_command(
    place: Place, words: Sequence[str], before: Callable[[int], None], files: Sequence[Path], port: int
) -> int:
    pid = os.fork()
    if pid:
        return pid
    code: object = 70
    try:
        for number, file in zip((1, 2), files, strict=True):
            os.dup2(os.open(file, os.O_CREAT | os.O_WRONLY), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
        numbers = {
            "RANK": place.rank,
            "WORLD_SIZE": place.ranks,
            "LOCAL_RANK": place.local,
            "MASTER_PORT": port,
        }
        os.environ.update({name: str(number) for name, number in numbers.items()}, MASTER_ADDR="127.0.0.1")
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        before(place.rank)
        cli.main(words)
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 70)
