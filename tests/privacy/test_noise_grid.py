"""`privacy.noise=discrete`: whole multiples of a grid, normal to the eye, added exactly; and what a
float's last bits tell without it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.command import QUICK, call, metrics, read
from helpers.federations import TINY, Played, player_of, settings_of
from scipy import stats
from torch import Tensor

from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import train
from dpfl_bench.federation.doors.quantile import Quantile
from dpfl_bench.federation.doors.send import SendDoor
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.workers import Workers
from dpfl_bench.privacy import bounding, noise_grid
from dpfl_bench.privacy.ledger import Ledger

CLIENTS, DIMENSION, CLIP, NOISE = 6, 4096, 0.7, 1.5
ALL = PlannedRound(index=0, steps=1, lr=1.0, p=1.0, cohort=np.arange(CLIENTS), divisor=CLIENTS)
UPDATES = (
    torch.from_numpy(np.random.default_rng(0).normal(size=(CLIENTS, DIMENSION)))
    * torch.tensor([[0.0, 1e-3, 0.01, 1, 10, 1e6]]).T
)
FORMATS = [torch.float32, torch.float64]
TRUSTS = ["local", "secagg", "central"]


def door_of(trust: str, noise: str, **more: object) -> SendDoor:
    return SendDoor("clip", trust, NOISE, "own_message", 0, discrete=noise == "discrete", **more)  # type: ignore[arg-type]


def passed(
    door: SendDoor, updates: Tensor, order: tuple[int, ...] = tuple(range(CLIENTS))
) -> tuple[SendPassage, Tensor]:
    """One by one, and what is released."""
    passage = SendPassage(door, ALL, CLIP, torch.zeros_like(updates[0]))
    for client in order:
        passage.send(updates[client][None], np.array([client]))
    return passage, passage.sent(Ledger(CLIENTS)).mean


def std_of(trust: str) -> float:
    """Of one draw."""
    return NOISE * CLIP * (CLIENTS**-0.5 if trust == "secagg" else 1.0)


def whole(numbers: Tensor, grid: float) -> bool:
    return torch.equal(numbers / grid, (numbers / grid).round())


# the grid


@pytest.mark.parametrize("std", [1e-30, 0.3, 0.5, 1.0, 1.5, 4096.0, 1e20])
def test_the_spacing_is_a_power_of_two_far_below_the_noise(std: float) -> None:
    grid = noise_grid.spacing(std)
    assert math.frexp(grid)[0] == 0.5
    assert 2**12 <= std / grid < 2**13


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("trust", TRUSTS)
def test_what_is_released_lies_on_the_grid(trust: str, dtype: torch.dtype) -> None:
    grid, updates = noise_grid.spacing(std_of(trust)), UPDATES.to(dtype)
    for noise in ("discrete", "gaussian"):
        passage, mean = passed(door_of(trust, noise), updates)
        released = (mean if trust == "central" else passage.total / CLIENTS).double() * CLIENTS
        on_grid = torch.isclose(
            released / grid, (released / grid).round(), rtol=0, atol=1e-2 if dtype == torch.float32 else 1e-6
        )
        assert on_grid.all() == (noise == "discrete")
        if noise == "discrete":
            assert passage.total.dtype == torch.float64
            assert whole(passage.total, grid)


@pytest.mark.parametrize("trust", TRUSTS)
def test_the_order_of_clients_moves_no_bit(trust: str) -> None:
    """With Gaussian noise in float32 it does: the control."""
    for noise in ("discrete", "gaussian"):
        totals = [
            passed(door_of(trust, noise), UPDATES.float(), order)[0].total
            for order in [(0, 1, 2, 3, 4, 5), (5, 3, 1, 0, 2, 4)]
        ]
        assert torch.equal(*totals) == (noise == "discrete")


@pytest.mark.parametrize("dtype", FORMATS)
def test_no_message_grows(dtype: torch.dtype) -> None:
    """Each entry is rounded towards zero: the bound holds as it did, and a client moves a sum by 2C
    at most.
    """
    bounded = bounding.clip(UPDATES.to(dtype), CLIP).rows
    rounded = noise_grid.towards_zero(bounded, noise_grid.spacing(std_of("local")))
    assert (rounded.abs() <= bounded.double().abs()).all()
    assert (rounded * bounded >= 0).all()
    assert (bounded.double() - rounded).abs().max() < noise_grid.spacing(std_of("local"))
    assert (rounded.norm(dim=1) <= CLIP * (1 + 1e-6)).all()


# the noise


def fits(noise: np.ndarray, std: float) -> bool:
    """Kolmogorov and Smirnov's test, whose distance the grid of 4096 steps a deviation cannot show,
    and the second and fourth moments.
    """
    z = noise / std
    errors = np.sqrt(np.array([2, 96]) / len(z))
    moments = [abs((z**k).mean() - expected) for k, expected in ((2, 1), (4, 3))]
    return bool(stats.kstest(z, "norm").pvalue > 1e-6 and (moments < 5 * errors).all())


@pytest.mark.parametrize("trust", TRUSTS)
def test_the_noise_on_the_sum_is_normal(trust: str) -> None:
    """In shares, in messages, once: the standard deviation is the accountant's."""
    mean = passed(door_of(trust, "discrete"), torch.zeros(CLIENTS, 40_000, dtype=torch.float64))[1]
    std = NOISE * CLIP * (CLIENTS**0.5 if trust == "local" else 1.0)
    noise = (mean * CLIENTS).numpy()
    assert fits(noise, std)
    assert not fits(1.03 * noise, std)  # the controls
    assert not fits(noise + 0.05 * std, std)


