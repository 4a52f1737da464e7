"""The loop over rounds, and the checkpoint that lets it go on where it was cut off."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch

from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.crew import Crew
from dpfl_bench.federation.diagnostics import Diagnostics
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.machine import mapped, sealed
from dpfl_bench.privacy.ledger import Ledger

PREVIOUS = "previous.pt"  # the checkpoint before the latest; used where the latest is damaged
OVERFLOW, BLANKED = "overflow", "every update was blanked"


class Diverged(ArithmeticError):
    """A round after which none can follow.

    OVERFLOW: a NaN or an infinity is in the model. In a private run the model is post-processing of
    what was released, so this tells nothing more of the data. BLANKED: nothing that came to a
    closed door was finite, and further rounds would add noise alone. This tells something of the
    data.
    """

    def __init__(self, round: int, cause: str = OVERFLOW) -> None:
        super().__init__(
            f"the model overflowed in round {round}" if cause == OVERFLOW else f"{cause} in round {round}"
        )
        self.round, self.cause = round, cause


def rounds(
    player: RoundPlayer, schedule: Schedule, state: TrainingState, done: int, crew: Crew | None = None
) -> Iterator[tuple[int, TrainingState, Diagnostics]]:
    """Play the rounds after the first `done`; yields (rounds done, state, diagnostics) after each.

    Checks after each round that the ledger holds what the schedule planned, and raises
    OverspentError if not. Raises Diverged where no further round can be played. crew: does the
    work; None: this process.
    """
    crew = crew or Alone(player)
    planned = player.releases(schedule.first(done))
    for index in range(done, schedule.rounds):
        round = schedule.round(index)
        state, diagnostics = player.play(state, round, crew)
        planned[round.cohort] += player.releases_of(round)
        state.ledger.verify(planned, index + 1 if player.private else 0, player.send_door.sums)
        if diagnostics.overflowed:
            raise Diverged(index + 1)
        if diagnostics.all_blanked:
            raise Diverged(index + 1, BLANKED)
        yield index + 1, state, diagnostics


@dataclass(frozen=True)
class MemoriesAtItsEnd:
    """The clients' memories, (M, d), behind everything else in a checkpoint's file. There they come
    and go in pieces, and need no memory.
    """

    path: Path
    first: int  # byte
    shape: tuple[int, int]

    def read(self, memory: torch.Tensor) -> None:
        """Into a tensor on the CPU."""
        with self.path.open("rb") as file:
            file.seek(self.first)
            for block in mapped.blocks(memory):
                if file.readinto(block.numpy().data.cast("B")) != block.nbytes:
                    raise sealed.Broken("cut short")


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands: everything that crosses rounds, on the CPU, so that the run goes on on
    any device. Generators are derived, never saved.
    """

    seed: int
    done: int  # rounds of this seed
    server: list[torch.Tensor]
    velocity: torch.Tensor | None
    memory: torch.Tensor | MemoriesAtItsEnd | None
    taken: torch.Tensor  # the ledger's participation counts
    released: int
    sums: dict[str, int]
    clip: float
    earlier: torch.Tensor
    metrics_bytes: int  # length of metrics.csv
    metrics_sum: str  # checksum of these bytes: a damaged row would be in the result
    timing_bytes: int  # length of timing.csv
    seconds: float
    finals: dict[int, torch.Tensor]  # final parameters of the seeds that are done
    data: str  # digest of the records
    iterates_bytes: int = 0  # length of iterates.csv, 0 where there is none
    iterates_sum: str = ""

    @staticmethod
    def of(state: TrainingState, **where: object) -> Checkpoint:
        return Checkpoint(
            server=[tensor.cpu() for tensor in state.server],
            velocity=None if state.velocity is None else state.velocity.cpu(),
            memory=None if state.memory is None else state.memory.cpu(),
            taken=torch.from_numpy(state.ledger.taken),
            released=state.ledger.rounds,
            sums=dict(state.ledger.sums),
            clip=state.clip,
            earlier=state.earlier.cpu(),
            **where,  # type: ignore[arg-type]  # the caller's keywords are the remaining fields
        )

    def state(self, player: RoundPlayer, memory: torch.Tensor | None = None) -> TrainingState:
        """The state again, on the device that this run uses. memory: on the CPU, (M, d), where the
        clients' memories are to be.
        """
        like = self.server[0].new_empty(0).to(player.federation.record_weights.device, self.server[0].dtype)
        kind = type(player.algorithm.start(like))
        ledger = Ledger(player.federation.clients, self.released, self.taken.numpy().copy(), dict(self.sums))
        return TrainingState(
            kind(*(t.to(like) for t in self.server)),
            None if self.velocity is None else self.velocity.to(like),
            self._memory(like, memory),
            ledger,
            self.clip,
            self.earlier.to(like),
        )

    @property
    def memories(self) -> torch.Tensor | None:
        """Of all clients, (M, d), in memory."""
        if not isinstance(self.memory, MemoriesAtItsEnd):
            return self.memory
        whole = torch.empty(self.memory.shape, dtype=self.server[0].dtype)
        self.memory.read(whole)
        return whole

    def _memory(self, like: torch.Tensor, place: torch.Tensor | None) -> torch.Tensor | None:
        if self.memory is None:
            return None
        if isinstance(self.memory, MemoriesAtItsEnd):
            filled = torch.empty(self.memory.shape, dtype=like.dtype) if place is None else place
            self.memory.read(filled)
            return filled if place is not None else filled.to(like)
        if place is None:
            return self.memory.to(like)
        for block, held in zip(mapped.blocks(place), mapped.blocks(self.memory), strict=True):
            block.copy_(held)
        return place

    def save(self, path: Path, **facts: Any) -> None:
        """Save under a checksum, with these facts about the checkpoint. The checkpoint that was
        there becomes the previous one.
        """
        content = dict(self.__dict__)
        apart = (
            self.memory if isinstance(self.memory, torch.Tensor) and mapped.in_a_file(self.memory) else None
        )
        if apart is not None:
            content["memory"] = None
            facts["memories"] = [*apart.shape, apart.nbytes]
        with sealed.writing(path.with_suffix(".new"), **facts) as file:
            _save(content, cast(IO[bytes], file))  # the file has all methods that torch calls
            for block in () if apart is None else mapped.blocks(apart):
                file.write(block.numpy().data.cast("B"))
        with suppress(FileNotFoundError):
            path.replace(path.with_name(PREVIOUS))
        path.with_suffix(".new").replace(path)

    def packed(self) -> bytes:
        """For other ranks: without the clients' memories."""
        file = io.BytesIO()
        torch.save({**self.__dict__, "memory": None}, file)
        return file.getvalue()

    @staticmethod
    def unpacked(content: bytes) -> Checkpoint | None:
        """None of nothing."""
        return Checkpoint(**torch.load(io.BytesIO(content), weights_only=True)) if content else None

    @staticmethod
    def load(path: Path) -> Checkpoint:
        """Raises sealed.Broken if the file is not as it was saved."""
        memories = sealed.check(path).get("memories")
        try:
            if memories is None:
                return Checkpoint(**torch.load(path, map_location="cpu", weights_only=True))
            clients, numbers, size = memories
            first = path.stat().st_size - sealed.END - size
            with path.open("rb") as file:
                content = torch.load(io.BytesIO(file.read(first)), map_location="cpu", weights_only=True)
            content["memory"] = MemoriesAtItsEnd(path, first, (clients, numbers))
            return Checkpoint(**content)
        except TypeError:
            raise sealed.Broken("made by a version with other checkpoints") from None


def _save(content: dict[str, Any], file: IO[bytes]) -> None:
    """torch.save, out of which a second signal comes as a KeyboardInterrupt. torch closes its
    archive on the way out; of a half-written one it raises RuntimeError in place of the interrupt.
    """
    try:
        torch.save(content, file)
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
