"""FedEXP, LDP-FedEXP and CDP-FedEXP (`fedexp`, Algorithms 1 and 2): a server step that adapts to
how much the updates differ.

| paper | here |
|---|---|
| w^(t), eta_g^(t) | server.x, `step` |
| Delta_i clipped, noised by LocalRandomizer | the door |
| c-bar | sent.mean |
| numerator of eq. (2), (6), (7) or (8) | sent.mean_square_norm |
| numerator of eq. (3) | sent.naive_square_norm, with `naive` |

The send door estimates the numerator. Without privacy it is the raw mean (2). Under local trust
with Gaussian noise, d sigma^2 is subtracted (6). Where only sums are released, the sum of squared
norms carries noise of its own, which is accounted for (7). With PrivUnit, it follows from the
messages by Algorithm 5 (8). Under local trust the numerator follows from the messages: it costs
nothing towards the server, but a third party then sees more than the messages' sum.

`work` is the algorithm that the step is put over: FedAvg in the paper, any algorithm here. eta_g
multiplies the step that `work` proposes.

Deviations: max(1, .) everywhere, in (2) and (3) too, where without noise it holds by itself
(Jensen); no updates or a mean of exactly 0 give 1. naive=true is the biased step of eq. (3), for
figure 1. The paper's output, the average of the last two iterates, is average_last=2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dpfl_bench.algorithms.base import Algorithm, Local, Round, Sent

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedEXP:
    work: Algorithm
    naive: bool
    uses_norms: ClassVar[bool] = True

    @property
    def remembers(self) -> bool:
        return self.work.remembers

    def start(self, x: Tensor) -> Any:
        return self.work.start(x)

    def client(self, server: Any, memory: Tensor, local: Local) -> Tensor:
        return self.work.client(server, memory, local)

    def server(self, server: Any, sent: Sent, round: Round) -> Any:
        proposed = self.work.server(server, sent, round)
        return proposed._replace(x=server.x + self.step(sent) * (proposed.x - server.x))

    def remember(self, server: Any, memory: Tensor, sent: Sent, round: Round) -> Tensor:
        return self.work.remember(server, memory, sent, round)

    def step(self, sent: Sent) -> Tensor:
        """eta_g."""
        return self.estimate(sent).nan_to_num(nan=1.0, posinf=1.0).clamp(min=1.0)

    def estimate(self, sent: Sent) -> Tensor:
        """The ratio of which `step` takes the maximum with 1; below 0 where the noise's share, once
        it is subtracted, leaves less than nothing.
        """
        numerator = sent.naive_square_norm if self.naive else sent.mean_square_norm
        return numerator / sent.mean.square().sum()
