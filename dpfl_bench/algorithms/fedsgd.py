"""FedSGD and DP-FedSGD (McMahan et al. 2017; `dpscaffold`, section 5).

| paper | here |
|---|---|
| x^(t-1), eta | server.x, round.lr |
| K lots of a share s, K s = 1 | local.steps lots, all at the same x |
| aggregated gradient | sent.mean |

A client sends a gradient, so at client level C is on the scale of one gradient, whatever the
learning rate.

Deviations: `dpscaffold` calls FedSGD "FedAvg with Ks = 1", and its authors ran just that: K = 1/s
steps that move, `algo=dp_fedavg local_steps=5` for s = .2. Here no step moves: local_steps is 1 by
default, and with more a client sends the mean of as many lots' gradients at the same point. The two
differ (docs/papers.md, dpscaffold).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpfl_bench.algorithms.base import Local, Round, Sent, Server

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedSGD:
    remembers: ClassVar[bool] = False

    def start(self, x: Tensor) -> Server:
        return Server(x)

    def client(self, server: Server, memory: Tensor, local: Local) -> Tensor:
        x = server.x.expand_as(memory)
        total = local.gradient(x)
        for _ in range(local.steps - 1):
            total = total + local.gradient(x)
        return total / local.steps

    def server(self, server: Server, sent: Sent, round: Round) -> Server:
        return Server(server.x - round.lr * sent.mean)

    def remember(self, server: Server, memory: Tensor, sent: Sent, round: Round) -> Tensor:
        return memory
