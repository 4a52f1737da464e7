"""A crew of worker processes that play many rounds."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from dpfl_bench.experiment import train
from dpfl_bench.federation.workers import Workers
from helpers.crews import in_chunks
from helpers.federations import TINY, Played, player_of, settings_of
from helpers.processes import pss

GIVEN = (*TINY, "algo=dp_scaffold", "sampled_clients=9")


@contextmanager
def crew_of(played: Played, count: int = 3) -> Iterator[Workers]:
    """A crew of whose processes none is left at the end, nor a second later."""
    crew = Workers(played.player, played.start, count)
    pids = [worker.pid for worker in crew._workers if worker.pid is not None]
    assert len(pids) == count
    try:
        with crew:
            yield crew
    finally:
        assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def play(played: Played, crew: Workers) -> Iterator[int]:
    """The rounds that are done."""
    for done, _, _ in train.rounds(played.player, played.schedule, played.start, 0, crew):
        yield done


def pid_of(crew: Workers, number: int = 0) -> int:
    pid = crew._workers[number].pid
    assert pid is not None
    return pid


def three_hundred_rounds() -> None:
    """A leak grows in every window. A full garbage collection of Python unshares pages in one."""
    gc.collect()
    gc.freeze()  # as the command does: a collection would unshare pages, each process's for itself
    given = [o for o in GIVEN if not o.startswith("rounds")]
    played = player_of(in_chunks(settings_of(*given, "rounds=300"), 1))
    seen = []
    with crew_of(played, 2) as crew:
        pids = [os.getpid(), *(pid_of(crew, number) for number in range(2))]
        for done in play(played, crew):
            crew.losses(played.start.server.x, True)
            if done in (60, 180, 300):
                seen.append([(pss(pid, "Anon", "Shmem"), len(os.listdir(f"/proc/{pid}/fd"))) for pid in pids])
    for (first, *files), (second, *files_then), (third, *files_late) in zip(*seen, strict=True):
        assert files == files_then == files_late
        growth = min(second - first, third - second)
        assert growth < 2**18, f"{growth} bytes in 120 rounds"


def fifteen_crews() -> None:
    sizes = []
    for number in range(15):
        played = player_of(in_chunks(settings_of(*GIVEN), 1))
        with crew_of(played, 2) as crew:
            next(play(played, crew))
        if number in (5, 14):
            gc.collect()
            sizes.append(pss(os.getpid()))
    growth = sizes[1] - sizes[0]
    assert growth < 2**19, f"{growth} bytes in 9 crews"
