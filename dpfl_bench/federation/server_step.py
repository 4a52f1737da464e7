"""The server's step: the algorithm proposes the next model, server_lr and server_momentum act on
the step that it proposes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Algorithm, Sent, Server
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.federation.local import Optimiser
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.machine import device


def server_step(
    algorithm: Algorithm, optimiser: Optimiser, state: TrainingState, sent: Sent, round: PlannedRound
) -> tuple[Server, Tensor | None]:
    """The server's next state, and its next velocity (d,), None without server momentum.

    state: of the round's beginning. sent: what passed the doors.
    """
    proposed = algorithm.server(state.server, sent, round)
    velocity = state.velocity
    if velocity is not None or optimiser.server_lr != 1:
        direction = proposed.x - state.server.x
        if velocity is not None:
            momentum = optimiser.server_momentum * optimiser.server_momentum_decay
            velocity = direction = momentum * velocity + direction
        proposed = proposed._replace(x=state.server.x + optimiser.server_lr * direction)
    return proposed, velocity


def step_factor(algorithm: Algorithm, sent: Sent) -> Tensor | float:
    """The algorithm's own factor of its step, where it has one (`step`, FedEXP); else 1."""
    step = getattr(algorithm, "step", None)
    factor: Tensor | float = 1.0 if step is None else step(sent)
    return factor


def step_estimates(
    algorithm: Algorithm, passage: SendPassage, sent: Sent
) -> tuple[Tensor | float, Tensor | float]:
    """Two diagnostics of `fedexp`'s figure 1, at client level: eta_target of eq. (5), and the
    algorithm's own estimate of it before max(1, .) (`estimate`), NaN where it has none.

    passage: of a round that has ended. sent: what came out. eta_target = mean |Delta_i|^2 /
    |c-bar|^2: the updates after bounding and without noise over the mean that was released, with
    its noise. Without noise towards the server nobody may know it. NaN where that mean is 0.
    """
    estimate = getattr(algorithm, "estimate", None)
    ours = float("nan") if estimate is None else estimate(sent)
    if not passage.norms:
        return float("nan"), ours
    wide = device.wide(sent.mean.device)
    norms, clip = torch.cat(passage.norms).to(wide), passage.clip
    if passage.door.bound == "clip":
        norms = norms.clamp(max=clip)
    elif passage.door.bound == "normalise":
        norms = torch.full_like(norms, clip)
    mean_square = norms.square().sum() / passage.round.divisor
    return mean_square / sent.mean.to(wide).square().sum(), ours
