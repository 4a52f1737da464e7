"""signal_norm and noise_norm: of the mean bounded update, and of what the release differs from it
by.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.federations import TINY, Played, player_of, settings_of

from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.diagnostics import Diagnostics
from dpfl_bench.privacy import noise_draws

pytestmark = pytest.mark.one_in(2)

NEIGHBOURS = "privacy.neighbours=add_remove_one"
FEDAVG = (*TINY, "algo=dp_fedavg", "privacy.clip=0.05", "dtype=float64")


def first_round(*overrides: str) -> tuple[Played, torch.Tensor, Diagnostics]:
    """The step of the first round, and its facts."""
    played = player_of(settings_of(*FEDAVG, *overrides))
    begin = played.start.server.x.clone()
    after, facts = played.player.play(played.start, played.schedule.round(0), Alone(played.player))
    return played, after.server.x - begin, facts


SILENT = ("eps=inf", "privacy.bound_without_noise=true")


@pytest.mark.parametrize("trust", ["local", "secagg", "central"])
@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_the_step_is_signal_plus_noise(trust: str, noise: str) -> None:
    """The signal is the step of the same round without noise; the noise is the difference."""
    given = (f"privacy={trust}", "sampled_clients=7")
    _, clean, silent = first_round(*given, *SILENT)
    played, step, facts = first_round(*given, f"privacy.noise={noise}")
    signal, noised = facts.signal_and_noise()
    near = 1e-9 if noise == "gaussian" else 1e-3  # bounded updates are rounded to the noise's grid
    assert signal == pytest.approx(clean.norm().item(), rel=near)
    assert noised == pytest.approx((step - clean).norm().item(), rel=near)
    assert played.player.send_door.noisy_messages == (trust != "central")
    assert silent.signal_and_noise()[0] == pytest.approx(clean.norm().item(), rel=1e-12)
    assert math.isnan(silent.signal_and_noise()[1]), "no noise, no norm of it"


def test_the_servers_noise_is_the_one_that_was_drawn() -> None:
    """From its generator, not by a difference: z C N(0, I) / cohort."""
    played, _, facts = first_round("privacy=central")
    std = played.job.budget.noise.ratio * 0.05
    drawn = noise_draws.server_gaussian(0, 0, played.job.problem.dimension, std, np.float64)
    assert facts.signal_and_noise()[1] == pytest.approx(float(np.linalg.norm(drawn)) / 10, rel=1e-9)


def test_privunit_counts_as_noise() -> None:
    eps = [f"privacy.eps{k}=3" for k in range(3)]
    overrides = [o for o in FEDAVG if "noise_multiplier" not in o]
    played = player_of(settings_of(*overrides, "privacy=local", "privacy.mechanism=privunit", *eps))
    begin = played.start.server.x.clone()
    after, facts = played.play(played.start, played.schedule.round(0))
    signal, noise = facts.signal_and_noise()
    _, clean, _ = first_round("privacy=local", *SILENT)
    assert signal == pytest.approx(clean.norm().item(), rel=1e-9)
    assert noise == pytest.approx((after.server.x - begin - clean).norm().item(), rel=1e-9)


def test_normalised_updates() -> None:
    """Each has norm C, so their mean is no longer than C."""
    _, clean, _ = first_round("privacy=central", "privacy.bound=normalise", *SILENT)
    _, _, facts = first_round("privacy=central", "privacy.bound=normalise")
    assert facts.signal_and_noise()[0] == pytest.approx(clean.norm().item(), rel=1e-9)
    assert facts.signal_and_noise()[0] <= 0.05


def test_record_level_has_neither() -> None:
    """What is sent there has the noise in it already."""
    _, _, facts = first_round("privacy=record")
    assert np.isnan(facts.signal_and_noise()).all()


def test_open_doors_have_a_signal_alone() -> None:
    _, step, facts = first_round("eps=inf")
    signal, noise = facts.signal_and_noise()
    assert signal == pytest.approx(step.norm().item(), rel=1e-12)
    assert math.isnan(noise)


def test_an_empty_cohort_has_no_signal() -> None:
    """Under central trust it has the server's noise."""
    overrides = (
        *(o for o in FEDAVG if not o.startswith("rounds")),
        "rounds=30",
        "privacy=central",
        NEIGHBOURS,
    )
    played = player_of(settings_of(*overrides, "client_sampling=poisson", "sampled_clients=2"))
    empty = [k for k in range(30) if not len(played.schedule.cohort(k))]
    _, facts = played.play(played.start, played.schedule.round(empty[0]))
    signal, noise = facts.signal_and_noise()
    assert signal == 0
    assert noise > 0
    assert math.isnan(facts.norm_of(0))


def test_one_clients_norm() -> None:
    """Before bounding, whatever the chunks; none where it is not in the cohort."""
    played, _, facts = first_round("sampled_clients=7", "engine.chunk=2")
    _, _, whole = first_round("sampled_clients=7")
    cohort = played.schedule.cohort(0)
    norms = [facts.norm_of(client) for client in range(10)]
    assert [client for client in range(10) if not math.isnan(norms[client])] == cohort.tolist()
    assert np.nanmean(norms) == pytest.approx(facts.update_norm, rel=1e-12)
    assert norms == pytest.approx([whole.norm_of(client) for client in range(10)], rel=1e-9, nan_ok=True)
    assert len({round(norm, 9) for norm in norms if not math.isnan(norm)}) == 7, "all differ"
