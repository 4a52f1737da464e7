"""What an algorithm is: three short functions of tensor algebra, the same for any model and any
number of clients at once.

A model is one flat vector of d numbers; c clients are a tensor (c, d). An algorithm never touches a
record or a raw update: it calls `local.gradient` (the first door) and hands its update back to the
engine, which passes it through the second. What comes out of there, `Sent`, is all that the server
may know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Server(NamedTuple):
    """What the server keeps between rounds and broadcasts. An algorithm with more server state
    declares its own tuple, `x` first.
    """

    x: Tensor  # (d,)


@dataclass(frozen=True)
class Sent:
    """What passed the door in one round."""

    mean: Tensor  # (d,): the noisy sum divided by the cohort's size
    # (c, d): each client's own message, as that client knows it, in `remember`; (0, d) in `server`
    each: Tensor
    # (): private estimate of the mean |update|^2 after bounding, where the algorithm `uses_norms`;
    # else 0
    mean_square_norm: Tensor
    naive_square_norm: (
        Tensor  # (): mean |message|^2, noise and all, where the server sees single messages; else 0
    )


class Round(Protocol):
    """The round's facts from the schedule."""

    @property
    def index(self) -> int:
        """From 0."""
        ...

    @property
    def share(self) -> float:
        """Of the clients, that takes part in a round."""
        ...

    @property
    def steps(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def p(self) -> float: ...


class Local(Protocol):
    """What a chunk of clients has at hand."""

    @property
    def round(self) -> Round: ...
    @property
    def steps(self) -> int: ...
    @property
    def lr(self) -> float: ...
    def gradient(self, y: Tensor) -> Tensor:
        """Each client's (stochastic) gradient at its own row: (c, d) -> (c, d). Once per local
        step.
        """
        ...

    def step(self, y: Tensor, direction: Tensor) -> Tensor:
        """y - lr * direction, with local momentum (heavy ball, reset every round) where it is
        configured.
        """
        ...


class Algorithm(Protocol):
    """`uses_norms = True` beside `remembers` asks the door for `Sent.mean_square_norm`, which is
    accounted for where it costs.
    """

    @property
    def remembers(self) -> bool:
        """True: each client keeps one vector (d,) between rounds, zero at first. A class variable."""
        ...

    def start(self, x: Tensor) -> Any: ...

    def client(self, server: Any, memory: Tensor, local: Local) -> Tensor:
        """What c clients offer to the door: (c, d). memory: (c, d), zeros where the algorithm does
        not remember.
        """
        ...

    def server(self, server: Any, sent: Sent, round: Round) -> Any: ...

    def remember(self, server: Any, memory: Tensor, sent: Sent, round: Round) -> Tensor:
        """The new memory of c clients of the cohort, (c, d) -> (c, d), with the server's state of
        the round's beginning.

        Only called where `remembers` is True.
        """
        ...
