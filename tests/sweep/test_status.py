"""`status`: what became of a sweep's runs, told from their folders alone; and the one line of
progress.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command import QUICK, call
from helpers.federations import settings_of

from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.lock import locked
from dpfl_bench.sweep import progress
from dpfl_bench.sweep.progress import Progress

pytestmark = pytest.mark.one_in(3)


SMALL = ("total_steps=10", *QUICK)
SWEEP = ("run", "-m", "lr=1,2,3,4,5,1e30", *SMALL)
COMMAND = "dpfl-bench run -m lr=1,2,3,4,5,1e30 total_steps=10 plot=false device=cpu"


def run_of(lr: str) -> RunFolder:
    return RunFolder.at("outputs", settings_of(f"lr={lr}", *SMALL).run_id)


@pytest.fixture
def sweep() -> Iterator[Path]:
    """The folder of a sweep one run of which is done, failed, interrupted, died, running and
    diverged.
    """
    call(*SWEEP)
    for lr in ("2", "3", "4", "5"):
        (run_of(lr).path / "result.json").unlink()
    run_of("2").tell("failed", error="ValueError: it\nhas two lines", traceback="...")
    run_of("3").tell("interrupted", error="stopped by SIGTERM")
    run_of("4").tell("running")
    with locked(run_of("5").path):
        yield next(Path("outputs/sweeps").iterdir())


@pytest.mark.slow
def test_every_state_and_the_command_that_finishes(sweep: Path) -> None:
    shutil.rmtree(run_of("3").path)
    found = call("status", str(sweep), "--json").json
    assert found["counts"] == {
        "done": 1,
        "diverged": 1,
        "running": 1,
        "failed": 1,
        "interrupted": 0,
        "died": 1,
        "unreadable": 0,
        "missing": 1,
    }
    told = {run["overrides"][0]: (run["status"], run["error"]) for run in found["runs"]}
    assert told == {
        "lr=1": ("done", None),
        "lr=2": ("failed", "ValueError: it\nhas two lines"),
        "lr=3": ("missing", None),
        "lr=4": ("died", None),
        "lr=5": ("running", None),
        "lr=1e+30": ("diverged", "diverged in round 1"),
    }
    assert found["finish"] == [COMMAND]
    assert {run["run_id"] for run in found["runs"]} == {Path(run["folder"]).name for run in found["runs"]}


@pytest.mark.slow
def test_for_a_person(sweep: Path) -> None:
    lines = call("status", "outputs").out.splitlines()
    assert lines[0] == "6 runs: 1 done, 1 diverged, 1 running, 1 failed, 1 interrupted, 1 died"
    given = "total_steps=10 plot=False device=cpu"
    assert lines[1:] == [
        f"  diverged    {run_of('1e30').path.name}  lr=1e+30 {given}: diverged in round 1",
        f"  running     {run_of('5').path.name}  lr=5 {given}: running, its process lives",
        f"  failed      {run_of('2').path.name}  lr=2 {given}: ValueError: it",
        f"  interrupted {run_of('3').path.name}  lr=3 {given}: stopped by SIGTERM",
        (
            f"  died        {run_of('4').path.name}  lr=4 {given}: its process ended without a word; goes on"
            " from its checkpoint"
        ),
        "to finish:",
        f"  {COMMAND}",
    ]


@pytest.mark.slow
def test_the_same_from_every_folder(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = call("status", str(sweep), "--json").json["counts"]
    for folder in ("outputs", "outputs/runs", "outputs/sweeps"):
        assert call("status", folder, "--json").json["counts"] == expected
    assert call("status", "--json").json["counts"] == expected, "outputs is the default"
    one = call("status", str(run_of("2").path), "--json").json
    assert [run["status"] for run in one["runs"]] == ["failed"]
    home = Path.cwd()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert call("status", "../outputs", "--json").json["finish"] == [f"cd {home} && {COMMAND}"]


@pytest.mark.slow
def test_outputs_that_were_moved(sweep: Path) -> None:
    expected = call("status", "outputs", "--json").json["counts"]
    shutil.copytree("outputs", "moved")
    assert call("status", "moved", "--json").json["counts"] == {**expected}


def test_a_run_of_no_sweep() -> None:
    call("run", "eps=1", "privacy.clip=.5", *SMALL)
    (folder,) = Path("outputs/runs").iterdir()
    (folder / "result.json").unlink()
    RunFolder(folder).tell("failed", error="OSError: the disk is gone")
    found = call("status", "outputs", "--json").json
    assert found["finish"] == ["dpfl-bench run eps=1 privacy.clip=.5 total_steps=10 plot=false device=cpu"]


def test_a_done_sweep_has_nothing_to_finish() -> None:
    call("run", "-m", "lr=1,2", *SMALL)
    assert call("status").out == "2 runs: 2 done\n"


def test_many_runs_are_cut_short() -> None:
    call("run", "-m", "lr=1", *SMALL)
    (path,) = Path("outputs/sweeps").glob("*/sweep.json")
    told = json.loads(path.read_text())
    told["points"] += [
        {"run": f"../../runs/{number:010}", "overrides": [f"seed={number}"]} for number in range(50)
    ]
    path.write_text(json.dumps(told))
    lines = call("status").out.splitlines()
    assert lines[0] == "51 runs: 1 done, 50 missing"
    assert len(lines) == 1 + 20 + 1 + 2
    assert lines[21] == "  missing     and 30 more (--json lists all)"


@pytest.mark.slow
def test_files_that_cannot_be_read_are_made_anew() -> None:
    """A full disk or a power cut may leave empty ones."""
    sweep = ("run", "-m", "lr=1,2", *SMALL)
    call(*sweep)
    (run_of("1").path / "result.json").write_text("")
    (run_of("1").path / "status.json").write_text('{"status": ')
    assert call("status").out.splitlines()[:2] == [
        "2 runs: 1 done, 1 unreadable",
        (
            f"  unreadable  {run_of('1').path.name}  lr=1 total_steps=10 plot=False device=cpu: status.json"
            " or result.json cannot be read"
        ),
    ]
    assert call(*sweep).code == 0
    assert call("status").out == "2 runs: 2 done\n"


@pytest.mark.slow
def test_files_of_others_spoil_nothing() -> None:
    call("run", "-m", "lr=1,2,3,4", *SMALL)
    for text in ("{", '{"points": 3}', "[]"):
        folder = Path("outputs/sweeps", f"spoilt{len(text)}")
        folder.mkdir()
        (folder / "sweep.json").write_text(text)
    (run_of("1").path / "result.json").write_text('{"status": "done"}')
    (run_of("2").path / "result.json").write_text('{"status": "diverged", "diverged": 3}')
    (run_of("3").path / "result.json").unlink()
    (run_of("3").path / "result.json").mkdir()
    found = call("status", "--json").json
    assert {word: count for word, count in found["counts"].items() if count} == {"done": 2, "unreadable": 2}
    assert found["unreadable_sweeps"] == 3
    assert "left out: 3 folders with a sweep.json that cannot be read" in call("status").out
    asked = call("run", "-m", "lr=1,2,3,4,5", *SMALL, "--dry-run")
    assert (asked.code, asked.err.count("(it is not known by which)"), asked.err.count("\n")) == (2, 4, 2)
    assert (
        "1 finished, 4 to run: about" in call("run", "-m", "lr=1,2,3,4,5", *SMALL, "--dry-run", "--force").out
    )
    assert call("collect", "outputs/runs").code == 0


def test_the_command_of_a_single_run_is_the_one_that_was_typed() -> None:
    call("run", "eps=1", *SMALL)
    (folder,) = Path("outputs/runs").iterdir()
    (folder / "result.json").unlink()
    told = json.loads((folder / "env.json").read_text())
    (folder / "env.json").write_text(
        json.dumps({**told, "command": "/opt/bin/dpfl-bench run -cd 'my configs' eps=1"})
    )
    assert call("status", "--json").json["finish"] == ["dpfl-bench run -cd 'my configs' eps=1"]


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_no_run(folder: str) -> None:
    said = call("status", folder)
    assert said.code == 2
    assert (
        said.err
        == f"dpfl-bench: {folder}: expected outputs, outputs/runs, or the folder of a sweep or run, found no"
        " run; run dpfl-bench run first\n"
    )


@pytest.mark.slow
def test_status_imports_no_torch(sweep: Path) -> None:
    script = (
        "import sys\nfrom dpfl_bench.cli import main\ntry:\n main(['status'])\nexcept SystemExit as stop:\n"
        " assert not stop.code\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script + "assert 'torch' not in sys.modules"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# --- the line of progress ---


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def folders(count: int) -> list[Path]:
    return [Path("outputs/runs", str(number)) for number in range(count)]


def finish(path: Path, status: str = "done") -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "result.json").write_text(
        json.dumps({"status": status, "diverged": {"round": 1} if status == "diverged" else None})
    )


def test_the_line(clock: list[float]) -> None:
    runs = folders(10)
    finish(runs[0])
    RunFolder(runs[1]).tell("failed", error="earlier")
    RunFolder(runs[2]).tell("failed", error="earlier, and left")
    shown = Progress(runs, [run for run in runs if run not in (runs[0], runs[2])])
    assert shown.line == "sweep: 1 of 10 done, 0 running, 1 failed"
    with locked(runs[3]):
        finish(runs[4])
        finish(runs[5], "diverged")
        clock[0] += 60
        shown.update()
        assert shown.line == "sweep: 2 of 10 done, 1 running, 2 failed, about 3 min left", (
            "30 s each, 6 to go"
        )
    RunFolder(runs[1]).tell("failed", error="again")
    RunFolder(runs[3]).tell("failed", error="now")
    for run in runs[6:]:
        finish(run)
    clock[0] += 60
    shown.update()
    assert shown.line == "sweep: 6 of 10 done, 0 running, 4 failed"
    shown.close()


def test_looking_costs_little(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is asked for, and however slow the folders are."""
    shown, looks = Progress(folders(4), folders(4)), []

    def slow(path: Path) -> str:
        looks.append(path)
        clock[0] += 1
        return progress.WAITING

    monkeypatch.setattr(shown, "_word", slow)
    for _ in range(1000):
        clock[0] += 0.2
        shown.update()
    assert 8 <= len(looks) <= 16, "4 s of every 80"


