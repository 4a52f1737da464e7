"""One run over several processes, on one machine or on many: torchrun or srun starts them, and
torch.distributed lets them talk. Each process is a rank; rank 0 alone writes.

A rank that dies closes its connections, so the others notice when they next talk. One whose machine
vanishes, or that stands still, is noticed after a time limit. The store that all share has each
rank's signs of life and its last word (`SPEAKS`, `LOST`, or the exit code with which it left): one
rank alone says why the run ended.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.machine.place import Place, name_rank_0
from dpfl_bench.machine.signals import WorkerDied

if TYPE_CHECKING:
    import torch

SECONDS_TO_JOIN = 300
SECONDS_TO_PREPARE = 24 * 3600  # one rank may download while the others wait
BEAT = 0.5  # seconds between two signs of life
SILENCE = 4.0  # seconds without one, after which a rank is dead
SECONDS_TO_LEAVE = 5.0  # for which rank 0 waits for the others
SECONDS_TO_MEET = 3.0  # until it has met the error, too, that another rank has met
SPEAKS, LOST = "speaks", "lost"  # words of a rank: met an error of its own; misses another rank


class RankDied(WorkerDied):
    """Another rank ended before its time."""

    def __init__(self, line: str, code: int = 1) -> None:
        super().__init__(line)
        self.code = code  # to end with


@dataclass
class Group:
    """All ranks of a run, seen by one of them."""

    rank: int = 0
    size: int = 1
    hosts: list[str] = field(default_factory=lambda: [platform.node()])  # of each rank
    store: Any = None  # what all ranks share: words under names
    speaks: bool = True  # on the console
    seconds: int = SECONDS_TO_PREPARE  # until a rank that says nothing is given up
    _talk: Any = None  # torch's group
    _said: str = ""  # its last word
    _missing: list[int] = field(default_factory=list)

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def here(self) -> int:
        """How many ranks this machine has."""
        return self.hosts.count(self.hosts[self.rank])

    def hurry(self, seconds: int) -> None:
        """From now on a rank that says nothing for so many seconds is given up."""
        if self.size > 1 and seconds != self.seconds:
            import torch.distributed as dist

            with self._together():
                self._talk = dist.new_group(timeout=timedelta(seconds=seconds))
            self.seconds = seconds

    def gathered(self, message: bytes | memoryview) -> list[bytes]:
        """What every rank says, by rank."""
        if self.size == 1:
            return [bytes(message)]
        import torch

        lengths = [int(each) for each in self.counts([len(message)])[:, 0]]
        mine = torch.zeros(max(lengths), dtype=torch.uint8)
        if len(message):
            mine[: len(message)] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        said = self._gather(mine)
        return [bytes(row[:length].numpy()) for row, length in zip(said, lengths, strict=True)]

    def counts(self, numbers: Sequence[int]) -> torch.Tensor:
        """Whole numbers of every rank, as many of each: (ranks, numbers)."""
        import torch

        mine = torch.tensor(numbers, dtype=torch.int64)
        return mine[None] if self.size == 1 else torch.stack(self._gather(mine))

    def rows(self, mine: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """The rows of all ranks, one after the other. counts: how many each has, all ranks know."""
        import torch

        if self.size == 1:
            return mine
        padded = mine.new_zeros(max(counts), *mine.shape[1:])
        padded[: len(mine)] = mine
        each = self._gather(padded)
        return torch.cat([rows[:count] for rows, count in zip(each, counts, strict=True)])

    def exchanged(self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
        """Send so many rows to each rank, one after the other, and get theirs."""
        import torch.distributed as dist

        theirs = rows.new_empty(sum(received), *rows.shape[1:])
        with self._together():
            dist.all_to_all_single(theirs, rows.contiguous(), list(received), list(sent), group=self._talk)
        return theirs

    def agreed(self, *numbers: int) -> list[int]:
        """The largest that any rank has, of each."""
        return list(numbers) if self.size == 1 else [int(n) for n in self.counts(numbers).amax(0)]

    def told(self, message: bytes | None) -> bytes:
        """What rank 0 says; the others give None."""
        if self.size == 1:
            return message or b""
        return self.gathered(message or b"")[0]

    def send(self, rows: torch.Tensor, to: int) -> None:
        import torch.distributed as dist

        with self._together():
            dist.send(rows.contiguous(), to, group=self._talk)

    def receive(self, rows: torch.Tensor, source: int) -> None:
        """Into `rows`, which lie together."""
        import torch.distributed as dist

        with self._together():
            dist.recv(rows, source, group=self._talk)

    def _gather(self, mine: torch.Tensor) -> list[torch.Tensor]:
        import torch
        import torch.distributed as dist

        each = [torch.empty_like(mine) for _ in range(self.size)]
        with self._together():
            dist.all_gather(each, mine, group=self._talk)
        return each

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Every rank does this at the same time; torch raises RuntimeError where one does not."""
        try:
            yield
        except RuntimeError as error:
            raise self._missed(error) from None

    def _missed(self, error: RuntimeError) -> Exception:
        """What to raise where another rank is not there. The error itself, if none is missing. The
        first of those that live says who is.
        """
        self._say_to_all(LOST)
        try:
            dead = self._dead()
            words = [self._word(rank) for rank in range(self.size)]
        except RuntimeError:  # the store was rank 0's, and is gone with it
            dead, words = [0], [LOST] * self.size
        left = [word for word in words if word not in ("", LOST)]
        if left:  # somebody ended, and said why
            self.speaks = False
            code = int(left[0]) if left[0].isdigit() else 1
            return RankDied("another rank ended with an error of its own", code)
        late = "timed out" in str(error).lower()
        self._missing = [rank for rank, word in enumerate(words) if not word] if late else dead
        if not self._missing:  # or did the others give up this one?
            if words.count(LOST) == 1 or not re.search(r"peer|pipe", str(error)):
                return error
            self.speaks = False
            return RankDied("the other ranks gave up this one")
        self.speaks = self.rank == min(set(range(self.size)) - set(self._missing))
        who = " and ".join(f"rank {rank} on {self.hosts[rank]}" for rank in self._missing)
        how = (
            f"gave no answer for {self.seconds} s (engine.rank_timeout)" if late else "ended before its time"
        )
        return RankDied(f"{who}, of {self.size} ranks, {how}; the same command goes on from the checkpoint")

    def _dead(self) -> list[int]:
        """The ranks that give no sign of life, and left no word."""
        unknown = {rank: self._stored(f"beat/{rank}") for rank in range(self.size) if rank != self.rank}
        end = time.monotonic() + SILENCE
        while unknown and time.monotonic() < end:
            time.sleep(0.05)
            unknown = {
                rank: beat
                for rank, beat in unknown.items()
                if not self._word(rank) and self._stored(f"beat/{rank}") == beat
            }
        return list(unknown)

    def beat(self) -> None:
        """Give signs of life, for ever."""
        for number in itertools.count():
            with suppress(RuntimeError):
                self.store.set(f"beat/{self.rank}", str(number))
            time.sleep(BEAT)

    def _say_to_all(self, word: str) -> None:
        """This rank's last word; the first one counts."""
        if self.size > 1 and not self._said:
            self._said = word
            with suppress(RuntimeError):
                self.store.set(f"word/{self.rank}", word)

    def _word(self, rank: int) -> str:
        """Of a rank; empty where it left none."""
        return self._stored(f"word/{rank}") if self.size > 1 else ""

    def _stored(self, name: str) -> str:
        return str(self.store.get(name).decode()) if self.store.check([name]) else ""

    def meets_error(self) -> bool:
        """This rank ends with an error of its own: whether it says so. Not where rank 0 has met the
        same.
        """
        self._say_to_all(SPEAKS)
        end = time.monotonic() + SECONDS_TO_MEET
        with suppress(RuntimeError):
            while not self.first and time.monotonic() < end:
                if self._word(0) not in ("", LOST):
                    return False
                time.sleep(0.05)
        self.speaks = True
        return True

    def another_spoke(self) -> bool:
        """Whether another rank has said why it ended."""
        with suppress(RuntimeError):
            return any(self._word(rank) == SPEAKS for rank in range(self.size) if rank != self.rank)
        return False

    def leave(self, code: int) -> None:
        """End with this exit code. Rank 0, who may have the store, ends last."""
        self._say_to_all(str(code))
        others = [f"left/{rank}" for rank in range(1, self.size) if rank not in self._missing]
        end = time.monotonic() + SECONDS_TO_LEAVE
        with suppress(RuntimeError):
            if not self.first:
                self.store.set(f"left/{self.rank}", "")
            while self.first and others and not self.store.check(others) and time.monotonic() < end:
                time.sleep(0.02)


