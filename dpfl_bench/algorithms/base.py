"""What an algorithm is: three short functions of tensor algebra, the same for any model and any
number of clients at once.

A model is one flat vector of d numbers; c clients are a tensor (c, d). An algorithm never touches a
record. It calls `local.gradient` (the gradient door) and returns its clients' updates to the
engine, which passes them through the send door. What passes that door, `Sent`, is all that the
server may know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dpfl_bench.checks.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


class Server(NamedTuple):
    """What the server keeps between rounds and sends to the clients. An algorithm with more server
    state declares its own tuple, with `x` first.
    """

    x: Tensor  # (d,)


@dataclass(frozen=True)
class Sent:
    """What passed the send door in one round."""

    mean: Tensor  # (d,): the noisy sum divided by the cohort's size
    # in `remember`: each client's own message, as that client knows it, (c, d); in `server`: None
    messages: Tensor | None
    # (): private estimate of the mean of |update|^2 after bounding, if the algorithm `uses_norms`;
    # else 0
    mean_square_norm: Tensor
    # (): mean of |message|^2, with the noise, where the server sees single messages; else 0
    naive_square_norm: Tensor

    @property
    def each(self) -> Tensor:
        """In `remember`: these clients' own messages, (c, d). The server sees none."""
        if self.messages is None:
            raise ConfigError(
                "sent.each: no single message reaches `server` (secure aggregation reveals their sum alone,"
                " and an algorithm is the same under every privacy.trust); use sent.mean there, and"
                " sent.each in `remember`, where it is each client's own message"
            )
        return self.messages


class Round(Protocol):
    """The plan of one round."""

    @property
    def index(self) -> int:
        """From 0."""
        ...

    @property
    def share(self) -> float:
        """Share of the clients that takes part in a round."""
        ...

    @property
    def steps(self) -> int:
        """Local steps of each client."""
        ...

    @property
    def lr(self) -> float:
        """The clients' learning rate."""
        ...

    @property
    def p(self) -> float:
        """1 / expected local steps of a round (ScaffNew's p)."""
        ...


class Local(Protocol):
    """What c clients can do in one round, all at once."""

    @property
    def round(self) -> Round: ...
    @property
    def steps(self) -> int: ...
    @property
    def lr(self) -> float: ...
    def gradient(self, y: Tensor) -> Tensor:
        """Each client's (stochastic) gradient at its own row of y: (c, d) -> (c, d). To be called
        once for each local step.
        """
        ...

    def step(self, y: Tensor, direction: Tensor) -> Tensor:
        """y - lr * direction: (c, d), (c, d) -> (c, d). With local_momentum, a heavy ball that is
        reset every round.
        """
        ...


class Algorithm(Protocol):
    """The contract. c clients, d parameters.

    An algorithm with the class variable `uses_norms = True` gets `Sent.mean_square_norm`, which is
    accounted for where it costs eps.
    """

    @property
    def remembers(self) -> bool:
        """Whether each client keeps one vector (d,) between rounds, zero at first. A class
        variable.
        """
        ...

    def start(self, x: Tensor) -> Any:
        """The server's first state, a named tuple. x: the initial model, (d,)."""
        ...

    def client(self, server: Any, memory: Tensor, local: Local) -> Tensor:
        """The updates that c clients offer to the send door: (c, d).

        server: the server's state. memory: the clients' vectors, (c, d), zeros if the algorithm
        does not remember.
        """
        ...

    def server(self, server: Any, sent: Sent, round: Round) -> Any:
        """The server's next state. server: the present one, which must not change."""
        ...

    def remember(self, server: Any, memory: Tensor, sent: Sent, round: Round) -> Tensor:
        """The next vectors of c clients of the cohort: (c, d) -> (c, d). Called if `remembers`.

        server: the server's state at the round's beginning. memory: the clients' vectors, which
        must not change. sent: `sent.each` holds these clients' own messages.
        """
        ...
