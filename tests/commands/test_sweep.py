"""`run -m`, repeats, the same command twice, `collect`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.command import QUICK, call, command, metrics, read
from helpers.federations import settings_of
from helpers.forks import Forks

from dpfl_bench.config import compose
from dpfl_bench.experiment import job
from dpfl_bench.sweep import points
from dpfl_bench.sweep.launchers.base import work

SMALL = ("total_steps=10", *QUICK)


def statuses() -> list[str]:
    return sorted(
        read(path.parent, "status.json")["status"] for path in Path("outputs/runs").glob("*/status.json")
    )


@contextmanager
def broken(
    monkeypatch: pytest.MonkeyPatch, error: BaseException | signal.Signals, lr: float = 1.5
) -> Iterator[Callable[[], list[float]]]:
    """The data of one learning rate cannot be loaded: that raises or kills. Yields what tells the
    learning rates that were tried.
    """
    real, log = job.load_data, Path("tried").absolute()  # a sweep's runs are another process's
    log.touch()

    def load(settings: Any) -> Any:
        with log.open("a") as file:
            file.write(f"{settings.lr}\n")
        if settings.lr == lr and isinstance(error, signal.Signals):
            os.kill(os.getpid(), error)
        elif settings.lr == lr:
            raise error
        return real(settings)

    with monkeypatch.context() as patched:
        patched.setattr(job, "load_data", load)
        yield lambda: [float(line) for line in log.read_text().split()]


@pytest.mark.slow
def test_every_combination_runs_once() -> None:
    sweep = ("run", "-m", "algo=dp_fedavg,dp_scaffnew", "local_steps=1,5", "eps=2,inf", *SMALL)
    said = call(*sweep)
    assert said.code == 0
    assert len(set(said.out.splitlines())) == 8
    assert "8 jobs, 0 of them finished already; outputs/sweeps/" in said.err
    assert said.err.endswith("dpfl-bench: 8 of 8 jobs done\n")
    again = call(*sweep)
    assert again.code == 0
    assert again.out == said.out
    assert [line.split(";")[0] for line in again.err.splitlines()] == [
        "dpfl-bench: 8 jobs, 8 of them finished already",
        "dpfl-bench: 8 of 8 jobs done",
    ]


@pytest.mark.slow
def test_runs_are_shared_between_sweeps_and_within_one() -> None:
    first = call("run", "-m", "lr=1,2", *SMALL)
    both = call("run", "-m", "lr=1,1.0,1e0,2,3", *SMALL)
    assert both.err.startswith("dpfl-bench: 2 of 5 jobs are the same run as another one and are left out\n")
    assert "3 jobs, 2 of them finished already" in both.err
    assert both.out.splitlines()[:2] == first.out.splitlines()
    assert call("run", "lr=3", *SMALL).err.startswith("dpfl-bench: already done: ")


@pytest.mark.slow
def test_a_diverging_job_in_the_middle_ends_no_other() -> None:
    for _ in range(2):  # it is finished: the second time there is nothing to do
        said = call("run", "-m", "lr=1,1e30,2", *SMALL)
        assert said.code == 1
        assert len(said.out.splitlines()) == 3
        assert said.err.splitlines()[-2:] == [
            "dpfl-bench: 2 of 3 jobs done, 1 failed",
            "dpfl-bench: failed: lr=1e+30 total_steps=10 plot=False device=cpu: diverged in round 1",
        ]
        assert statuses() == ["diverged", "done", "done"]
    assert "3 of them finished already" in said.err


@pytest.mark.parametrize(
    "error",
    [
        OSError("the disk is gone"),
        MemoryError(),
        SystemExit("a library gave up"),
        ZeroDivisionError("one\ntwo"),
    ],
)
def test_a_crashing_job_in_the_middle_ends_no_other(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = ("run", "-m", "lr=1,1.5,2", *SMALL)
    with broken(monkeypatch, error):
        said = call(*sweep)
    assert said.code == 1
    assert statuses() == ["done", "done", "failed"]
    assert "Traceback" in said.err
    first = f"{type(error).__name__}: {error}".splitlines()[0]
    assert said.err.splitlines()[-3:] == [
        "dpfl-bench: 2 of 3 jobs done, 1 failed",
        f"dpfl-bench: failed: lr=1.5 total_steps=10 plot=False device=cpu: {first}",
        "dpfl-bench: to finish: dpfl-bench run -m lr=1,1.5,2 total_steps=10 plot=false device=cpu",
    ]
    status = read(Path("outputs/runs", settings_of("lr=1.5", *SMALL).run_id), "status.json")
    assert status["error"] == f"{type(error).__name__}: {error}"
    assert "in load" in status["traceback"], "errors before the data are there are told too"


@pytest.mark.slow
def test_a_killed_job_in_the_middle_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the system, when memory is short: no handler runs."""
    sweep = ("run", "-m", "lr=1,1.5,2", *SMALL)
    with broken(monkeypatch, signal.SIGKILL) as tried:
        said = call(*sweep)
    assert said.code == 1
    assert tried() == [1, 1.5, 2]
    assert statuses() == ["done", "done", "failed"]
    assert (
        "dpfl-bench: failed: lr=1.5 total_steps=10 plot=False device=cpu: worker ended by SIGKILL (out of"
        " memory?)" in said.err.splitlines()
    )
    assert call(*sweep, "--no-retry").code == 1
    assert call(*sweep).code == 0


