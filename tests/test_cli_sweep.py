"""`run -m`, repeats, the same command twice, `collect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command import QUICK, call, command, metrics, read

from dpfl_bench import run

SMALL = ("total_steps=10", *QUICK)


def statuses() -> list[str]:
    return sorted(read(path.parent, "status.json")["status"] for path in Path("outputs/runs").glob("*/status.json"))


def test_every_combination_runs_once() -> None:
    sweep = ("run", "-m", "algo=dp_fedavg,dp_scaffnew", "local_steps=1,5", "eps=2,inf", *SMALL)
    said = call(*sweep)
    assert said.code == 0
    assert len(set(said.out.splitlines())) == 8
    assert "8 of 8 jobs done" in said.err
    again = call(*sweep)
    assert again.out == said.out
    assert again.err.count("already done") == 8


def test_a_diverging_job_in_the_middle_ends_no_other() -> None:
    said = call("run", "-m", "lr=1,1e30,2", *SMALL)
    assert said.code == 1
    assert len(said.out.splitlines()) == 3
    assert "2 of 3 jobs done" in said.err
    (line,) = [line for line in said.err.splitlines() if "failed: " in line]
    assert line.startswith("dpfl-bench: failed: lr=1e+30 ")
    assert line.endswith(": diverged")
    assert statuses() == ["diverged", "done", "done"]


def test_a_crashing_job_in_the_middle_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = run.build.data

    def load(settings: Any) -> Any:
        if settings.lr == 1.5:
            raise OSError("the disk is gone")
        return real(settings)

    with monkeypatch.context() as broken:
        broken.setattr(run.build, "data", load)
        said = call("run", "-m", "lr=1,1.5,2", *SMALL)
    assert said.code == 1
    assert statuses() == ["done", "done"]
    assert "Traceback" in said.err
    assert said.err.splitlines()[-1].startswith("dpfl-bench: failed: lr=1.5 ")
    assert said.err.endswith(": OSError: the disk is gone\n")
    again = call("run", "-m", "lr=1,1.5,2", *SMALL)
    assert again.code == 0
    assert again.err.count("already done") == 2


def test_a_bad_setting_that_shows_late_has_no_traceback() -> None:
    said = call("run", "-m", "batch_size=2,5", *SMALL)
    assert said.code == 1
    assert "Traceback" not in said.err
    assert "batch_size=5: expected at most the smallest client's records, 4" in said.err


@pytest.mark.parametrize("overrides", [("algo=dp_scaffnew",), ("algo=dp_fedavg", "batch_size=2", "server_momentum=.5")])
def test_repeats_are_single_runs_row_for_row(overrides: tuple[str, ...]) -> None:
    together = metrics(call("run", *overrides, "repeats=3", *SMALL).folder)
    alone = [metrics(call("run", *overrides, f"seed={seed}", *SMALL).folder) for seed in range(3)]
    pd.testing.assert_frame_equal(together, pd.concat(alone, ignore_index=True), check_exact=True)
    finals = together.groupby("seed")["train_loss"].last()
    assert finals.nunique() == 3


def test_the_same_command_twice_is_bit_identical() -> None:
    """In two folders and two processes."""
    given = ("run", "privacy.neighbours=add_remove_one", "sampled_clients=45", "batch_size=2", "repeats=2", *SMALL)
    folders = [Path(command(*given, f"outputs={name}").out.splitlines()[-1]) for name in ("one", "two")]
    one, two = ((folder / "metrics.csv").read_bytes() for folder in folders)
    assert folders[0] != folders[1]
    assert one == two
    assert one.count(b"\n") == 1 + 2 * 2


def test_collect_a_sweep() -> None:
    call("run", "-m", "algo=dp_fedavg,dp_scaffnew", "local_steps=1,5", "eps=2,inf", *SMALL)
    collected = call("collect", "outputs/runs", "--json").json
    rows = pd.read_csv("outputs/results.csv")
    assert collected["runs"] == len(rows) == 8
    assert collected["unfinished"] == []
    assert "costs privacy" in collected["note"]
    table = pd.DataFrame(collected["table"])
    assert len(table) == 4
    for row in table.itertuples():
        alike = rows[(rows["algo"] == row.algo) & (rows["eps_target"] == row.eps_target)]
        assert row.test_error_mean == alike["test_error_mean"].min()
    text = call("collect", "outputs/runs", "--to", "elsewhere").out
    assert "| breast_cancer | dp_scaffnew | 2 |" in text
    assert {p.name for p in Path("elsewhere").iterdir()} == {"results.csv", "table.csv", "table.md", "u_curves_breast_cancer.png"}


def test_collect_finds_nothing() -> None:
    said = call("collect", "nowhere")
    assert said.code == 2
    assert said.err.startswith("dpfl-bench: nowhere: expected folders with runs")
