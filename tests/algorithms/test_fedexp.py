"""What the door tells FedEXP's step: unbiased where the paper's formula is, noised as accounted
for, biased where that is asked for.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.command import QUICK, call, metrics, read
from helpers.federations import settings_of

from dpfl_bench.algorithms.base import Sent
from dpfl_bench.algorithms.fedavg import FedAvg
from dpfl_bench.algorithms.fedexp import FedEXP
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.experiment.build_player import build_send_door
from dpfl_bench.federation import server_step
from dpfl_bench.federation.doors.send import SendDoor
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.privacy.ledger import Ledger

CLIENTS, DIMENSION, CLIP = 40, 30, 0.5
UPDATES = torch.from_numpy(np.random.default_rng(0).normal(size=(CLIENTS, DIMENSION))) * 0.06
TRUE = (UPDATES * (CLIP / UPDATES.norm(dim=1, keepdim=True)).clamp(max=1)).square().sum().item() / CLIENTS
ROUNDS = 400


def door_of(*overrides: str) -> tuple[SendDoor, Budget]:
    noise = (
        ()
        if "privacy.mechanism=privunit" in overrides
        else ("privacy.calibration=fixed", "privacy.noise_multiplier=0.8")
    )
    settings = settings_of(
        "algo=dp_fedexp",
        f"clients={CLIENTS}",
        f"privacy.clip={CLIP}",
        "rounds=1",
        "local_steps=1",
        *noise,
        *overrides,
    )
    budget = Budget.of(settings, drawn_schedules(settings))
    return build_send_door(settings, budget, 0), budget


def estimates(door: SendDoor, updates: torch.Tensor = UPDATES) -> tuple[np.ndarray, np.ndarray]:
    """(private estimates, naive ones) of the mean squared norm, over many rounds."""
    found = []
    for k in range(ROUNDS):
        everyone = np.arange(len(updates))
        passage = SendPassage(
            door,
            PlannedRound(k, 1, 1.0, 1.0, everyone, len(updates)),
            CLIP,
            torch.zeros(DIMENSION, dtype=torch.float64),
        )
        passage.send(updates, everyone)
        sent = passage.sent(Ledger(CLIENTS))
        found.append((sent.mean_square_norm.item(), sent.naive_square_norm.item()))
    private, naive = np.array(found).T
    return private, naive


def errors_off(values: np.ndarray, mean: float) -> float:
    return abs(values.mean() - mean) / (values.std(ddof=1) / math.sqrt(len(values)))


@pytest.mark.slow
def test_local_gaussian_is_debiased_by_d_sigma_squared() -> None:
    door, _ = door_of("privacy=local")
    private, naive = estimates(door)
    bias = DIMENSION * (0.8 * 2 * CLIP) ** 2
    assert errors_off(private, TRUE) < 5
    assert errors_off(naive, TRUE + bias) < 5
    assert errors_off(naive, TRUE) > 50  # what eq. (3) would take
    assert errors_off(private, TRUE + 0.1 * bias) > 5  # the control: 10 % of the correction


@pytest.mark.parametrize("trust", ["central", "secagg"])
@pytest.mark.parametrize("norm_noise", [None, 3.0])
def test_without_single_messages_the_sum_has_the_noise_that_is_accounted_for(
    trust: str, norm_noise: float | None
) -> None:
    rule = () if norm_noise is None else (f"privacy.norm_noise={norm_noise}",)
    door, budget = door_of(f"privacy={trust}", *rule)
    private, naive = estimates(door)
    (companion,) = budget.companions
    accounted = companion.noise_multiplier(0.8)
    assert accounted == pytest.approx(4 * DIMENSION / CLIENTS * 0.8**2 if norm_noise is None else 3 * 0.8)
    sigma = 0.8 * 2 * CLIP / math.sqrt(CLIENTS)  # of one client's share, as `fedexp` counts
    expected = DIMENSION * sigma**2 / CLIENTS if norm_noise is None else 3 * 0.8 * CLIP**2 / CLIENTS
    assert expected == pytest.approx(accounted * CLIP**2 / CLIENTS)  # sensitivity C^2 of the sum
    assert errors_off(private, TRUE) < 5
    assert abs(private.std(ddof=1) / expected - 1) < 5 / math.sqrt(2 * ROUNDS)
    assert abs(private.std(ddof=1) / (1.3 * expected) - 1) > 5 / math.sqrt(2 * ROUNDS)
    assert (naive == 0).all()  # nobody sees single messages


@pytest.mark.slow
def test_privunit_never_overestimates_on_average() -> None:
    door, _ = door_of(
        "privacy=local",
        "privacy.mechanism=privunit",
        "privacy.calibration=fixed",
        "privacy.eps0=3",
        "privacy.eps1=4",
        "privacy.eps2=3",
        "dataset.shape=[30]",
    )
    private, naive = estimates(door)
    assert private.mean() < TRUE + 5 * private.std(ddof=1) / math.sqrt(ROUNDS)
    assert private.mean() > TRUE - 0.2 * CLIP**2  # and not by much: the bound on the variance is nearly tight
    assert naive.mean() > 5 * TRUE


def test_the_step_is_at_least_one_and_defined_without_updates() -> None:
    def step(square: float, mean: torch.Tensor, naive: bool = False) -> float:
        sent = Sent(mean, mean[None], torch.tensor(square), torch.tensor(7.0))
        return FedEXP(FedAvg(), naive).step(sent).item()

    ones = torch.ones(4)
    assert step(8.0, ones) == 2.0
    assert step(-8.0, ones) == 1.0
    assert step(1.0, torch.zeros(4)) == step(0.0, torch.zeros(4)) == step(-1.0, torch.zeros(4)) == 1.0
    assert step(8.0, ones, naive=True) == 1.75


def test_orthogonal_updates_take_a_step_of_their_number() -> None:
    """Without privacy eq. (2) is M for orthogonal updates of one length."""
    door = SendDoor(None, "secagg", 0.0, "own_message", 0, norm_noise=0.0)
    everyone = np.arange(5)
    passage = SendPassage(door, PlannedRound(0, 1, 1.0, 1.0, everyone, 5), 0.0, torch.zeros(5))
    passage.send(0.3 * torch.eye(5), everyone)
    assert FedEXP(FedAvg(), naive=False).step(passage.sent(Ledger(5))).item() == pytest.approx(5.0)


def test_the_ledger_holds_the_sums_and_privacy_json_tells_them() -> None:
    folder = call("run", "algo=dp_fedexp", "eps=4", "rounds=3", "local_steps=2", *QUICK).folder
    told = read(folder, "privacy.json")
    kinds = {release["kind"]: release for release in told["releases"]}
    assert set(kinds) == {"update", "sum of squared norms"}
    assert kinds["sum of squared norms"]["rounds"] == 3
    assert 0.99 * 4 < told["eps"] <= 4
    # both releases together cost what the closed form says; the updates alone would have cost less
    z, norms = kinds["update"]["noise_multiplier"], kinds["sum of squared norms"]["noise_multiplier"]
    from dpfl_bench.privacy.divergences.gaussian import eps_of_gaussian

    assert told["eps"] == pytest.approx(eps_of_gaussian(math.sqrt(3 * (z**-2 + norms**-2)), 1e-5), rel=1e-9)
    steps = metrics(folder)["server_step"].dropna()
    assert (steps >= 1).all()
    assert steps.nunique() > 1


def test_the_output_is_the_average_of_the_last_iterates() -> None:
    shared = ("algo=dp_fedexp", "privacy=local", "rounds=6", "local_steps=2", "eval_every=1", *QUICK)
    last, mean = call("run", *shared).folder, call("run", *shared, "average_last=2").folder
    models = [torch.load(folder / "checkpoint" / "final.pt", weights_only=True)[0] for folder in (last, mean)]
    assert not torch.equal(*models)
    one, two = metrics(last), metrics(mean)
    assert one.loc[0, "train_loss"] == two.loc[0, "train_loss"]  # x_0 alone
    assert one["server_step"].equals(two["server_step"])  # the run itself is the same
    assert (one["train_loss"] != two["train_loss"]).sum() == 6


# eta_target of eq. (5), and the estimate before max(1, .)


def estimates_of(door: SendDoor, index: int, naive: bool = False) -> tuple[float, float, float, float]:
    """(target, estimate, the server's factor, |c-bar|^2) of one round."""
    everyone = np.arange(CLIENTS)
    round = PlannedRound(index, 1, 1.0, 1.0, everyone, CLIENTS)
    passage = SendPassage(door, round, CLIP, torch.zeros(DIMENSION, dtype=torch.float64))
    passage.send(UPDATES, everyone)
    sent, algorithm = passage.sent(Ledger(CLIENTS)), FedEXP(FedAvg(), naive)
    target, ours = server_step.step_estimates(algorithm, passage, sent)
    return target, ours, algorithm.step(sent).item(), sent.mean.square().sum().item()


@pytest.mark.parametrize("trust", ["privacy=local", "privacy=central", "privacy.mechanism=privunit"])
def test_the_target_has_no_noise_above_and_all_of_it_below(trust: str) -> None:
    pure = ("privacy=local", "eps=20") if "privunit" in trust else ()
    target, ours, factor, released = estimates_of(door_of(*pure, trust)[0], 0)
    assert target == pytest.approx(TRUE / released, rel=1e-12)
    assert factor == max(1.0, ours)
    assert ours != target


def test_the_estimate_shows_what_the_maximum_with_1_hides() -> None:
    rounds = [estimates_of(door_of("privacy=local")[0], k) for k in range(40)]
    ours = np.array([ours for _, ours, _, _ in rounds])
    assert ours.min() < 0 < 1 < ours.max()
    assert min(factor for _, _, factor, _ in rounds) == 1
    naive = np.array([estimates_of(door_of("privacy=local")[0], k, naive=True)[1] for k in range(40)])
    assert naive.min() > 10 * np.median([target for target, *_ in rounds])  # figure 1's point


def test_a_run_writes_them_where_they_are_asked_for() -> None:
    words = ("algo=dp_fedexp", "privacy=local", "rounds=3", "local_steps=2", "eval_every=1", *QUICK)
    asked, silent = call("run", *words, "measure=[target_step]").folder, call("run", *words).folder
    rows, without = metrics(asked), metrics(silent)
    assert set(rows.columns) - set(without.columns) == {"target_step", "step_estimate"}
    later = rows[rows["round"] > 0]
    assert (later["server_step"] == later["step_estimate"].clip(lower=1)).all()
    assert (later["target_step"] > 0).all()
    assert rows[without.columns].equals(without)  # the server never sees them


def test_an_algorithm_without_an_estimate_has_a_target_all_the_same() -> None:
    words = ("algo=fedavg", "rounds=1", "local_steps=1", "measure=[target_step]", *QUICK)
    row = metrics(call("run", *words).folder).iloc[-1]
    assert row["target_step"] >= 1  # Jensen: without noise and bound the mean is no longer than the updates
    assert math.isnan(row["step_estimate"])


def test_gradients_with_noise_in_them_leave_no_target() -> None:
    with pytest.raises(ConfigError, match=r"measure=\[target_step\]: expected updates without noise"):
        settings_of("algo=dp_fedavg", "privacy=record", "measure=[target_step]")
    settings_of("algo=fedavg", "privacy=record", "measure=[target_step]")
