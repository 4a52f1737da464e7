"""Who waits for a run is told where it stands: by a line now and then, and by `status`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from helpers.command import call, metrics
from helpers.federations import TINY, settings_of

from dpfl_bench.experiment import pulse
from dpfl_bench.experiment.pulse import Pulse
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.lock import locked
from dpfl_bench.results.standing import Standing, measured

SHORT = ("algo=dp_fedavg", *TINY, "eval_every=2", "repeats=2")
ROW = {"round": 10, "eps": 1.25, "test_error": 0.125, "train_loss": 0.5}


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(pulse, "time", found)
    return found


def beats(clock: Clock, folder: RunFolder, seconds: float, rounds: int) -> None:
    """A run of 3 seeds with 50 rounds each, of which 50 were played before."""
    heart = Pulse(folder, "dp_fedavg on digits (abc)", done=50, in_all=150)
    heart.evaluated(ROW)
    for number in range(1, rounds + 1):
        clock.now += seconds
        heart.beat(1, number, 50)


def test_a_line_every_half_minute(clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path)
    beats(clock, folder, 2.5, 11)
    assert capsys.readouterr().err == ""
    beats(clock, folder, 2.5, 24)
    assert capsys.readouterr().err.splitlines() == [
        "dpfl-bench: dp_fedavg on digits (abc): round 12 of 50 of seed 1, test error 0.1250, eps 1.25 so far"
        " (after round 10), about 4 min left",
        "dpfl-bench: dp_fedavg on digits (abc): round 24 of 50 of seed 1, test error 0.1250, eps 1.25 so far"
        " (after round 10), about 3 min left",
    ]
    standing = Standing.of(folder)
    assert standing is not None
    assert (standing.done, standing.in_all) == (64, 150)  # told 5 s after the start, then each 30 s
    assert standing.seconds_left == 2.5 * (150 - 64)


@pytest.mark.parametrize("quiet", ["terminal", "--quiet"])
def test_no_line_where_a_bar_or_nothing_is_wanted(
    quiet: str, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return quiet == "terminal"

    if quiet == "--quiet":
        monkeypatch.setenv("DPFL_QUIET", "1")
    monkeypatch.setattr(sys, "stderr", Terminal())
    beats(clock, RunFolder(tmp_path), 40, 2)
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
    assert Standing.of(RunFolder(tmp_path)) is not None


def test_a_run_tells_each_round_where_every_moment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "SELDOM", 0.0)
    said = call("run", *SHORT)
    lines = [line for line in said.err.splitlines() if " left" in line]
    assert len(lines) == 8
    rows = metrics(said.folder)
    assert f"({said.folder.name}): round 1 of 4 of seed 0, test error" in lines[0]
    error = rows[(rows["seed"] == 1) & (rows["round"] == 2)]["test_error"].item()
    eps = rows[(rows["seed"] == 1) & (rows["round"] == 2)]["eps"].item()
    assert f"round 3 of 4 of seed 1, test error {error:.4f}, eps {eps:.4g} so far (after round 2)" in lines[6]
    assert lines[-1].endswith("about 1 s left")


def test_status_shows_it_of_running_jobs_alone() -> None:
    folder = RunFolder.at("outputs", settings_of(*SHORT).run_id)
    standing = Standing(1, 12, 50, 62, 150, measured(ROW), 220.0)
    assert call("run", *SHORT).folder == folder.path
    (folder.path / "result.json").unlink()
    folder.tell("running", progress=standing.json())
    (died,) = call("status", "--json").json["runs"]
    assert (died["status"], died["progress"]) == ("died", None)
    with locked(folder.path):
        (running,) = call("status", "--json").json["runs"]
        assert running["progress"] == {**standing.json(), "measured": {**ROW, "round": 10.0}}
        assert f": {standing}\n" in call("status").out
        for broken in ({"seed": 1}, None, [1], {**standing.json(), "seconds_left": "soon"}):
            folder.tell("running", progress=broken)
            assert "running, its process lives" in call("status").out


def test_what_is_not_known_is_not_shown() -> None:
    row = {"round": 4, "eps": float("inf"), "test_error": float("nan"), "train_loss": 0.25}
    assert str(Standing(0, 4, 9, 4, 9, measured(row), 50.0)) == (
        "round 4 of 9, training loss 0.2500, about 50 s left"
    )
