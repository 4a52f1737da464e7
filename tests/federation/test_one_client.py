"""One client's features times 100: finite data, on which its own least squares overflow in a few
local steps. No run may end by that.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.federations import Played, player_on, settings_of

from dpfl_bench.data.records import Records
from dpfl_bench.experiment.train import rounds

pytestmark = pytest.mark.one_in(3)


CLIENTS, RECORDS, FEATURES = 50, 4, 5
WAYS = {
    "secagg": ("privacy=secagg",),
    "local": ("privacy=local",),
    "central": ("privacy=central",),
    "normalised": ("privacy=secagg", "privacy.bound=normalise"),
    "PrivUnit": ("privacy=local", "privacy.mechanism=privunit"),
}


def played(way: str, factor: float, seed: int) -> Played:
    settings = settings_of(
        "algo=dp_fedavg", *WAYS[way], f"clients={CLIENTS}", f"seed={seed}", "model=linreg",
        f"dataset.shape=[{FEATURES}]",
        "dataset.classes=0", "dataset.standardise=none", "partition=iid", "lr=0.1", "rounds=3",
        "local_steps=20", "eps=2", "device=cpu",
    )  # fmt: skip
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(CLIENTS * RECORDS, FEATURES)).astype(np.float32)
    y = (x @ np.arange(FEATURES)).astype(np.float32)
    x[:RECORDS] *= factor
    records = Records(x, y, x[:0], y[:0], None, 0, "test", None)
    return player_on(settings, records, list(np.arange(len(y)).reshape(CLIENTS, RECORDS)))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_overflows_ends_no_run(way: str) -> None:
    """Diverged in 40 of 40 runs, and in none without that client's factor: whoever saw the status
    knew.
    """
    for seed in range(8):
        for factor, blanked in ((1.0, 0), (100.0, 1)):
            made = played(way, factor, seed)
            ends = list(rounds(made.player, made.schedule, made.start, 0))
            assert len(ends) == 3
            assert [diagnostics.blanked for _, _, diagnostics in ends] == [blanked] * 3
            assert all(torch.isfinite(state.server.x).all() for _, state, _ in ends)