def test_without_a_terminal_it_speaks_seldom(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(folders(100), folders(100))
    for run in folders(100):
        finish(run)
        clock[0] += 1
        shown.update()
    shown.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" done")[0] for line in lines] == [
        f"dpfl-bench: sweep: {count} of 100" for count in (31, 62, 93)
    ]


def test_on_a_terminal_it_is_one_line(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "100")
    shown = Progress(folders(3), folders(3))
    for run in folders(3):
        finish(run)
        clock[0] += 1
        shown.update()
        progress.say(f"{run.name} is done")
    shown.close()
    assert "sweep: 3 of 3 done" in terminal.getvalue()
    ended = [line.rpartition("\r")[2].strip() for line in terminal.getvalue().split("\n")]
    assert ended == ["dpfl-bench: 0 is done", "dpfl-bench: 1 is done", "dpfl-bench: 2 is done", ""]


def test_a_status_written_at_the_same_time(tmp_path: Path) -> None:
    """Whoever reads while it is replaced sees the old one or the new one."""
    run = RunFolder(tmp_path / "run")
    run.tell("running")
    code = (
        "import sys\nfrom pathlib import Path\nfrom dpfl_bench.results.folder import RunFolder\n"
        "for _ in range(2000): assert RunFolder(Path(sys.argv[1])).read('status.json')"
    )
    reader = subprocess.Popen([sys.executable, "-c", code, run.path])
    while reader.poll() is None:
        run.tell("running")
    assert reader.returncode == 0
    assert os.listdir(run.path) == ["status.json"]