def test_shares_add_up_to_a_rounded_draw_of_the_whole() -> None:
    """The docstring's identity, in numbers: the law of two rounded shares' sum is that of one
    rounded draw of the sum and a uniform.

    At a spacing as coarse as the shares' own deviation, where exp(-pi^2) = 5e-5 is what it may err
    by; at twice that it is visibly wrong.
    """

    def gap(deviation: float) -> float:
        points = np.arange(-40, 41)
        share = np.diff(stats.norm.cdf(np.append(points, 41) - 0.5, scale=deviation))
        both = np.convolve(share, share)[40:-40]
        u = (np.arange(2000) + 0.5) / 2000 - 0.5  # uniform on a cell
        edges = np.append(points, 41) - 0.5
        one = np.diff(stats.norm.cdf(edges[:, None] - u, scale=deviation * math.sqrt(2)).mean(1))
        return float(np.abs(both - one).sum() / 2)

    assert gap(1.0) < math.exp(-(math.pi**2))
    assert gap(0.3) > 1e-3  # the control: far too coarse


# the attack on the last bits


def candidates() -> tuple[Tensor, Tensor]:
    """Two neighbouring worlds: one client's update is one or the other."""
    worlds = np.random.default_rng(3).normal(size=(2, DIMENSION))
    return tuple(bounding.clip(torch.from_numpy(world)[None], CLIP).rows[0] for world in worlds)  # type: ignore[return-value]


def guess(released: Tensor, guesses: tuple[Tensor, Tensor]) -> int | None:
    """The world less which the release is a float32 number, nearly everywhere, as the other is
    nowhere.
    """
    shares = [
        ((left := released - world) == left.float().double()).double().mean().item() for world in guesses
    ]
    return int(np.argmax(shares)) if max(shares) > 0.1 > min(shares) else None


def test_a_release_of_float64_tells_no_world_by_its_last_bits() -> None:
    """By noise of 24 bits it did every time; now neither kind does."""
    worlds = candidates()
    for noise in ("gaussian", "discrete"):
        for seed in range(20):
            door = replace(door_of("local", noise), seed=seed)
            passage = SendPassage(
                door, replace(ALL, cohort=np.arange(1)), CLIP, torch.zeros(DIMENSION, dtype=torch.float64)
            )
            passage.send(worlds[seed % 2][None], np.arange(1))
            assert guess(passage.total, worlds) is None
    rights = 0
    for seed in range(20):  # the control: the noise as it was
        drawn = np.random.default_rng(seed).normal(0, NOISE * CLIP, DIMENSION).astype(np.float32)
        rights += guess(worlds[seed % 2] + torch.from_numpy(drawn).double(), worlds) == seed % 2
    assert rights == 20


