"""`server_momentum_of`: what the server's velocity is a sum of, where the learning rate decays;
both against a plain loop.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.federations import TINY, player_of, settings_of

from dpfl_bench.config.settings import Settings

ROUNDS, BETA, DECAY = 5, 0.8, 0.6


def settings(form: str, decay: float = DECAY) -> Settings:
    given = [o for o in TINY if not o.startswith("rounds=")]
    return settings_of(
        "algo=dp_fedavg", *given, f"rounds={ROUNDS}", "dtype=float64", f"lr_decay={decay}",
        f"server_momentum={BETA}", "server_lr=0.7",
        f"server_momentum_of={form}",
    )  # fmt: skip


def by_hand(made: Settings, factor: float) -> list[torch.Tensor]:
    """v <- factor v + step, x <- x + server_lr v, with each round's step by a server that has
    neither.
    """
    played = player_of(replace(made, server_momentum=0.0, server_lr=1.0))
    state, velocity, ends = played.start, torch.zeros_like(played.start.server.x), []
    for index in range(ROUNDS):
        moved, _ = played.play(state, played.schedule.round(index))
        velocity = factor * velocity + (moved.server.x - state.server.x)
        x = state.server.x + made.server_lr * velocity
        state = replace(moved, server=moved.server._replace(x=x))
        ends.append(x)
    return ends


@pytest.mark.parametrize(("form", "factor"), [("step", BETA), ("direction", BETA * DECAY)])
def test_each_form_is_its_plain_loop(form: str, factor: float) -> None:
    made = settings(form)
    found = [state.server.x for state in player_of(made).states()]
    for x, expected in zip(found, by_hand(made, factor), strict=True):
        torch.testing.assert_close(x, expected, rtol=1e-12, atol=1e-12)
    other = by_hand(made, BETA * DECAY if form == "step" else BETA)  # the control
    assert (found[-1] - other[-1]).norm() > 1e-3 * found[-1].norm()


def test_directions_keep_the_units_of_the_learning_rate() -> None:
    """v / lr_t is the heavy ball's sum of steps / lr: old ones are not weighed by the larger
    learning rate that they had.
    """
    played = player_of(settings("direction"))
    steps, velocities = [], []
    state = played.start
    for index in range(ROUNDS):
        round = played.schedule.round(index)
        before = torch.zeros_like(state.server.x) if state.velocity is None else state.velocity
        state, _ = played.play(state, round)
        assert state.velocity is not None
        steps.append((state.velocity - BETA * DECAY * before) / round.lr)
        velocities.append(state.velocity / round.lr)
    for index, velocity in enumerate(velocities):
        expected = sum(
            (BETA ** (index - j) * step for j, step in enumerate(steps[: index + 1])),
            torch.zeros_like(velocity),
        )
        torch.testing.assert_close(velocity, expected, rtol=1e-10, atol=1e-12)


def test_without_decay_they_are_one() -> None:
    first, other = (player_of(settings(form, 1.0)).x() for form in ("step", "direction"))
    assert torch.equal(first, other)
