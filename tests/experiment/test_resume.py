"""Killed at any moment and started again, a run ends with the very numbers of an uninterrupted
one.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command import read
from helpers.federations import GENERATED, settings_of
from helpers.forks import Forks, rows_of
from helpers.processes import until
from helpers.runs import same_numbers

from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import run, train
from dpfl_bench.machine.signals import Interrupted

QUIET = (*GENERATED, "local_steps=2", "plot=false", "device=cpu")
LONG = ("algo=dp_scaffnew", "total_steps=1200", "eval_every=30", "checkpoint_every=100000", *QUIET)
# two seeds; the rows of metrics.csv are more than the kills, so that the last one still hits
KILLED = ("eval_every=30", "checkpoint_every=23", "repeats=2", *QUIET)
MANY, FEW = 12, 5
STEPS = {MANY: 700, FEW: 400}
CASES = {
    "dp_scaffnew": ("algo=dp_scaffnew",),  # every client's memory crosses rounds
    "dp_normfedavg": (
        *("algo=dp_normfedavg", "server_momentum=.5"),  # the server's velocity does
        "measure=[client,iterates,train_error]",
    ),
    # two vectors of the server's, C, the iterates that are averaged, the ledger of further sums
    "dp_fedexp_scaffold": (
        "algo=dp_fedexp_scaffold",
        "privacy.quantile=.5",
        "average_last=3",
        "eps=1000",
        "lr=.1",
    ),
    # the ledger of gradients
    "dp_scaffold": ("algo=dp_scaffold", "privacy=record", "batch_size=2"),
}


def kill_often(
    server: Forks, arguments: list[str], folder: Path, row: float, kills: int, dice: random.Random
) -> int:
    """Start and kill the command so many times, four in five once it trains, the rest while it
    starts: how many hit the training.

    A row of metrics.csv takes about `row` seconds. The moments are counted in rows, and a fraction
    of one, so that a machine that is slow now and fast then does not end the training before the
    last kill.
    """
    hits = 0
    for _ in range(kills):
        child = server.start(*arguments)
        at_start = dice.random() < 0.2
        training = (
            False if at_start else child.trains_in(folder, rows_of(folder) + dice.choice((-1, -1, 0, 1)))
        )
        time.sleep(dice.uniform(0, 0.4 if at_start else row))
        child.kill()
        hits += child.end() == -signal.SIGKILL and training
        if (folder / "result.json").exists():
            break
    return hits


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_kills_change_no_bit(server: Forks, name: str, tmp_path: Path) -> None:
    """A dozen at any moment of a run; of the others, whose states hold other things, a few."""
    kills = MANY if name == "dp_scaffnew" else FEW
    given = ["run", *CASES[name], f"total_steps={STEPS[kills]}", *KILLED]
    run_id = settings_of(*given[1:]).run_id
    whole, cut = (tmp_path / way / "runs" / run_id for way in ("whole", "cut"))
    assert server.run(*given, f"outputs={tmp_path / 'whole'}") == 0
    row = read(whole, "result.json")["seconds"] / rows_of(whole)
    cut_command = [*given, f"outputs={tmp_path / 'cut'}"]
    hits = kill_often(server, cut_command, cut, row, kills, random.Random(name))
    assert hits >= kills // 2, f"only {hits} of {kills} kills hit the training"
    assert server.run(*cut_command) == 0
    same_numbers(whole, cut)


@pytest.fixture(scope="module")
def undisturbed(server: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    outputs = tmp_path_factory.mktemp("undisturbed")
    assert server.run("run", *LONG, f"outputs={outputs}") == 0
    return outputs / "runs" / settings_of(*LONG).run_id


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_exits_with_its_code(
    server: Forks, undisturbed: Path, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    given, cut = ("run", *LONG, f"outputs={tmp_path}"), tmp_path / "runs" / undisturbed.name
    child = server.start(*given)
    assert child.trains_in(cut, rows=5)
    child.kill(number)
    assert child.end() == code
    status = read(cut, "status.json")
    assert (status["status"], status["error"]) == ("interrupted", f"stopped by {number.name}")
    kept = torch.load(cut / "checkpoint" / "latest.pt", weights_only=True)
    assert kept["done"] >= 120, "it goes on where it was"
    assert not (cut / "result.json").exists()
    assert server.run(*given) == 0
    assert read(cut, "status.json")["status"] == "done"
    same_numbers(undisturbed, cut)


def test_a_signal_saves_the_round_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(
        "total_steps=40", "local_steps=2", "eval_every=5", "plot=false", "device=cpu", f"outputs={tmp_path}"
    )
    rounds = train.rounds

    def signalled(*arguments: Any) -> Iterator[Any]:
        for done, state, diagnostics in rounds(*arguments):
            if done == 7:
                signal.raise_signal(signal.SIGTERM)
            yield done, state, diagnostics

    monkeypatch.setattr(train, "rounds", signalled)
    with pytest.raises(Interrupted):
        run.run(settings, (), "")
    kept = torch.load(tmp_path / "runs" / settings.run_id / "checkpoint" / "latest.pt", weights_only=True)
    assert kept["done"] == 7, "not the last one evaluated"


def test_what_another_process_finished_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the folder while this one prepared."""
    settings = settings_of("total_steps=10", "plot=false", "device=cpu", f"outputs={tmp_path}")
    prepare, others = run.prepare, []

    def prepared(asked: Settings) -> run.Job:
        job = prepare(asked)
        if not others:
            others.append(None)
            others.append(run.run(asked, (), "").path / "env.json")
            others.append(others[1].stat().st_mtime_ns)
        return job

    monkeypatch.setattr(run, "prepare", prepared)
    folder = run.run(settings, (), "")
    assert folder.finished
    assert others[1:] == [folder.path / "env.json", (folder.path / "env.json").stat().st_mtime_ns]


@pytest.mark.slow
def test_a_signal_ends_a_sweep(server: Forks, tmp_path: Path) -> None:
    given = (*LONG, "total_steps=600", "eval_every=10")
    sweep = ["run", "-m", "seed=0,5", *given, f"outputs={tmp_path}"]
    ids = [settings_of(f"seed={seed}", *given).run_id for seed in (0, 5)]
    child = server.start(*sweep)
    assert until(lambda: rows_of(tmp_path / "runs" / ids[0]) > 5, 60)
    child.kill(signal.SIGINT)
    assert child.end() == 130
    assert not (tmp_path / "runs" / ids[1]).exists()
    assert server.run(*sweep) == 0
    assert [read(tmp_path / "runs" / run_id, "status.json")["status"] for run_id in ids] == ["done", "done"]
