"""The server's step: the algorithm proposes the next model, server_lr and server_momentum act on
the step that it proposes.
"""

from __future__ import annotations

from torch import Tensor

from dpfl_bench.algorithms.base import Algorithm, Sent, Server
from dpfl_bench.federation.local import Optimiser
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.state import TrainingState


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


def step_factor(algorithm: Algorithm, optimiser: Optimiser, sent: Sent) -> float:
    """server_lr times the algorithm's own factor, where it has one (`step`, FedEXP)."""
    step = getattr(algorithm, "step", None)
    return optimiser.server_lr * (float(step(sent)) if step is not None else 1.0)


def step_estimate(algorithm: Algorithm, sent: Sent) -> float:
    """The algorithm's estimate of its own factor before max(1, .) (`estimate`, FedEXP); NaN where
    it has none.
    """
    estimate = getattr(algorithm, "estimate", None)
    return float("nan") if estimate is None else float(estimate(sent))
