"""DP-NormFedAvg (`normalized`, Algorithm 1): Option (ii) with privacy.bound=normalise, Option (i)
with privacy.bound=clip.

| paper | here |
|---|---|
| w_k, w_{k,tau}^(i) | server.x, y |
| eta_k, beta_k | local.lr / round.lr, server_lr * round.lr |
| u_k^(i) (line 9) | what `client` returns, so C is on the scale of the sum of gradients |
| norm(u, C) or clip(u, C), noise (lines 10-12) | the door |
| a_k (line 14) | sent.mean |

Deviations: the paper returns a uniformly random iterate for its theorem; we return the last one, as
its experiments do. norm(0) is undefined in the paper; see privacy/bounding.py. Under Poisson
cohorts the noise is drawn on the sum, then divided by the expected r (dividing noise that |S_k|
clients drew would make its variance depend on |S_k|).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpfl_bench.algorithms.base import Local, Round, Sent, Server

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class NormFedAvg:
    remembers: ClassVar[bool] = False

    def start(self, x: Tensor) -> Server:
        return Server(x)

    def client(self, server: Server, memory: Tensor, local: Local) -> Tensor:
        y = server.x.expand_as(memory)  # line 5
        for _ in range(local.steps):  # lines 6-8
            y = local.step(y, local.gradient(y))
        return (server.x - y) / local.lr  # line 9

    def server(self, server: Server, sent: Sent, round: Round) -> Server:
        return Server(server.x - round.lr * sent.mean)  # line 14; the engine scales this step by server_lr

    def remember(self, server: Server, memory: Tensor, sent: Sent, round: Round) -> Tensor:
        return memory
