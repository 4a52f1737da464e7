"""The run's own player, observed at its send door. Nothing of the product is written anew here:
what the doors compute is written down, and handed on as it is.

What a client offers to the door may be put in the place of its local work. That is a neighbouring
data set in gradient space: any update can come of some records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Sent, Server
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.doors.send import SendDoor
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.federation.round_player import Notes, RoundPlayer
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.privacy.ledger import Ledger

# the clients of a chunk, and their local work -> what they offer, (c, d)
Offer = Callable[[np.ndarray, Callable[[], Tensor]], Tensor]


@dataclass
class Diary:
    """One round at the send door."""

    offered: list[tuple[np.ndarray, Tensor]] = field(default_factory=list)
    # chunk by chunk: clients, their bounded updates, their messages
    rows: list[tuple[np.ndarray, Tensor, Tensor]] = field(default_factory=list)
    sent: Sent | None = None
    clip: float = 1.0  # C

    def clear(self) -> None:
        self.offered, self.rows, self.sent = [], [], None

    @property
    def clients(self) -> np.ndarray:
        return np.concatenate([c for c, _, _ in self.rows]) if self.rows else np.arange(0)

    @property
    def bounded(self) -> np.ndarray:
        """(m, d), float64."""
        return _stacked([bounded for _, bounded, _ in self.rows])

    @property
    def messages(self) -> np.ndarray:
        """(m, d), float64."""
        return _stacked([messages for _, _, messages in self.rows])


def _stacked(chunks: list[Tensor]) -> np.ndarray:
    return torch.cat(chunks).double().cpu().numpy() if chunks else np.zeros((0, 0))


class WatchedPassage(SendPassage):
    def __init__(self, door: SendDoor, round: PlannedRound, clip: float, total: Tensor, diary: Diary):
        super().__init__(door, round, clip, total)
        self._diary, self._now = diary, np.arange(0)

    def send(self, updates: Tensor, clients: np.ndarray) -> Tensor:
        self._now = clients
        self._diary.offered.append((clients, updates))
        return super().send(updates, clients)

    def _count(self, bounded: Tensor, messages: Tensor, norms: Tensor) -> None:
        self._diary.rows.append((self._now, bounded, messages))
        super()._count(bounded, messages, norms)

    def sent(self, ledger: Ledger) -> Sent:
        self._diary.sent, self._diary.clip = super().sent(ledger), self.clip or 1.0
        return self._diary.sent


@dataclass(frozen=True)
class Watched(RoundPlayer):
    diary: Diary = field(default_factory=Diary)
    offer: Offer | None = None
    given: float | None = None  # C of another world, where it is the median of norms

    @staticmethod
    def of(player: RoundPlayer, offer: Offer | None = None, **changes: Any) -> Watched:
        """A player to watch, with a diary of its own."""
        known = {f.name: getattr(player, f.name) for f in fields(RoundPlayer)}
        return Watched(**{**known, **changes}, offer=offer)

    def with_noise_of(self, seed: int) -> Watched:
        """The same with the noise of another seed; cohorts and lots stay."""
        return replace(self, send_door=replace(self.send_door, seed=seed), diary=Diary())

    def passage(self, round: PlannedRound, clip: float, x: Tensor) -> SendPassage:
        return WatchedPassage(self.send_door, round, self.given or clip, torch.zeros_like(x), self.diary)

    def _offered(
        self, server: Server, memory: Tensor | None, round: PlannedRound, clients: np.ndarray, notes: Notes
    ) -> Tensor:
        def work() -> Tensor:
            return super(Watched, self)._offered(server, memory, round, clients, notes)

        return work() if self.offer is None else self.offer(clients, work).to(server.x)


class Forced(Alone):
    """Plays as if the observer had seen given releases: what follows a round follows from those."""

    def __init__(self, player: RoundPlayer, sent: Sent | None):
        super().__init__(player)
        self._sent = sent

    def update_memories(self, state: TrainingState, sent: Sent, round: PlannedRound) -> None:
        super().update_memories(state, self._sent or sent, round)


def played(
    player: Watched, state: TrainingState, round: PlannedRound, seen: Sent | None = None
) -> TrainingState:
    """One round; the player's diary holds what happened. seen: the releases that what follows the
    round follows from; None: its own.
    """
    player.diary.clear()
    ledger = replace(state.ledger, taken=state.ledger.taken.copy(), sums=dict(state.ledger.sums))
    return player.play(replace(state, ledger=ledger), round, Forced(player, seen))[0]