def test_gaussian_noise_leaves_bits_that_the_grid_does_not() -> None:
    """A float64 sum has bits below the grid of its noise, which depend on the update; the discrete
    release has none in either world.
    """
    one, other = candidates()
    grid = noise_grid.spacing(NOISE * CLIP)
    for noise, clean in (("gaussian", False), ("discrete", True)):
        for world in (one, other):
            passage = SendPassage(
                door_of("local", noise),
                replace(ALL, cohort=np.arange(1)),
                CLIP,
                torch.zeros(DIMENSION, dtype=torch.float64),
            )
            passage.send(world[None], np.arange(1))
            assert whole(passage.total, grid) == clean


# companions


def test_the_sums_beside_it_lie_on_grids_too() -> None:
    door = door_of("secagg", "discrete", norm_noise=0.9, quantile=Quantile(0.5, 0.2, 3.0))
    passage = SendPassage(door, ALL, CLIP, torch.zeros(DIMENSION))
    passage.send(UPDATES.float(), np.arange(CLIENTS))
    grid = noise_grid.spacing(0.9 * CLIP**2)
    assert float(passage.squares) / grid == round(float(passage.squares) / grid)
    assert 0 <= float(passage.squares) <= CLIENTS * CLIP**2 * (1 + 1e-6)
    drawn = passage.noise.on_squares(CLIENTS, DIMENSION)
    assert drawn != 0
    assert drawn / grid == round(drawn / grid)
    bits = passage.noise.on_bits(3.0)
    assert bits / noise_grid.spacing(3.0) == round(bits / noise_grid.spacing(3.0))


# runs


def settings(*more: str) -> Settings:
    return settings_of(*TINY, "algo=dp_scaffold", "privacy.noise=discrete", "engine.chunk=2", *more)


def played(made: Settings, workers: int) -> list[bytes]:
    job: Played = player_of(made)
    if not workers:
        return [state.server.x.numpy().tobytes() for state in job.states()]
    with Workers(job.player, job.start, workers) as crew:
        return [
            state.server.x.numpy().tobytes()
            for _, state, _ in train.rounds(job.player, job.schedule, job.start, 0, crew)
        ]


@pytest.mark.parametrize("trust", TRUSTS)
def test_any_crew_gives_the_same_bits(trust: str) -> None:
    """Sums go between processes in float64: as float32 numbers they would lie on no grid."""
    memory = ("privacy.memory=own_update",) if trust == "central" else ()
    made = settings(f"privacy={trust}", *memory)
    alone = played(made, 0)
    assert played(made, 2) == alone
    assert len(set(alone)) == len(alone) > 1


def test_eps_is_that_of_the_gaussian_and_the_file_says_which_noise() -> None:
    found = {}
    for noise in ("gaussian", "discrete"):
        folder = call(
            "run", "algo=dp_fedavg", f"privacy.noise={noise}", "rounds=5", "local_steps=5", *QUICK
        ).folder
        found[noise] = read(folder, "privacy.json"), metrics(folder)
    (gaussian, one), (discrete, other) = found.values()
    assert (gaussian.pop("noise"), discrete.pop("noise")) == ("gaussian", "discrete")
    assert gaussian == discrete
    assert abs(one["test_error"].iloc[-1] - other["test_error"].iloc[-1]) < 0.1
    assert (one["train_loss"] != other["train_loss"])[1:].all()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("privacy=record",), "privacy.noise=discrete: acts on what a client sends"),
        (("privacy=local", "privacy.mechanism=privunit"), "privacy.noise=discrete: unused"),
        (
            ("privacy.calibration=fixed", "privacy.noise_multiplier=1e-15"),
            "is too small for 90 updates to be added up exactly",
        ),
    ],
)
def test_refusals(given: tuple[str, ...], told: str) -> None:
    said = call("run", "algo=dp_fedavg", "privacy.noise=discrete", *given, *QUICK)
    assert said.code == 2
    assert told in said.err
    assert len(said.err.strip().splitlines()) == 1
