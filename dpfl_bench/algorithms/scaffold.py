"""SCAFFOLD and DP-SCAFFOLD(-warm) (`dpscaffold`, Algorithm 1; Karimireddy et al. 2020).

| paper | here |
|---|---|
| x^(t-1), c^(t-1) | server.x, server.c |
| y_i, c_i | y, own |
| K, eta_l, l | local.steps / round.steps, local.lr / round.lr, round.share |
| clipped, noised H_i^k (lines 9-12) | local.gradient, where privacy.unit=record |
| Delta y_i, its mean over the cohort (lines 15, 20) | what `client` returns, sent.mean |

Nothing is sent for the controls: Delta c_i = -c - Delta y_i / (K eta_l) follows from what is sent
anyway, so its mean does too, and a client's own control follows from its own message. At
privacy.unit=record that is line 14 to the letter. At privacy.unit=client (as `fedexp` compares it)
Delta y_i is the bounded, noised message, and the controls are post-processing of it.

Warm start: in the first rounds the K lots are all drawn at x, which stands still, so that c_i
becomes the mean of K (noised) gradients there. These rounds release, and are accounted for, like
any other; a client that takes part in none of them keeps c_i = 0.

Deviations. At client level under secure aggregation a client's own control is made of its bounded
update without noise (privacy.memory, see scaffnew.py for the reason); c is made of released sums in
every case. local_momentum is not in the paper: with it (x - y) / (K eta_l) is no mean of gradients.
With full participation, constant K and p = 1 / K this is ScaffNew, h_i = c_i - c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from dpfl_bench.algorithms.base import Local, Round, Sent

if TYPE_CHECKING:
    from torch import Tensor


class Controlled(NamedTuple):
    x: Tensor  # (d,)
    c: Tensor  # (d,): the server's control, an estimate of the mean of the clients'


@dataclass(frozen=True)
class Scaffold:
    warm_rounds: int | None  # null: default_warm_rounds
    remembers: ClassVar[bool] = True

    def start(self, x: Tensor) -> Controlled:
        return Controlled(x, x.new_zeros(len(x)))

    def client(self, server: Controlled, own: Tensor, local: Local) -> Tensor:
        x = y = server.x.expand_as(own)  # line 6
        warm = self.warm(local.round)
        for _ in range(local.steps):  # lines 7-13
            y = local.step(y, local.gradient(x if warm else y) - own + server.c)
        return y - server.x  # line 15

    def server(self, server: Controlled, sent: Sent, round: Round) -> Controlled:
        c = server.c + round.share * self._control_step(server, sent.mean, round)  # line 21
        return Controlled(server.x if self.warm(round) else server.x + sent.mean, c)

    def remember(self, server: Controlled, own: Tensor, sent: Sent, round: Round) -> Tensor:
        return own + self._control_step(server, sent.each, round)  # line 14

    def _control_step(self, server: Controlled, update: Tensor, round: Round) -> Tensor:
        """Delta c_i = -c - Delta y_i / (K eta_l) (line 14); for the mean of several Delta y_i, the
        mean of their Delta c_i.
        """
        return -server.c - update / (round.steps * round.lr)

    def warm(self, round: Round) -> bool:
        return round.index < (
            default_warm_rounds(round.share) if self.warm_rounds is None else self.warm_rounds
        )


def default_warm_rounds(share: float) -> int:
    """1 if every client takes part, else 4 / l (footnote 2): each client is then drawn with
    probability .98. That all are drawn is rare.
    """
    return 1 if share == 1 else math.ceil(4 / share)
