"""What control variates may be made of under secure aggregation: a counterexample, run through the
product's own engine.

Shifts that sum to zero and hold the clients' own noise shares make later sums reveal single
messages, because the others' shifts sum to minus one's own. The cohort's sums are then not
independent looks at one client: a test on four sums tells two neighbouring federations apart twice
as well as four looks through the sum's noise would allow. Shifts made of updates without the noise
do not leak: what a client remembers then is a function of its own data and of what everybody sees.
"""

import numpy as np
import pytest
import torch

from dpfl_bench.algorithms.scaffnew import ScaffNew
from dpfl_bench.data.records import Records
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.doors.send import SendDoor
from dpfl_bench.federation.local import Optimiser
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.privacy.accounting import epsilon
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.composition import Composition
from dpfl_bench.privacy.released.views import view
from dpfl_bench.problems.linear_problem import LinearProblem

CLIENTS, ROUNDS, RUNS = 60, 4, 100
CLIP, MULTIPLIER = (
    1.0,
    1.0,
)  # a share of the noise is small against C, so the others' updates are hardly clipped
CLAIMED_MU = ROUNDS**0.5 / MULTIPLIER  # four looks through the noise on the sum
STANDARD_ERROR = (2 / RUNS) ** 0.5 * (
    1 + CLAIMED_MU
)  # of the estimated distance in standard deviations, generously


def federation(sign: int) -> Federation:
    """One client pulls as hard as it can to one side; the losses of all others are flat. One
    parameter.
    """
    x = np.zeros((CLIENTS, 1), dtype=np.float32)
    y = np.zeros(CLIENTS, dtype=np.float32)
    x[0], y[0] = 1, sign * 1e6
    records = Records(x, y, x[:0], y[:0], np.arange(CLIENTS), 0, "counterexample", None)
    return Federation(
        records, [np.array([i]) for i in range(CLIENTS)], LotRule(), torch.device("cpu"), torch.float64
    )


def statistics(sign: int, memory: str) -> np.ndarray:
    """For each run: the weighted sum over rounds of what the observer sees move."""
    problem, everyone = LinearProblem(1, 0, False, 0.0), federation(sign)
    found = []
    for seed in range(RUNS):
        door = SendDoor("clip", "secagg", 2 * MULTIPLIER, memory, seed if sign > 0 else RUNS + seed)
        player = RoundPlayer(ScaffNew(), problem, everyone, Optimiser(), door, CLIENTS, door.seed, clip=CLIP)
        schedule = Schedule(door.seed, CLIENTS, CLIENTS, "full", (1,) * ROUNDS, 1.0, 0.5)
        state = player.start(torch.zeros(1, dtype=torch.float64))
        seen, x = 0.0, 0.0
        for t in range(ROUNDS):
            state, _ = player.play(state, schedule.round(t), Alone(player))
            seen += (t + 1 if memory == "own_message" else 1) * CLIENTS * (state.server.x.item() - x)
            x = state.server.x.item()
        found.append(seen)
    return np.array(found)


def distance(memory: str) -> float:
    """How many standard deviations apart the two federations look. mu-GDP allows at most mu."""
    one, other = statistics(1, memory), statistics(-1, memory)
    return abs(one.mean() - other.mean()) / np.sqrt((one.var(ddof=1) + other.var(ddof=1)) / 2)


@pytest.mark.slow
def test_shifts_of_noisy_messages_leak_through_later_sums():
    assert distance("own_message") > CLAIMED_MU + 5 * STANDARD_ERROR


@pytest.mark.slow
def test_shifts_of_updates_do_not():
    assert distance("own_update") < CLAIMED_MU + 5 * STANDARD_ERROR


def test_the_accountant_trusts_a_share_alone_where_shifts_hold_it():
    looks = Composition("gaussian", ROUNDS)
    for sums_only, multiplier in ((True, MULTIPLIER), (False, MULTIPLIER / CLIENTS**0.5)):
        releases = Releases(
            ROUNDS,
            CLIENTS,
            CLIENTS,
            "full",
            "secagg",
            "replace_one",
            ROUNDS,
            CLIENTS,
            sums_only,
            memoryless=False,
        )
        seen = view(releases, "server")
        assert seen is not None
        assert epsilon(seen, MULTIPLIER, 1e-5) == pytest.approx(epsilon(looks, multiplier, 1e-5))