ALONE = Group()
_current = ALONE


def group() -> Group:
    """The ranks of this process's run; a group of one where it is alone."""
    return _current


def join(here: Place, store: Any = None) -> Group:
    """Meet the other ranks. store: what they share; None: as torchrun or srun made it known."""
    global _current
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    limit = timedelta(seconds=SECONDS_TO_JOIN)
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    try:
        if store is None:
            name_rank_0(here)
            store, *_ = next(rendezvous("env://", here.rank, here.ranks, timeout=limit))
        dist.init_process_group(
            _backends(), store=store, rank=here.rank, world_size=here.ranks, timeout=limit
        )
        talk = dist.new_group(timeout=timedelta(seconds=SECONDS_TO_PREPARE))
    except (RuntimeError, ValueError, OSError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ConfigError(
            f"rank {here.rank} of {here.ranks}: expected to meet the other ranks at"
            f" {os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}, and did not ({reason})"
        ) from None
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    words = dist.distributed_c10d.PrefixStore(f"dpfl/{restart}", store)
    _current = Group(here.rank, here.ranks, [], words, here.rank == 0, _talk=talk)
    threading.Thread(target=_current.beat, daemon=True).start()
    _current.hosts = [name.decode() for name in _current.gathered(platform.node().encode())]
    return _current


def _backends() -> str:
    """How ranks talk to each other: over the network from CPU to CPU, or from GPU to GPU."""
    import torch
    import torch.distributed as dist

    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
