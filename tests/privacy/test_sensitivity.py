"""How far one client's data move what a round releases, before the noise: at most what the
accountant was told, and nearly that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.federations import Played, player_on, settings_of

from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.config.settings import Settings
from dpfl_bench.data.records import Records
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.privacy import noise_draws

pytestmark = pytest.mark.one_in(4)


CLIENTS, RECORDS, FEATURES = 7, 4, 5
CLIP = 0.8
ROUNDING = 1 + 1e-9


@pytest.fixture
def _silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of zeros, through a door that is private all the same."""
    monkeypatch.setattr(
        noise_draws,
        "client_gaussian",
        lambda seed, round, clients, d, std, dtype: np.zeros((len(clients), d)),
    )
    monkeypatch.setattr(noise_draws, "server_gaussian", lambda seed, round, d, std, dtype: np.zeros(d))


def settings_for(algo: str, bound: str, trust: str, *overrides: str) -> Settings:
    return settings_of(
        f"algo={algo}", f"privacy.bound={bound}", f"privacy={trust}", f"privacy.clip={CLIP}",
        f"clients={CLIENTS}",
        "model=linreg", "dataset.classes=0", "partition=iid",
        "lr=0.5", "rounds=1", "local_steps=3", "dtype=float64", "device=cpu", "privacy.calibration=fixed",
        "privacy.noise_multiplier=1", *overrides,
    )  # fmt: skip


def prepared(settings: Settings, x: np.ndarray, y: np.ndarray) -> Played:
    """x: (clients, n, d), y: (clients, n)."""
    flat = x.reshape(-1, FEATURES).astype(np.float32)
    records = Records(flat, y.reshape(-1).astype(np.float32), flat[:0], y[0, :0], None, 0, "test", None)
    return player_on(settings, records, list(np.arange(len(flat)).reshape(CLIENTS, -1)))


def released(settings: Settings, x: np.ndarray, y: np.ndarray, without: int | None = None) -> torch.Tensor:
    """The cohort's sum in the first round. `without`: that client falls silent, cohort size and
    divisor stay.
    """
    played = prepared(settings, x, y)
    assert played.player.send_door.private
    round: PlannedRound = played.schedule.round(0)
    if without is not None:
        round = replace(round, cohort=np.delete(round.cohort, without))
    end = played.play(played.start, round)[0].server.x
    scale = -settings.lr if settings.algo["name"] == "dp_normfedavg" else 1.0
    return (end - played.start.server.x) / scale * CLIENTS


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(CLIENTS, RECORDS, FEATURES)), draw.normal(size=(CLIENTS, RECORDS))


def accounted(settings: Settings) -> float:
    budget = Budget.of(settings, drawn_schedules(settings))
    return budget.noise.std / budget.noise_multiplier


ALGORITHMS = ["dp_fedavg", "dp_normfedavg", "dp_scaffnew"]
TRUSTS = ["local", "secagg", "central"]


@pytest.mark.usefixtures("_silence")
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("bound", ["clip", "normalise"])
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_replacing_a_client(algo: str, bound: str, trust: str) -> None:
    """Targets of 1e9 and -1e9 pull with all their might, one way and the other: 2C, and no
    further.
    """
    settings = settings_for(algo, bound, trust, "privacy.neighbours=replace_one", "privacy.memory=own_update")
    (x, y), worst = data(), accounted(settings)
    assert worst == 2 * CLIP
    mighty = y.copy()
    mighty[2] = 1e9
    opposite = mighty.copy()
    opposite[2] = -1e9
    moved = (released(settings, x, mighty) - released(settings, x, opposite)).norm().item()
    assert 0.9 * worst <= moved <= worst * ROUNDING
    for seed in range(1, 6):  # any other data in its place
        other_x, other_y = data(seed)
        x_of, y_of = x.copy(), y.copy()
        x_of[2], y_of[2] = 10.0**seed * other_x[2], 10.0 ** (2 * seed) * other_y[2]
        assert (released(settings, x, y) - released(settings, x_of, y_of)).norm().item() <= worst * ROUNDING


@pytest.mark.usefixtures("_silence")
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("bound", ["clip", "normalise"])
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_silencing_a_client(algo: str, bound: str, trust: str) -> None:
    settings = settings_for(
        algo, bound, trust, "privacy.neighbours=add_remove_one", "privacy.memory=own_update"
    )
    (x, y), worst = data(), accounted(settings)
    assert worst == CLIP
    mighty = y.copy()
    mighty[2] = 1e9
    moved = (released(settings, x, mighty) - released(settings, x, mighty, without=2)).norm().item()
    assert 0.9 * worst <= moved <= worst * ROUNDING
    assert (released(settings, x, y) - released(settings, x, y, without=2)).norm().item() <= worst * ROUNDING


@pytest.mark.usefixtures("_silence")
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_check_sees_an_open_door(algo: str) -> None:
    """The control: without the bound the same data move the sum a billion times further."""
    settings = settings_for(algo, "clip", "secagg")
    huge = replace(settings, privacy=replace(settings.privacy, clip=1e12))
    x, y = data()
    mighty = y.copy()
    mighty[2] = 1e9
    assert (released(huge, x, mighty) - released(huge, x, -mighty)).norm().item() > 1e6 * accounted(settings)


# an empty cohort


def test_an_empty_poisson_cohort_releases_the_servers_noise() -> None:
    """A third party must not see that nobody came: under a trusted server the noise comes all the
    same, and is recorded.
    """
    settings = settings_for(
        "dp_fedavg",
        "clip",
        "central",
        "privacy.neighbours=add_remove_one",
        "client_sampling=poisson",
        "sampled_clients=2",
    )
    played = prepared(settings, *data())
    nobody = replace(played.schedule.round(0), cohort=np.arange(0))
    state, diagnostics = played.play(played.start, nobody)
    noise = noise_draws.server_gaussian(settings.seed, 0, FEATURES, played.job.budget.noise.std, np.float64)
    np.testing.assert_allclose(state.server.x.numpy(), noise / 2, rtol=1e-6)
    assert (state.ledger.rounds, state.ledger.taken.sum()) == (1, 0)
    assert np.isnan(diagnostics.clipped_fraction)


@pytest.mark.parametrize("trust", ["local", "secagg"])
def test_an_empty_cohort_has_nobody_to_send_noise(trust: str) -> None:
    settings = settings_for("dp_fedavg", "clip", trust, "client_sampling=poisson", "sampled_clients=2")
    played = prepared(settings, *data())
    state, _ = played.play(played.start, replace(played.schedule.round(0), cohort=np.arange(0)))
    assert torch.equal(state.server.x, played.start.server.x)
