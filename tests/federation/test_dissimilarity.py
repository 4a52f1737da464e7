"""The clients' gradients at one model against float64 sums over single records."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.command import call
from helpers.federations import TINY, player_of, settings_of

from dpfl_bench.federation import evaluation
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.crew import GradientSums
from dpfl_bench.federation.dissimilarity import dissimilarity, groups

UNEVEN = (*TINY, "algo=dp_fedavg", "partition=iid", "clients=7", "dataset.classes=2", "model.l2=0.1")


def by_hand(x: np.ndarray, features: np.ndarray, labels: np.ndarray, l2: float) -> np.ndarray:
    """The gradient of one client's logistic loss, (d,)."""
    chances = 1 / (1 + np.exp(-(features @ x)))
    return features.T @ (chances - labels) / len(labels) + l2 * x


@pytest.mark.parametrize("at_once", [2**18, 7])
def test_it_is_the_spread_of_the_clients_gradients(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of different sizes count alike; a client's records may come in several pieces."""
    monkeypatch.setattr(evaluation, "BATCH_NUMBERS", at_once)
    played = player_of(settings_of(*UNEVEN, "dtype=float64", "model.bias=false"))
    player, federation = played.player, played.player.federation
    x = torch.linspace(-1, 1, player.problem.dimension, dtype=torch.float64)
    ends = federation.offsets
    each = np.stack(
        [
            by_hand(
                x.numpy(),
                federation.features[a:b].flatten(1).numpy(),
                federation.targets[a:b].numpy(),
                player.problem.l2,
            )
            for a, b in itertools.pairwise(ends)
        ]
    )
    assert len(set(np.diff(ends))) > 1
    squares, mean = (each**2).sum(1).mean(), (each.mean(0) ** 2).sum()
    spread = ((each - each.mean(0)) ** 2).sum(1).mean()
    result = dissimilarity(Alone(player).gradients(x), federation.clients)
    assert result.difference == pytest.approx(squares - mean, rel=1e-12)
    assert result.difference == pytest.approx(spread, rel=1e-9)
    assert result.log_ratio == pytest.approx(math.log(squares / mean), rel=1e-12)


def test_equal_gradients_have_none() -> None:
    """Rounding makes it no negative number."""
    one = torch.linspace(0.1, 0.7, 11, dtype=torch.float64)
    sums = [GradientSums(3 * one, 3 * one.square().sum()) for _ in range(5)]
    result = dissimilarity(sums, 15)
    assert 0 <= result.difference < 1e-15
    assert result.log_ratio == pytest.approx(0, abs=1e-14)


def test_where_no_common_direction_is_left() -> None:
    one = torch.ones(4, dtype=torch.float64)
    result = dissimilarity([GradientSums(one - one, 2 * one.square().sum())], 2)
    assert result == (4.0, math.inf)


def test_every_client_is_in_one_group() -> None:
    player = player_of(settings_of(*UNEVEN)).player
    assert np.concatenate(groups(player.problem, player.federation)).tolist() == list(
        range(player.federation.clients)
    )


def test_a_network_s_gradient_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    played = player_of(settings_of(*TINY, "algo=dp_fedavg", "model=mlp", "dtype=float64"))
    x = played.start.server.x
    whole = dissimilarity(Alone(played.player).gradients(x), played.player.federation.clients)
    monkeypatch.setattr(evaluation, "BATCH_NUMBERS", 9)
    pieces = dissimilarity(Alone(played.player).gradients(x), played.player.federation.clients)
    assert pieces == pytest.approx(whole, rel=1e-10)


def test_a_run_writes_it_and_no_other_number_moves(tmp_path: Path) -> None:
    given = (*TINY, "algo=dp_fedavg", "eval_every=1", f"outputs={tmp_path}", "plot=false")
    plain, asked = (call("run", *given, *more).folder for more in ((), ("measure=[dissimilarity]",)))
    before, after = (table(folder) for folder in (plain, asked))
    assert plain != asked
    assert [{key: row[key] for key in before[0]} for row in after] == before
    assert all(float(row["dissimilarity"]) > 0 for row in after)
    assert all(float(row["log_dissimilarity"]) > 0 for row in after)


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))
