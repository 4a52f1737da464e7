"""What falls to one rank of a run: a part of each round's groups, and the memories of some clients.

Pieces of work (groups, slices of records) are dealt to the ranks in contiguous blocks of about
equally many clients or records. Who keeps a client's memory follows from the client's number alone:
the rank to which it falls in a round of everybody. In such a round every client is played where its
memory is. In a round of a sampled cohort a group may have clients of several ranks. The rank that
plays the group gets their memories as visitors, and sends them home when they are updated. Cohorts
are in the clients' order, so that few have to travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np


def blocks(sizes: Sequence[int], ranks: int) -> list[range]:
    """The pieces of each rank. sizes: of the pieces; a block ends where it is nearest to its fair
    share of their sum.
    """
    ends = np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))])
    fair = ends[-1] * np.arange(ranks + 1) / ranks
    cuts = [int(np.abs(ends - target).argmin()) for target in fair[:-1]]
    return [range(first, last) for first, last in pairwise([*cuts, len(sizes)])]


Groups = Sequence[np.ndarray]  # of clients, by their indices


class Travels(NamedTuple):
    """Whose memories leave their rank for one round. Indices of clients, ascending."""

    away: list[np.ndarray]  # clients of this rank that rank r plays, by r
    visitors: list[np.ndarray]  # clients of rank r that this rank plays, by r
    any: bool  # whether any rank sends or gets a memory


class Share:
    """The part of one rank; by default there is no other."""

    def __init__(self, rank: int = 0, ranks: int = 1, everyone: Groups = ()) -> None:
        """everyone: the groups of a round of all clients."""
        self.rank, self.ranks = rank, ranks
        self._owners = _dealt(everyone, ranks)
        self._own = np.flatnonzero(self._owners == rank)
        self._places = np.full(len(self._owners), -1)  # of each client's memory; -1: elsewhere
        self._places[self._own] = np.arange(len(self._own))
        self._visitors, self._most = np.zeros(0, dtype=np.int64), 0

    def make_room(self, rounds: Iterable[Groups]) -> None:
        """For the visitors of the rounds that will be played."""
        self._most = max((len(_all(self.travels(groups).visitors)) for groups in rounds), default=0)

    def room(self, clients: int) -> int:
        """How many memories this rank has place for."""
        return clients if self.ranks == 1 else len(self._own) + self._most

    def kept(self, rank: int) -> np.ndarray:
        """The clients whose memories a rank keeps, in the order in which they lie there."""
        return np.flatnonzero(self._owners == rank)

    def places(self, clients: np.ndarray) -> np.ndarray:
        """Where the memories of these clients lie."""
        return clients if self.ranks == 1 else self._places[clients]

    def block(self, sizes: Sequence[int]) -> range:
        """The pieces of this rank."""
        return range(len(sizes)) if self.ranks == 1 else blocks(sizes, self.ranks)[self.rank]

    def travels(self, groups: Groups) -> Travels:
        """Of a round with these groups."""
        if self.ranks == 1:
            return Travels([], [], False)
        cohort, players = _all(groups), _dealt(groups, self.ranks)
        owners = self._owners[cohort]
        mine, here = (owners == self.rank) & (players != owners), (players == self.rank) & (players != owners)
        return Travels(
            [cohort[mine & (players == rank)] for rank in range(self.ranks)],
            [cohort[here & (owners == rank)] for rank in range(self.ranks)],
            bool((owners != players).any()),
        )

    def expect(self, groups: Groups) -> Travels:
        """Before a round with these groups: have places for its visitors, and none for those of the
        round before.
        """
        travels = self.travels(groups)
        self._places[self._visitors] = -1
        self._visitors = _all(travels.visitors)
        self._places[self._visitors] = len(self._own) + np.arange(len(self._visitors))
        return travels


def _dealt(groups: Groups, ranks: int) -> np.ndarray:
    """The rank to which each client of the groups falls, in their order."""
    sizes = [len(group) for group in groups]
    dealt = [np.full(sum(sizes[k] for k in block), rank) for rank, block in enumerate(blocks(sizes, ranks))]
    return _all(dealt)


def _all(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
