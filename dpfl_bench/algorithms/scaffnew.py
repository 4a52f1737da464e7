"""ScaffNew and DP-ScaffNew (`balancing`, Algorithm 2; Mishchenko et al. 2022).

| paper | here |
|---|---|
| x_t, x_t^(i), h_t^(i) | server.x, y, h |
| eta, p | local.lr / round.lr, round.p = 1 / expected local steps |
| clip(...) + N(0, sigma^2 I) (line 8) | the door that `client`'s result passes |
| Delta_t^(i), (1/N) sum of Delta_t^(j) | sent.each, sent.mean |

One call is the stretch between two communications. `coins: true` draws the coins of line 3, before
training; `coins: false` (the paper's experiments) communicates after every 1/p steps exactly.

Deviations. Line 10 makes h_i of the client's noisy message (privacy.memory=own_message, the default
under trust=local, as in the paper). Under secure aggregation that leaks: sum h_i = 0, so the
others' later updates reveal one's own message, share of the noise and all, and a run accounted by
its sums would claim far too small an eps (tests/algorithms/test_shifts.py is the counterexample).
There the default is privacy.memory=own_update: h_i holds the client's bounded update without its
noise, which is valid for the eps that the sums cost. The shifts then sum to a random walk of the
released noise instead of 0: harmless over few rounds, a drag over many
(docs/privacy-derivations.md). With own_message under secagg a client's own share of the noise alone
is accounted. With cohorts, an absent client keeps its shift. local_momentum is not in the paper:
line 10's p / eta knows nothing of its gain, and .9 diverges where .5 converges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpfl_bench.algorithms.base import Local, Round, Sent, Server

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ScaffNew:
    remembers: ClassVar[bool] = True

    def start(self, x: Tensor) -> Server:
        return Server(x)

    def client(self, server: Server, h: Tensor, local: Local) -> Tensor:
        y = server.x.expand_as(h)
        for _ in range(local.steps):
            y = local.step(y, local.gradient(y) - h)  # line 6
        return y - server.x  # line 8

    def server(self, server: Server, sent: Sent, round: Round) -> Server:
        return Server(server.x + sent.mean)  # line 9

    def remember(self, server: Server, h: Tensor, sent: Sent, round: Round) -> Tensor:
        return h + round.p / round.lr * (sent.mean - sent.each)  # line 10

    def potential(self, x: Tensor, h: Tensor, x_star: Tensor, h_star: Tensor, round: Round) -> Tensor:
        """Theorem 1's psi_t = sum_i |x^(i) - x*|^2 + (eta / p)^2 |h^(i) - h*^(i)|^2, right after a
        communication (x^(i) = x).
        """
        return len(h) * (x - x_star).square().sum() + (round.lr / round.p) ** 2 * (h - h_star).square().sum()