@pytest.mark.slow
def test_failed_jobs_are_tried_again_or_left(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = ("run", "-m", "lr=1,1.5,2", *SMALL)
    with broken(monkeypatch, OSError("the disk is gone")) as tried:
        call(*sweep)
        assert tried() == [1, 1.5, 2]
        left = call(*sweep, "--no-retry")
        assert tried() == [1, 1.5, 2]
        assert left.code == 1
        assert left.err.splitlines()[1:] == [
            "dpfl-bench: 2 of 3 jobs done, 1 failed",
            "dpfl-bench: failed: lr=1.5 total_steps=10 plot=False device=cpu: OSError: the disk is gone",
            "dpfl-bench: to finish: dpfl-bench run -m lr=1,1.5,2 total_steps=10 plot=false device=cpu",
        ]
        assert call(*sweep).code == 1
        assert tried() == [1, 1.5, 2, 1.5]
    again = call(*sweep)
    assert again.code == 0
    assert "3 jobs, 2 of them finished already" in again.err
    assert statuses() == ["done"] * 3


def test_a_bad_setting_that_shows_late_has_no_traceback(tmp_path: Path) -> None:
    """How many records a file has shows when it is read."""
    rows = "".join(f"{1 if i % 2 else -1} 1:{i} 3:{i % 5}\n" for i in range(10))
    (tmp_path / "tiny.txt").write_text(rows)
    said = call("run", "-m", "dataset=libsvm", "dataset.path=tiny.txt", "clients=2", "batch_size=2,5", *SMALL)
    assert said.code == 1
    assert "Traceback" not in said.err
    assert "batch_size=5: expected at most the smallest client's records, 4" in said.err
    assert statuses() == ["done", "failed"]


def test_a_config_that_changes_under_way_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [config, _self_]\ndefault_total_steps: 10\n")
    point = points.planned(
        compose.Composer(str(tmp_path), "mine"), [(*QUICK, "seed=7")], str(tmp_path), "mine"
    ).points.popitem()[0]
    (tmp_path / "mine.yaml").write_text("defaults: [config, _self_]\ndefault_total_steps: 20\n")
    compose.composer.cache_clear()
    assert work(point) == 2
    assert (
        "a config file has changed since the sweep began; start it again"
        in read(point.folder, "status.json")["error"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides", [("algo=dp_scaffnew",), ("algo=dp_fedavg", "batch_size=2", "server_momentum=.5")]
)
def test_repeats_are_single_runs_row_for_row(overrides: tuple[str, ...]) -> None:
    together = metrics(call("run", *overrides, "repeats=3", *SMALL).folder)
    alone = [metrics(call("run", *overrides, f"seed={seed}", *SMALL).folder) for seed in range(3)]
    pd.testing.assert_frame_equal(together, pd.concat(alone, ignore_index=True), check_exact=True)
    finals = together.groupby("seed")["train_loss"].last()
    assert finals.nunique() == 3


@pytest.mark.slow
def test_the_same_command_twice_is_bit_identical(server: Forks) -> None:
    """In two folders and two processes: one that users start, and a forked one."""
    given = (
        "run",
        "privacy.neighbours=add_remove_one",
        "sampled_clients=45",
        "batch_size=2",
        "repeats=2",
        *SMALL,
    )
    folders = [run(*given, f"outputs={name}").folder for run, name in ((command, "one"), (server.say, "two"))]
    one, two = ((folder / "metrics.csv").read_bytes() for folder in folders)
    assert folders[0] != folders[1]
    assert one == two
    assert one.count(b"\n") == 1 + 2 * 2


@pytest.mark.slow
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
    assert {"results.csv", "table.csv", "table.md", "u_curves_breast_cancer.png"} <= {
        p.name for p in Path("elsewhere").iterdir()
    }


def test_collect_finds_nothing() -> None:
    said = call("collect", "nowhere")
    assert said.code == 2
    assert said.err.startswith("dpfl-bench: nowhere: expected folders with runs")
