"""What leaves the door: how much noise, whose, and how far one client can move the rest.

Every check of a standard deviation also rejects one that is 10 % off: with n numbers its relative
standard error is 1 / sqrt(2 n), and n = 4096 makes 5 of them 5.5 %.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from helpers.federations import TINY, player_of, settings_of
from torch import Tensor

from dpfl_bench import rng
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import privacy_record, report
from dpfl_bench.experiment.build_player import build_send_door
from dpfl_bench.federation.doors.send import SendDoor
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.privacy import bounding, noise_draws
from dpfl_bench.privacy.ledger import Ledger

pytestmark = pytest.mark.one_in(4)


CLIENTS, DIMENSION = 6, 4096
EVERYONE = np.arange(CLIENTS)
ALL = PlannedRound(index=0, steps=1, lr=1.0, p=1.0, cohort=EVERYONE, divisor=CLIENTS)
UPDATES = (
    torch.from_numpy(np.random.default_rng(0).normal(size=(CLIENTS, DIMENSION)))
    * torch.tensor([[0.0, 1e-3, 0.01, 1, 10, 1e6]]).T.double()
)


def settings_for(trust: str, *overrides: str) -> Settings:
    return settings_of(
        f"privacy={trust}",
        "privacy.clip=0.7",
        "clients=6",
        "privacy.calibration=fixed",
        "privacy.noise_multiplier=1.5",
        "algo=dp_fedavg",
        *overrides,
    )


def door_of(settings: Settings, seed: int = 0) -> tuple[SendDoor, float]:
    """The door that a run has, and the standard deviation that the accountant reads: noise
    multiplier times sensitivity.
    """
    budget = Budget.of(settings, drawn_schedules(settings))
    door = (
        player_of(settings).player.send_door
        if not settings.private and not settings.privacy.bound_without_noise
        else None
    )
    return door or build_send_door(settings, budget, seed), budget.noise_multiplier * (
        settings.privacy.sensitivity or 0.0
    )


@dataclass(frozen=True)
class Passed:
    messages: Tensor  # summed one by one, so what each sent
    own: Tensor
    norms: Tensor
    mean: Tensor


def passed(door: SendDoor, updates: Tensor = UPDATES, round: PlannedRound = ALL, clip: float = 0.7) -> Passed:
    """One round at the door."""
    each = []
    for row, client in zip(updates, round.cohort, strict=True):
        passage = SendPassage(door, round, clip, torch.zeros_like(updates[0]))
        passage.send(row[None], np.array([client]))
        each.append(passage.total)
    passage = SendPassage(door, round, clip, torch.zeros_like(updates[0]))
    own = passage.send(updates, round.cohort)
    assert torch.allclose(passage.total, torch.stack(each).sum(0))
    return Passed(torch.stack(each), own, torch.cat(passage.norms), passage.sent(Ledger(CLIENTS)).mean)


def off(noise: Tensor, std: float) -> float:
    """How many standard errors the empirical standard deviation (about zero, its known mean) is
    away from `std`.
    """
    return abs(noise.square().mean().sqrt().item() / std - 1) * math.sqrt(2 * noise.numel())


def check(noise: Tensor, std: float) -> None:
    assert noise.numel() >= 4096
    assert off(noise, std) < 5
    assert off(noise, 1.1 * std) > 5
    assert off(noise, 0.9 * std) > 5
    assert abs(noise.mean().item()) < 5 * std / math.sqrt(noise.numel())


# how much


@pytest.mark.parametrize("bound", ["clip", "normalise"])
@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_local_noise_of_each_message(bound: str, neighbours: str) -> None:
    door, std = door_of(settings_for("local", f"privacy.bound={bound}", f"privacy.neighbours={neighbours}"))
    assert std == pytest.approx(1.5 * 0.7 * {"replace_one": 2, "add_remove_one": 1}[neighbours])
    out = passed(door)
    for message, bounded in zip(out.messages, getattr(bounding, bound)(UPDATES, 0.7)[0], strict=True):
        check(message - bounded, std)
    assert torch.equal(out.own, out.messages)
    torch.testing.assert_close(out.mean, out.messages.sum(0) / CLIENTS)


def test_secagg_noise_of_each_share_and_of_their_sum() -> None:
    door, std = door_of(settings_for("secagg"))
    out, bounded = passed(door), bounding.clip(UPDATES, 0.7)[0]
    for message, update in zip(out.messages, bounded, strict=True):
        check(message - update, std / math.sqrt(CLIENTS))
    check(CLIENTS * out.mean - bounded.sum(0), std)
    assert torch.equal(out.own, bounded)
    few = replace(ALL, cohort=EVERYONE[:2], divisor=2)  # a smaller cohort's shares are larger
    shares = passed(door, UPDATES[:2], few).messages - bounded[:2]
    check(shares.sum(0), std)


def test_central_noise_once_on_the_sum() -> None:
    door, std = door_of(settings_for("central"))
    out, bounded = passed(door), bounding.clip(UPDATES, 0.7)[0]
    assert torch.equal(out.messages, bounded)
    check(CLIENTS * out.mean - bounded.sum(0), std)


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["local", "secagg", "central"])
def test_what_a_whole_round_released_has_the_noise_of_privacy_json(trust: str) -> None:
    """Through the run's own cohort and chunks: 18 parameters, so 300 rounds, each from the same
    state.
    """
    overrides = (
        f"privacy={trust}",
        "algo=dp_fedavg",
        "rounds=300",
        "engine.chunk=4",
        "dtype=float64",
        "server_lr=0.5",
    )
    settings = settings_of(*[o for o in TINY if o != "rounds=4"], *overrides)
    private = player_of(settings)
    open_door = player_of(
        replace(settings, eps=math.inf, privacy=replace(settings.privacy, bound_without_noise=True))
    )
    rounds = [private.schedule.round(k) for k in range(300)]
    same = open_door.play(open_door.start, rounds[0])[
        0
    ].server.x  # full batches: every round moves alike but for the noise
    ends = torch.stack([private.play(private.start, r)[0].server.x for r in rounds])
    record = privacy_record.privacy(private.job, None, report.guarantee(private.job, None))
    (release,) = record["releases"]
    sent = {
        "local": release["noise_std"] * math.sqrt(10),
        "secagg": release["noise_std"],
        "central": release["noise_std"],
    }[trust]
    check((ends - same) * 10 / 0.5, sent)
    assert private.start.ledger.rounds == release["rounds"] == 300


# whose


def correlated(one: np.ndarray, other: np.ndarray) -> bool:
    """Beyond 5 standard errors of the correlation of independent numbers, 1 / sqrt(n)."""
    return abs(np.corrcoef(one, other)[0, 1]) > 5 / math.sqrt(len(one))


def test_no_two_clients_rounds_or_seeds_share_noise() -> None:
    noise = {
        (seed, k, i): noise_draws.client_gaussian(seed, k, [i], DIMENSION, 1.0, np.float32)[0]
        for seed, k, i in itertools.product((0, 1, 2**40), (0, 1, 2), (0, 1, 2))
    }
    noise |= {
        (seed, k, "server"): noise_draws.server_gaussian(seed, k, DIMENSION, 1.0, np.float32)
        for seed in (0, 1)
        for k in (0, 1)
    }
    noise["lots"] = rng.generator(0, "lot", 0, 0).standard_normal(DIMENSION, dtype=np.float32)
    for (a, one), (b, other) in itertools.combinations(noise.items(), 2):
        assert not np.isin(one, other).mean() > 0.01, (
            f"{a} and {b} share numbers"
        )  # float32 values coincide now and then
        assert not correlated(one, other), f"{a} and {b}"
    # the control: a tenth of one client's noise in another's
    mixed = noise[0, 0, 0] + 0.1 * noise[0, 0, 1]
    assert correlated(mixed, noise[0, 0, 1])


def test_noise_of_a_client_does_not_depend_on_its_company() -> None:
    together = noise_draws.client_gaussian(0, 3, [4, 9, 2], 10, 1.0, np.float32)
    alone = [noise_draws.client_gaussian(0, 3, [i], 10, 1.0, np.float32)[0] for i in (4, 9, 2)]
    assert np.array_equal(together, np.stack(alone))


# bounds at the edges of the number format


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bound", ["clip", "normalise"])
@pytest.mark.parametrize("size", [0.0, 1e-40, 1e-30, 1e-3, 0.7, 1.0, 1e18, 1e30])
def test_every_update_is_bounded(size: float, bound: str, dtype: torch.dtype) -> None:
    direction = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 50))).to(dtype)
    bounded, norms, _ = getattr(bounding, bound)(direction * size, 0.7)
    assert torch.isfinite(bounded).all()
    assert not torch.isnan(norms).any()
    lengths = bounded.double().norm(dim=1)
    assert (lengths <= 0.7 * (1 + 1e-6)).all()
    if bound == "normalise":
        torch.testing.assert_close(lengths, torch.full_like(lengths, 0.7), rtol=1e-6, atol=0)


@pytest.mark.parametrize("bound", ["clip", "normalise"])
def test_large_updates_are_bounded(bound: str) -> None:
    """Of many small numbers, whose squares float32 drops one by one beside those of a few large
    ones.
    """
    update = torch.full((1, 2**24), 2.0**-12)
    update[0, :8] = 1
    bounded, norms, _ = getattr(bounding, bound)(update, 0.7)
    assert norms.item() == pytest.approx(3.0, rel=1e-6)
    assert bounded.double().norm().item() == pytest.approx(0.7, rel=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_normalise_keeps_the_direction(size: float) -> None:
    """Of updates whose squares under- or overflow in float32 too."""
    update = torch.tensor([[3.0, -4.0, 0.0]]) * size
    torch.testing.assert_close(bounding.normalise(update, 2.0)[0], torch.tensor([[1.2, -1.6, 0.0]]))


def test_normalise_of_nothing_is_the_constant_vector() -> None:
    bounded, norms, _ = bounding.normalise(torch.zeros(2, 16), 2.0)
    torch.testing.assert_close(bounded, torch.full((2, 16), 0.5))
    assert torch.equal(norms, torch.zeros(2))


def test_clip_leaves_what_is_short_enough_alone() -> None:
    updates = torch.tensor([[0.3, 0.4], [3.0, 4.0], [1e-30, 0.0]])
    bounded, norms, _ = bounding.clip(updates, 0.5)
    torch.testing.assert_close(bounded, torch.tensor([[0.3, 0.4], [0.3, 0.4], [1e-30, 0.0]]))
    torch.testing.assert_close(norms[:2], torch.tensor([0.5, 5.0]))


# open doors


@pytest.mark.parametrize("trust", ["local", "secagg", "central"])
def test_without_privacy_the_door_is_open(trust: str) -> None:
    door, _ = door_of(settings_for(trust, "eps=inf"))
    assert not door.private
    out = passed(door)
    assert torch.equal(out.messages, UPDATES)
    assert torch.equal(out.own, UPDATES)
    torch.testing.assert_close(out.mean, UPDATES.sum(0) / CLIENTS)


@pytest.mark.parametrize("trust", ["local", "secagg", "central"])
def test_the_bound_can_stay_without_noise(trust: str) -> None:
    door, _ = door_of(settings_for(trust, "eps=inf", "privacy.bound_without_noise=true"))
    assert not door.private
    out = passed(door)
    assert torch.equal(out.messages, bounding.clip(UPDATES, 0.7)[0])
    assert (out.norms > 0.7).any()
    torch.testing.assert_close(out.mean, out.messages.sum(0) / CLIENTS)
