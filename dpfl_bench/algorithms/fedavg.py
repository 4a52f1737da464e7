"""FedAvg and DP-FedAvg (`balancing`, Algorithm 1).

| paper | here |
|---|---|
| x_t, x_{t,j}^(i) | server.x, y |
| tau, eta | local.steps, local.lr |
| clip(...) + N(0, sigma^2 I) (lines 9, 10) | the door that `client`'s result passes |
| (1/N) sum of Delta_t^(i) | sent.mean |

Deviations: none. Cohorts, minibatches, momentum and schedules are the engine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpfl_bench.algorithms.base import Local, Round, Sent, Server

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedAvg:
    remembers: ClassVar[bool] = False

    def start(self, x: Tensor) -> Server:
        return Server(x)

    def client(self, server: Server, memory: Tensor, local: Local) -> Tensor:
        y = server.x.expand_as(memory)  # line 4
        for _ in range(local.steps):  # lines 5-8
            y = local.step(y, local.gradient(y))
        return y - server.x

    def server(self, server: Server, sent: Sent, round: Round) -> Server:
        return Server(server.x + sent.mean)  # line 12

    def remember(self, server: Server, memory: Tensor, sent: Sent, round: Round) -> Tensor:
        return memory
