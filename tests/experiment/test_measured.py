"""measure=[...]: one client, the training error, and where the iterates are."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.command import call, read
from helpers.federations import player_of, settings_of

from dpfl_bench.config import measures
from dpfl_bench.config.measures import DIRECTIONS
from dpfl_bench.experiment import measured
from dpfl_bench.federation.evaluation import mean_loss_of
from dpfl_bench.results.folder import METRICS

pytestmark = pytest.mark.one_in(2)

GIVEN = ("run", "dataset=breast_cancer", "total_steps=20", "local_steps=5", "eval_every=2", "plot=false")
QUADRATICS = (
    *(
        "run",
        "dataset=quadratics",
        "dataset.dimension=30",
        "dataset.rank=5",
        "dataset.clients=8",
        "clients=8",
    ),
    *(
        "model.init=near_optimum",
        "eps=inf",
        "rounds=4",
        "local_steps=3",
        "lr=.01",
        "eval_every=1",
        "plot=false",
    ),
)


def table(folder: Path, name: str = "metrics.csv") -> list[dict[str, str]]:
    with (folder / name).open() as file:
        return list(csv.DictReader(file))


def test_the_columns_are_there_when_asked_for() -> None:
    plain = call(*GIVEN, "outputs=plain").folder
    asked = call(*GIVEN, "measure=[train_error,client]", "outputs=asked").folder
    rows, more = table(plain), table(asked)
    extra = measures.columns(["client", "train_error"])
    assert list(rows[0]) == METRICS
    assert list(more[0]) == [*METRICS, *extra]
    assert [{k: row[k] for k in METRICS} for row in more] == rows, "measuring changes no other number"
    assert [row["client_norm"] == "" for row in more] == [True, False, False], "no update at round 0"
    assert all(row["client_train_loss"] and row["train_error"] for row in more)
    assert not (asked / "iterates.csv").exists()


def test_the_training_error_is_that_of_all_training_records() -> None:
    settings = settings_of(*GIVEN[1:])
    played = player_of(settings)
    folder = call(*GIVEN, "measure=[train_error]").folder
    finals = torch.load(folder / "checkpoint" / "final.pt", weights_only=True)
    federation = played.job.data.federation
    hits = (federation.features @ finals[0] > 0) == (federation.targets == 1)
    assert float(table(folder)[-1]["train_error"]) == pytest.approx(
        1 - hits.double().mean().item(), abs=1e-12
    )


@pytest.mark.parametrize("client", [0, 7])
def test_one_clients_loss(client: int) -> None:
    folder = call(*GIVEN, "measure=[client]", f"measured_client={client}", f"outputs=o{client}").folder
    federation = player_of(settings_of(*GIVEN[1:])).job.data.federation
    rows = slice(*federation.offsets[client : client + 2])
    x = torch.load(folder / "checkpoint" / "final.pt", weights_only=True)[0].double()
    outputs = federation.features[rows].double() @ x
    losses = torch.nn.functional.softplus(outputs) - federation.targets[rows] * outputs
    expected = losses.mean() + settings_of(*GIVEN[1:]).model["l2"] / 2 * x.square().sum()
    assert float(table(folder)[-1]["client_train_loss"]) == pytest.approx(expected.item(), rel=1e-5)


def test_all_clients_losses_have_the_mean_that_is_the_training_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a client's records are evaluated in pieces."""
    monkeypatch.setattr("dpfl_bench.federation.evaluation.BATCH_NUMBERS", 50)
    played = player_of(settings_of(*GIVEN[1:]))
    x = torch.linspace(-1, 1, played.job.problem.dimension)
    federation, problem = played.job.data.federation, played.job.problem
    losses = [mean_loss_of(problem, federation, x, client) for client in range(federation.clients)]
    from dpfl_bench.federation.evaluation import evaluate

    assert np.mean(losses) == pytest.approx(evaluate(problem, federation, x).train_loss, rel=1e-9)


# iterates


def test_iterates_are_projections_of_the_way_to_the_optimum() -> None:
    folder = call(*QUADRATICS, "measure=[iterates]", "repeats=2").folder
    rows, metrics = table(folder, "iterates.csv"), table(folder)
    assert [(row["seed"], row["round"]) for row in rows] == [(m["seed"], m["round"]) for m in metrics]
    assert len({row["d1"] for row in rows}) == len(rows)
    for row, measure in zip(rows, metrics, strict=True):
        along, across, distance = (float(v) for v in (row["along"], row["across"], measure["distance"]))
        assert np.hypot(along, across) == pytest.approx(distance, rel=1e-6)
    for first in (row for row in rows if row["round"] == "0"):
        assert float(first["across"]) == pytest.approx(0, abs=1e-6), "the first model is on the way"
        assert float(first["along"]) > 0
    finals = torch.load(folder / "checkpoint" / "final.pt", weights_only=True)
    played = player_of(settings_of(*QUADRATICS[1:]))
    assert played.job.reference is not None
    expected = measured.directions(30) @ (finals[1].double() - played.job.reference.x_star)
    last = [float(rows[-1][f"d{k}"]) for k in range(1, DIRECTIONS + 1)]
    assert last == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.slow
def test_without_an_optimum_the_model_itself_is_projected() -> None:
    given = (*GIVEN, "model=mlp", "measure=[iterates]")
    folder = call(*given).folder
    row = table(folder, "iterates.csv")[-1]
    x = torch.load(folder / "checkpoint" / "final.pt", weights_only=True)[0].double()
    assert (row["along"], row["across"]) == ("", "")
    assert float(row["d3"]) == pytest.approx((measured.directions(len(x))[2] @ x).item(), rel=1e-5)


@pytest.mark.parametrize("dimension", [1, 3, DIRECTIONS, 500])
def test_directions_are_orthonormal_and_the_same_for_all_runs(dimension: int) -> None:
    made = measured.directions(dimension)
    assert made.shape == (min(dimension, DIRECTIONS), dimension)
    assert torch.allclose(made @ made.T, torch.eye(len(made), dtype=made.dtype), atol=1e-12)
    measured.directions.cache_clear()
    assert torch.equal(measured.directions(dimension), made)


# no test set


def test_a_run_without_a_test_set_speaks_of_the_loss() -> None:
    said = call(*QUADRATICS, "repeats=2")
    last = table(said.folder)[-1]
    assert [last[name] for name in ("test_loss", "test_metric", "test_error")] == ["", "", ""]
    result = read(said.folder, "result.json")
    assert (result["test_error_mean"], result["test_loss_mean"], result["best_round"]) == (None, None, None)
    assert result["data"]["test"] == 0
    line = said.err.strip().splitlines()[-1]
    assert "test error" not in line
    gap = result["suboptimality_mean"]
    assert gap > 0
    assert line.endswith(
        f"training loss {result['train_loss_mean']:.4f} ± {result['train_loss_std']:.4f} over 2 seeds,"
        f" {gap:.4g} above the optimum"
    )
