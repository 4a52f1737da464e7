"""Which records are scored, and in which rounds; and that no number of a run moves by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.command import QUICK, call, metrics, read
from helpers.federations import settings_of
from helpers.refusals import check, table

from dpfl_bench.experiment.job import prepare
from dpfl_bench.federation.evaluation import evaluate

RUN = (
    "run",
    "algo=dp_fedavg",
    "dataset=digits",
    "clients=20",
    "rounds=12",
    "local_steps=2",
    "eval_every=5",
    *QUICK,
)
OF_TRAINING = ["train_loss", "suboptimality"]


def rows(*overrides: str) -> pd.DataFrame:
    return metrics(call(*RUN, *overrides).folder)


def test_the_test_records_alone() -> None:
    both, test = rows(), rows("evaluate=test")
    assert test["train_loss"].isna().all()
    assert both["train_loss"].notna().all()
    left = [column for column in both if column not in OF_TRAINING]
    assert both[left].equals(test[left])
    result = read(call(*RUN, "evaluate=test").folder, "result.json")
    assert result["train_loss_mean"] is None
    assert result["scored"] == {"train": 0, "train_subset": None}


def test_no_pass_over_the_training_records(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpfl_bench.federation import evaluation

    passes: list[bool] = []
    scored = evaluation.scored_slice
    monkeypatch.setattr(evaluation, "scored_slice", lambda *a: (passes.append(a[3]), scored(*a))[1])
    rows("evaluate=test", "engine.workers=1")
    assert set(passes) == {True}
    rows("engine.workers=1")
    assert set(passes) == {True, False}


def test_a_subset_is_the_same_in_every_round_and_seed_and_is_recorded() -> None:
    whole, part = rows(), rows("train_subset=300")
    other = [column for column in whole if column not in OF_TRAINING]
    assert whole[other].equals(part[other])
    ran = read(call(*RUN, "train_subset=300").folder, "result.json")["scored"]
    assert (ran["train"], len(ran["train_subset"])) == (300, 16)
    again = read(call(*RUN, "train_subset=300", "eval_every=3", "seed=4").folder, "result.json")["scored"]
    assert again == ran
    assert read(call(*RUN, "train_subset=299").folder, "result.json")["scored"] != ran
    assert read(call(*RUN, "train_subset=300", "dataset.seed=1").folder, "result.json")["scored"] != ran


def test_the_loss_of_a_subset_is_of_those_records() -> None:
    """By hand, at some model: records of small clients weigh more, as in the objective."""
    job = prepare(settings_of(*RUN[1:], "train_subset=300", "partition=dirichlet"))
    federation = job.data.federation
    assert federation.scored is not None
    chosen = federation.scored.numpy()
    assert len(set(chosen.tolist())) == 300
    x = torch.from_numpy(np.random.default_rng(0).normal(size=job.problem.dimension)).float()
    losses = job.problem.losses(x, federation.features[chosen], federation.targets[chosen]).losses.numpy()
    owners = np.repeat(np.arange(20), federation.sizes)
    weights = 1 / federation.sizes[owners[chosen]]
    assert weights.std() > 0
    loss = (weights * losses).sum() / weights.sum() + job.problem.l2 / 2 * float((x**2).sum())
    assert evaluate(job.problem, federation, x).train_loss == pytest.approx(loss, rel=1e-6)
    federation.scored = None
    assert evaluate(job.problem, federation, x).train_loss != pytest.approx(loss, rel=1e-3)


@pytest.mark.parametrize("workers", [1, 2])
def test_all_records_as_a_subset_are_all_records(workers: int) -> None:
    count = read(call(*RUN).folder, "result.json")["scored"]["train"]
    whole, part = rows(), rows(f"train_subset={count}", f"engine.workers={workers}")
    assert part["train_loss"].to_numpy() == pytest.approx(whole["train_loss"].to_numpy(), rel=1e-9)


def test_an_estimate_is_near_and_is_none_of_the_objective() -> None:
    """The gap to the optimum needs the objective: of a part of the records it would be made up."""
    given = ("run", "algo=dp_scaffnew", "rounds=4", "local_steps=5", *QUICK)
    whole, part = (metrics(call(*given, *more).folder) for more in ((), ("train_subset=200",)))
    assert part["suboptimality"].isna().all()
    assert whole["suboptimality"].notna().all()
    assert part["distance"].equals(whole["distance"])
    losses = part["train_loss"].to_numpy()
    assert losses == pytest.approx(whole["train_loss"].to_numpy(), rel=0.3)
    assert (losses != whole["train_loss"].to_numpy()).any()


def test_the_last_rounds_are_evaluated_too() -> None:
    assert rows()["round"].tolist() == [0, 5, 10, 12]
    assert rows("eval_last=5")["round"].tolist() == [0, 5, 8, 9, 10, 11, 12]
    assert rows("eval_last=99")["round"].tolist() == list(range(13))
    usual, more = rows(), rows("eval_last=5")
    assert more[more["round"].isin([0, 5, 10, 12])].reset_index(drop=True).equals(usual)


def test_ids() -> None:
    usual = settings_of()
    for same in ("evaluate=all", "eval_last=1", "train_subset=null"):
        assert settings_of(same).run_id == usual.run_id
    for other in ("evaluate=test", "eval_last=5", "train_subset=100"):
        assert settings_of(other).run_id != usual.run_id
    for repeat in ("evaluate=test", "eval_last=5"):
        assert settings_of(repeat).point_id == usual.point_id
    assert settings_of("train_subset=100").point_id != usual.point_id


@pytest.mark.parametrize(
    ("overrides", "key", "word"),
    table("""
evaluate=train | evaluate=train | all or test
eval_last=0 | eval_last=0 | at least 1
train_subset=0 | train_subset=0 | at least 1
train_subset=1.5 | train_subset=1.5 | a whole number
train_subset=9 evaluate=test | train_subset=9 | unused with evaluate=test
train_subset=99999999 | train_subset=99999999 | at most the
train_subset=99999999 partition=overlap dataset=digits clients=20 | train_subset=99999999 | at most the
evaluate=test measure=[train_error] | measure=[train_error] | evaluate=all
evaluate=test dataset=quadratics model=linreg partition=natural | evaluate=test | say evaluate=all
"""),
)
def test_what_cannot_be_scored_is_refused(overrides: list[str], key: str, word: str) -> None:
    check(call("run", *overrides, *QUICK), key, word)
    assert not Path("outputs").exists()
