"""engine.memories=disk: what clients remember lies in a file. The same bits, little memory, nothing
left behind.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.algorithms import ALGORITHMS, Algo
from helpers.command import call
from helpers.crews import bits, in_chunks
from helpers.federations import TINY, player_of, settings_of
from helpers.runs import same_numbers

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.targets import remembers
from dpfl_bench.experiment import engine, train
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.workers import Workers
from dpfl_bench.machine import mapped, sealed

DISK = "engine.memories=disk"
REMEMBERING = [algo for algo in ALGORITHMS if remembers(algo.settings().algo)]
SHORT = ("algo=dp_scaffnew", *TINY, "rounds=9", "eval_every=3", "checkpoint_every=2", "sampled_clients=4")


def trace(algo: Algo, memory: torch.Tensor | None, count: int) -> list[bytes]:
    """What each round leaves behind. count: of processes."""
    played = player_of(in_chunks(algo.settings(sampled_clients=7)))
    state = played.player.start(played.start.server.x, memory)
    with Alone(played.player) if count == 1 else Workers(played.player, state, count) as crew:
        ends = train.rounds(played.player, played.schedule, state, 0, crew)
        return [bits(end.server.x) + bits(end.memory) for _, end, _ in ends]


@pytest.mark.parametrize("algo", REMEMBERING, ids=lambda algo: algo.id)
def test_not_a_bit_depends_on_where_memories_lie(algo: Algo, tmp_path: Path) -> None:
    in_ram = trace(algo, None, 1)
    for count in (1, 2):
        with mapped.zeros((10, 18), torch.float32, tmp_path) as memory:
            assert mapped.in_a_file(memory)
            assert trace(algo, memory, count) == in_ram
            assert memory.any()
    assert not any(tmp_path.iterdir())
    assert not mapped.in_a_file(memory)


def test_there_are_algorithms_that_remember() -> None:
    assert {"dp_scaffnew", "dp_scaffold", "dp_scaffold_warm", "dp_fedexp_scaffold"} <= {
        algo.id for algo in REMEMBERING
    }


def cut_after(rounds: int, monkeypatch: pytest.MonkeyPatch, *given: str) -> Path:
    """A run that was killed after so many rounds."""
    with monkeypatch.context() as patched:
        left, play = iter(range(rounds)), RoundPlayer.play

        def until_broken(*arguments: Any) -> Any:
            if next(left, None) is None:
                raise OSError("killed")
            return play(*arguments)

        patched.setattr(RoundPlayer, "play", until_broken)
        with pytest.raises(OSError, match="killed"):
            call("run", *SHORT, *given)
    (folder,) = Path("outputs/runs").iterdir()
    return folder.absolute()


@pytest.mark.parametrize(
    ("first", "then"),
    [((), (DISK,)), ((DISK,), ()), ((DISK,), (DISK, "engine.workers=2")), (("engine.workers=2",), (DISK,))],
)
def test_a_run_goes_on_wherever_its_memories_were(
    first: tuple[str, ...], then: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ("engine.chunk=2",)
    whole = call("run", *SHORT, *parts, "outputs=whole").folder
    cut = cut_after(7, monkeypatch, *parts, *first)
    kept = train.Checkpoint.load(cut / "checkpoint/latest.pt")
    assert kept.done == 6
    assert isinstance(kept.memory, train.MemoriesAtItsEnd) is (DISK in first)
    same_numbers(whole, call("run", *SHORT, *parts, *then).folder)
    assert [file.name for file in (cut / "checkpoint").iterdir()] == ["final.pt"]


def test_memories_in_a_checkpoint_are_watched_over(monkeypatch: pytest.MonkeyPatch) -> None:
    file = cut_after(7, monkeypatch, DISK) / "checkpoint/latest.pt"
    held = train.Checkpoint.load(file).memory
    assert isinstance(held, train.MemoriesAtItsEnd)
    content = bytearray(file.read_bytes())
    content[held.first + 100] ^= 1
    file.write_bytes(content)
    with pytest.raises(sealed.Broken):
        train.Checkpoint.load(file)


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(mapped, "_allocate", full)
        said = call("run", *SHORT, DISK)
    assert (said.code, said.err.count("\n")) == (1, 1), said.err
    assert "checkpoint: No space left on device; expected room to write; free some" in said.err
    (folder,) = Path("outputs/runs").iterdir()
    assert not list(folder.glob("**/*.part"))
    with monkeypatch.context() as patched:
        usage = namedtuple("usage", "total used free")
        patched.setattr(shutil, "disk_usage", lambda _: usage(800, 100, 700))
        said = call("run", *SHORT, DISK)
    assert (said.code, said.err.count("\n")) == (2, 1), said.err
    assert "10 x 18 numbers: 0.0 GB, expected at most 0.0; free some disk, lower clients" in said.err
    assert call("run", *SHORT, DISK).code == 0


def test_memories_on_disk_are_for_a_cpu_and_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(*SHORT, DISK)
    engine.check_place(settings, torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"^engine\.memories=disk: expected device=cpu, got cuda"):
        engine.check_place(settings, torch.device("cuda"))
    monkeypatch.setattr(engine.ranks, "group", lambda: SimpleNamespace(size=2))
    with pytest.raises(ConfigError, match=r"^engine\.memories=disk: expected one rank, got 2"):
        engine.check_place(settings, torch.device("cpu"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_blocks_of_a_file_leave_memory(tmp_path: Path) -> None:
    size = 3 * mapped.BLOCK
    with mapped.zeros((size // 4000, 1000), torch.float32, tmp_path) as memory:
        before = resident()
        for block in mapped.blocks(memory):
            block.fill_(1.5)
        assert resident() - before < mapped.BLOCK
        assert memory.min() == 1.5
        assert resident() - before > 0.9 * size  # the negative control: without blocks it is all there
        mapped.release(memory)
        assert resident() - before < mapped.BLOCK
        assert memory[7, 7] == 1.5
    with mapped.zeros((10, 10), torch.float32) as memory:
        memory += 1
        mapped.release(memory)
        assert memory.min() == 1
    assert mapped.release(torch.ones(5)) is None


def resident() -> int:
    """Bytes of files that are in this process's memory."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssFile"].split()[0]) * 1024


def test_it_is_deleted_where_the_system_keeps_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on Windows: an open file cannot be deleted."""
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "in use", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        place = mapped.zeros((10, 18), torch.float32, tmp_path)
        with place as memory:
            (file,) = tmp_path.iterdir()
            assert file.match("memories.*.part")
            assert memory.sum() == 0
            patched.setattr(Path, "unlink", unlink)
    assert not any(tmp_path.iterdir())
