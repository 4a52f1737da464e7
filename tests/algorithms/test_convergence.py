"""Where the algorithms end up: optima by closed form or scipy, and Theorem 1's potential against
its bound.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.federations import Played, player_of, player_on, settings_of
from oracles import reference as ref
from scipy.optimize import minimize
from torch import Tensor

from dpfl_bench.algorithms.base import Server
from dpfl_bench.config.settings import Settings
from dpfl_bench.data.records import Records
from dpfl_bench.experiment import measure, train
from dpfl_bench.federation import round_player
from dpfl_bench.federation.parts import Parts

L2 = 0.1
LOCAL_STEPS = 5
EXACT = (
    "device=cpu",
    "dtype=float64",
    "clients=8",
    "model=linreg",
    "dataset.classes=0",
    "partition=iid",
    f"model.l2={L2}",
    "rounds=400",
    f"local_steps={LOCAL_STEPS}",
)


def federation(x: np.ndarray, y: np.ndarray) -> tuple[Records, Parts]:
    """x: (clients, n, d), y: (clients, n)."""
    flat = x.reshape(-1, x.shape[2]).astype(np.float32)
    records = Records(flat, y.reshape(-1).astype(np.float32), flat[:0], y[0, :0], None, 0, "test", None)
    return records, list(np.arange(len(flat)).reshape(len(x), -1))


def least_squares() -> tuple[Records, Parts]:
    """Eight clients who disagree about both the curvature and the optimum."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(8, 12, 6)) * (0.4 + 0.2 * np.arange(8))[:, None, None]
    return federation(x, draw.normal(size=(8, 12)) + np.arange(8)[:, None])


def normal_equations(records: Records, parts: Parts) -> tuple[np.ndarray, np.ndarray]:
    """(M, d, d) and (M, d): client i's gradient at x is A_i x - b_i."""
    rows = [records.train_x[part].astype(np.float64) for part in parts]
    A = np.array([X.T @ X / len(X) + L2 * np.eye(X.shape[1]) for X in rows])
    b = np.array([X.T @ records.train_y[part] / len(X) for X, part in zip(rows, parts, strict=True)])
    return A, b


def fedavg_fixed_point(A: np.ndarray, b: np.ndarray, lr: float, steps: int) -> np.ndarray:
    """Local gradient descent on a quadratic is affine, x -> P_i x + q_i, and FedAvg's fixed point
    solves x = mean(P_i) x + mean(q_i).
    """
    eye = np.eye(b.shape[1])
    P = np.array([np.linalg.matrix_power(eye - lr * a, steps) for a in A])
    q = np.array([np.linalg.solve(a, (eye - p) @ c) for a, p, c in zip(A, P, b, strict=True)])
    return np.linalg.solve(eye - P.mean(axis=0), q.mean(axis=0))


@pytest.mark.slow
def test_scaffnew_reaches_the_optimum_where_fedavg_provably_stays_away() -> None:
    records, parts = least_squares()
    A, b = normal_equations(records, parts)
    optimum = np.linalg.solve(A.mean(axis=0), b.mean(axis=0))
    lr = 1 / max(np.linalg.eigvalsh(a)[-1] for a in A)
    fixed_point = fedavg_fixed_point(A, b, lr, LOCAL_STEPS)
    ends = {}
    for algo in ("scaffnew", "fedavg"):
        settings = replace(settings_of(f"algo={algo}", *EXACT), lr=lr)
        ends[algo] = player_on(settings, records, parts).x().numpy()
    assert np.linalg.norm(ends["scaffnew"] - optimum) < 1e-6
    # the same steps: FedAvg has converged, to a point that is a macroscopic way off, whatever the
    # number of rounds
    away = np.linalg.norm(fixed_point - optimum)
    assert away > 0.1
    assert np.linalg.norm(ends["fedavg"] - fixed_point) < 1e-9
    assert np.linalg.norm(ends["fedavg"] - optimum) > away - 1e-9


def test_one_local_step_of_fedavg_reaches_it_too() -> None:
    """The control: it is the local steps that keep FedAvg away."""
    records, parts = least_squares()
    A, b = normal_equations(records, parts)
    lr = 1 / max(np.linalg.eigvalsh(a)[-1] for a in A)
    settings = replace(settings_of("algo=fedavg", *EXACT), lr=lr, local_steps=1, total_steps=400)
    end = player_on(settings, records, parts).x().numpy()
    assert np.linalg.norm(end - np.linalg.solve(A.mean(axis=0), b.mean(axis=0))) < 1e-6


# what metrics.csv says about the way there


def test_distance_suboptimality_and_psi_agree_with_an_independent_optimum() -> None:
    small = (
        "clients=6",
        "rounds=4",
        "local_steps=3",
        "lr=2",
        "weight_decay=0.02",
        "dtype=float64",
        "device=cpu",
    )
    played = player_of(settings_of("algo=scaffnew", *small))
    data, decay = played.job.data, 0.01 + 0.02  # model.l2 + weight_decay
    clients = [
        (data.records.train_x[part].astype(np.float64), data.records.train_y[part]) for part in data.parts
    ]

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        pairs = [
            (ref.loss("binary", x, X, y, decay), ref.gradient("binary", x, X, y, decay)) for X, y in clients
        ]
        return float(np.mean([f for f, _ in pairs])), np.mean([g for _, g in pairs], axis=0)

    best = minimize(objective, np.zeros(30), jac=True, method="BFGS", options={"gtol": 1e-10})
    assert np.linalg.norm(best.jac) < 1e-8
    state = played.states()[-1]
    x, h = state.server.x.numpy(), state.memory.numpy()  # type: ignore[union-attr]
    row = measure.metrics_row(played.job, state, played.schedule, 4, None, 1.0)
    assert row["distance"] == pytest.approx(np.linalg.norm(x - best.x), rel=1e-6)
    assert row["suboptimality"] == pytest.approx(objective(x)[0] - best.fun, rel=1e-6)
    shifts = np.array([ref.gradient("binary", best.x, X, y, decay) for X, y in clients])
    psi = 6 * np.sum((x - best.x) ** 2) + (2 / (1 / 3)) ** 2 * np.sum((h - shifts) ** 2)
    assert row["psi"] == pytest.approx(psi, rel=1e-6)
    assert psi > 0.01  # there is something to compare


