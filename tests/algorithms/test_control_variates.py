"""What the controls of SCAFFOLD and the shifts of ScaffNew have to conserve, and that the two are
the same where they should be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.federations import TINY, Played, player_of, settings_of

pytestmark = pytest.mark.one_in(6)

WHERE = {
    "no-privacy": ("eps=inf",),
    "local": ("privacy=local",),
    "secagg-own-message": ("privacy.memory=own_message",),
    "secagg-own-update": ("privacy.memory=own_update",),
    "central-own-update": ("privacy=central", "privacy.memory=own_update"),
    "record": ("privacy=record",),
    "quantile": ("privacy=local", "privacy.quantile=0.5"),
}
ZERO_SUM = (
    "no-privacy",
    "local",
    "secagg-own-message",
    "record",
    "quantile",
)  # the others hold updates without their noise


def played(algo: str, *overrides: str, rounds: int = 8) -> Played:
    shared = [o for o in TINY if not o.startswith("rounds")]
    return player_of(
        settings_of(f"algo={algo}", *shared, f"rounds={rounds}", "dtype=float64", "lr=0.5", *overrides)
    )


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return ((one - other).norm() / other.norm()).item()


@pytest.mark.parametrize("where", WHERE)
def test_scaffold_with_every_client_is_scaffnew(where: str) -> None:
    """Constant K and p = 1 / K: the same iterates, and h_i = c_i - c, whatever is remembered and
    wherever the noise is.
    """
    one, other = played("dp_scaffold", *WHERE[where]).states(), played("dp_scaffnew", *WHERE[where]).states()
    for mine, theirs in zip(one, other, strict=True):
        server: Any = mine.server
        assert apart(mine.server.x, theirs.server.x) < 1e-12
        assert mine.memory is not None
        assert theirs.memory is not None
        assert apart(mine.memory - server.c, theirs.memory) < 1e-11


def test_with_some_of_the_clients_they_differ() -> None:
    one, other = played("scaffold", "sampled_clients=4"), played("scaffnew", "sampled_clients=4")
    assert apart(one.x(), other.x()) > 1e-3


@pytest.mark.parametrize("cohort", [10, 4])
@pytest.mark.parametrize("where", WHERE)
def test_shifts_sum_to_zero_where_messages_are_remembered(where: str, cohort: int) -> None:
    sums = [
        (state.memory.sum(0).norm() / state.memory.norm()).item()
        for state in played("dp_scaffnew", *WHERE[where], f"sampled_clients={cohort}").states()
        if state.memory is not None
    ]
    assert len(sums) == 8
    if where in ZERO_SUM:
        assert max(sums) < 1e-13
    else:
        assert min(sums) > 1e-3  # the random walk of the noise


@pytest.mark.parametrize("cohort", [10, 4])
@pytest.mark.parametrize("algo", ["dp_scaffold", "dp_scaffold_warm", "dp_fedexp_scaffold"])
@pytest.mark.parametrize("where", ["no-privacy", "local", "secagg-own-message", "record"])
def test_the_servers_control_is_the_mean_of_the_clients(where: str, algo: str, cohort: int) -> None:
    """At every round, over partial cohorts too: a client's control survives the rounds in which it
    is absent.
    """
    overrides = [*WHERE[where], f"sampled_clients={cohort}"]
    if algo == "dp_scaffold_warm":
        overrides.append("algo.warm_rounds=3")
    if algo == "dp_fedexp_scaffold" and where == "record":
        overrides.append("algo.naive=true")
    run = played(algo, *overrides)
    before = torch.zeros(10, 18, dtype=torch.float64)
    for k, state in enumerate(run.states()):
        server: Any = state.server
        assert state.memory is not None
        torch.testing.assert_close(server.c, state.memory.mean(0), rtol=1e-11, atol=1e-13)
        absent = np.setdiff1d(np.arange(10), run.schedule.cohort(k))
        assert torch.equal(state.memory[absent], before[absent])
        before = state.memory
    assert (before != 0).any(1).all()  # in the end everybody has been drawn


@pytest.mark.parametrize("privacy", ["no-privacy", "record"])
def test_a_warm_start_estimates_every_control_and_leaves_the_model_alone(privacy: str) -> None:
    run = played("dp_scaffold_warm", *WHERE[privacy], "batch_size=4", "server_momentum=0.5")
    first = run.states()[0]
    assert torch.equal(first.server.x, run.start.server.x)
    assert first.velocity is not None
    assert not first.velocity.any()
    assert first.memory is not None
    # the mean of three gradients at x_0 of one client each; noised ones at record level
    draws = run.player.federation.batches(0, 0, np.arange(10), 3)
    x = run.start.server.x.expand(10, -1)
    means = torch.stack([run.player.problem.gradient(x, batch) for batch in draws]).mean(0)
    difference = (first.memory - means).norm().item()
    assert difference < 1e-12 if privacy == "no-privacy" else difference > 1e-2


def test_the_rounds_of_the_warm_start_are_in_the_ledger() -> None:
    run = played("dp_scaffold_warm", "algo.warm_rounds=3")
    ledgers = [(state.ledger.rounds, state.ledger.taken.max()) for state in run.states()]
    assert ledgers[-1] == (8, 8)
    assert run.job.budget.planned.worst == 8