def trajectory(played: Played) -> tuple[np.ndarray, np.ndarray]:
    """psi and its bound after each round; no update was clipped, and the theorem's conditions
    hold.
    """
    job, schedule = played.job, played.schedule
    assert measure.theorem_gap(job) is None
    psi0 = measure.psi(job, played.start, schedule, 0)
    psi, bound = [], []
    for done, state, diagnostics in train.rounds(played.player, schedule, played.start, 0):
        assert diagnostics.clipped_fraction == 0
        psi.append(measure.psi(job, state, schedule, done))
        bound.append(measure.psi_bound(job, psi0, sum(schedule.steps[:done]), done))
    return np.array(psi), np.array(bound)


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_psi_stays_below_its_bound_without_noise(steps: int) -> None:
    records, parts = least_squares()
    A, _ = normal_equations(records, parts)
    settings = settings_of("algo=scaffnew", *EXACT)
    lr = (1 - 1e-9) / np.linalg.eigvalsh(A)[:, -1].max()
    settings = replace(settings, lr=lr, local_steps=steps, rounds=60, total_steps=60 * steps)
    psi, bound = trajectory(player_on(settings, records, parts))
    assert (psi <= bound).all()
    assert psi[-1] < 0.1 * psi[0]


# curvature of the data: with l2 = .1 one step forgets where it came from, and the theorem's bound
# is nearly tight
ISOTROPIC = 0.01
SEEDS, ROUNDS = 30, 20
NOISY = (
    "algo=dp_scaffnew",
    "privacy=local",
    "privacy.clip=1000",
    "privacy.calibration=fixed",
    "privacy.noise_multiplier=1e-4",
    *EXACT,
)


def noisy(settings: Settings, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """psi and bound, (SEEDS, ROUNDS) each; the noise is `factor` times what the bound is told."""
    draw = np.random.default_rng(5)
    x = np.stack([np.sqrt(12 * ISOTROPIC) * np.linalg.qr(draw.normal(size=(12, 6)))[0] for _ in range(8)])
    records, parts = federation(x, draw.normal(size=(8, 12)))
    settings = replace(
        settings, lr=0.999 / (ISOTROPIC + L2)
    )  # features are rounded to float32: stay below 1 / L
    found = []
    for seed in range(SEEDS):
        played = player_on(replace(settings, seed=seed), records, parts)
        door = replace(played.player.send_door, noise=factor * played.player.send_door.noise)
        short = replace(played.schedule, steps=played.schedule.steps[:ROUNDS])
        played = replace(played, player=replace(played.player, send_door=door), schedule=short)
        found.append(trajectory(played))
    return np.array([psi for psi, _ in found]), np.array([bound for _, bound in found])


def excess(psi: np.ndarray, bound: np.ndarray) -> float:
    """How many standard errors (over seeds, of the mean over rounds) psi lies above its bound; the
    first round is still the start's.
    """
    means = (psi / bound - 1)[:, 1:].mean(axis=1)
    return float(means.mean() / (means.std(ddof=1) / np.sqrt(SEEDS)))


@pytest.mark.slow
def test_psi_stays_below_its_bound_in_expectation_with_noise() -> None:
    settings = replace(settings_of(*NOISY), local_steps=1, rounds=ROUNDS, total_steps=ROUNDS)
    psi, bound = noisy(settings)
    assert excess(psi, bound) < 3
    assert psi.mean() > 0.8 * bound[:, 1:].mean()  # tight, so that 10 % more noise than was said shows
    assert excess(*noisy(settings, 1.1)) > 5


@pytest.mark.slow
def test_psi_stays_below_its_bound_in_expectation_over_coins() -> None:
    """A fixed number of heads is a stopping time: (psi - noise's part) / rho^t is a supermartingale
    up to it.
    """
    settings = replace(settings_of(*NOISY, "algo.coins=true"), local_steps=2, rounds=60, total_steps=120)
    psi, bound = noisy(settings)
    assert len({round(float(b), 9) for b in bound[:, 0]}) > 2  # the seeds' coins differ
    assert excess(psi, bound) < 3


def test_shifts_without_the_noise_are_no_theorem_1() -> None:
    records, parts = least_squares()
    settings = replace(settings_of(*NOISY, "privacy=secagg"), lr=0.01)
    gap = measure.theorem_gap(player_on(settings, records, parts).job)
    assert gap is not None
    assert "own_update" in gap
    told = replace(settings, privacy=replace(settings.privacy, memory="own_message"))
    assert measure.theorem_gap(player_on(told, records, parts).job) is None


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 15, -1])
def test_a_number_that_is_not_finite_ends_the_rounds(
    place: int, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a single one."""

    step = round_player.server_step

    def broken(*given: Any) -> tuple[Server, Tensor | None]:
        server, velocity = step(*given)
        server.x[place] = number
        return server, velocity

    monkeypatch.setattr(round_player, "server_step", broken)
    with pytest.raises(train.Diverged, match="round 1"):
        player_of(settings_of("algo=fedavg", "rounds=1", "device=cpu")).states()
