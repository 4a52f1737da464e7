"""One run by several ranks: the same files as by one process, whatever becomes of a rank."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.command import read
from helpers.federations import TINY
from helpers.ranks import Said, run_in_ranks
from helpers.runs import same_numbers

from dpfl_bench import cli
from dpfl_bench.experiment import alike, job
from dpfl_bench.federation.ranks import Ranks
from dpfl_bench.machine.place import Place, _first_name, place
from dpfl_bench.machine.ranks import SILENCE

# memories that travel, Theorem 1's potential, all measures, two seeds, chunks of two clients
GIVEN = (
    "run",
    *(o for o in TINY if not o.startswith(("rounds", "privacy"))),
    *("algo=scaffnew", "model.l2=0.1", "lr=1/L", "sampled_clients=7", "rounds=6", "repeats=2"),
    *("engine.chunk=2", "checkpoint_every=2", "measure=[dissimilarity,client,iterates]"),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    return _alone(tmp_path_factory.mktemp("whole"))


def _alone(outputs: Path) -> Path:
    with pytest.raises(SystemExit) as stop:
        cli.main([*GIVEN, f"outputs={outputs}"])
    assert stop.value.code == 0
    (folder,) = (outputs / "runs").iterdir()
    return folder


def _at_round(number: int, rank: int, does: Callable[[], None]) -> Callable[[int], None]:
    """Something that happens to one rank in a round of the first seed."""

    def before(own: int) -> None:
        plain, played = Ranks.play_groups, []

        def play_groups(self: Ranks, *given: Any) -> Any:
            played.append(1)
            if len(played) == number:
                does()
            return plain(self, *given)

        if own == rank:
            Ranks.play_groups = play_groups  # type: ignore[method-assign]  # in a process of its own

    return before


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _lines(said: list[Said]) -> list[str]:
    """On stderr, of all ranks."""
    return [line for one in said for line in one.err.splitlines()]


@pytest.mark.parametrize("count", [2, 3])
def test_the_same_files(count: int, whole: Path, tmp_path: Path) -> None:
    workers = ("engine.workers=2",) if count == 3 else ()
    said = run_in_ranks(count, *GIVEN, *workers, f"outputs={tmp_path}")
    assert [one.code for one in said] == [0] * count, _lines(said)
    folder = tmp_path / "runs" / whole.name
    assert [one.out for one in said] == [f"{folder}\n", *[""] * (count - 1)]
    assert len(_lines(said)) == 1
    same_numbers(whole, folder)
    assert {path.name for path in whole.iterdir()} == {path.name for path in folder.iterdir()}
    assert [read(each, "env.json")["ranks"] for each in (whole, folder)] == [1, count]
    assert "psi" in (folder / "metrics.csv").read_text()


@pytest.mark.slow
def test_torchrun(whole: Path, tmp_path: Path) -> None:
    starter = Path(sys.executable).with_name("torchrun")
    command = [starter, "--nproc-per-node", "2", "-m", "dpfl_bench", *GIVEN, f"outputs={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}/runs/{whole.name}\n"
    assert len([line for line in done.stderr.splitlines() if not line.startswith("W")]) == 1
    same_numbers(whole, tmp_path / "runs" / whole.name)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_dies_ends_the_run_and_keeps_the_checkpoint(
    killed: int, whole: Path, tmp_path: Path
) -> None:
    said = run_in_ranks(2, *GIVEN, f"outputs={tmp_path}", before=_at_round(4, killed, _kill))
    assert [said[killed].code, said[1 - killed].code] == [-signal.SIGKILL, 1]
    (line,) = _lines(said)
    assert f"rank {killed} on" in line
    assert "ended before its time; the same command goes on from the checkpoint" in line
    folder = tmp_path / "runs" / whole.name
    assert (folder / "checkpoint" / "latest.pt").exists()
    if killed:
        same_numbers(whole, _alone(tmp_path))
        return
    said = run_in_ranks(3, *GIVEN, f"outputs={tmp_path}")
    assert [one.code for one in said] == [0, 0, 0], _lines(said)
    same_numbers(whole, folder)


@pytest.mark.slow
def test_who_is_busy_is_not_dead(whole: Path, tmp_path: Path) -> None:
    """Rank 1 dies. Rank 2 notices long before rank 0, who says it."""

    def before(rank: int) -> None:
        _at_round(4, 1, _kill)(rank)
        _at_round(4, 0, lambda: time.sleep(2 * SILENCE))(rank)

    said = run_in_ranks(3, *GIVEN, f"outputs={tmp_path}", before=before)
    assert [one.code for one in said] == [1, -signal.SIGKILL, 1]
    assert [len(one.err.splitlines()) for one in said] == [1, 0, 0]
    assert said[0].err.startswith("dpfl-bench: rank 1 on ")


@pytest.mark.slow
def test_a_rank_that_stands_still_is_given_up(whole: Path, tmp_path: Path) -> None:
    """Its run ends, too, without another word."""
    before = _at_round(4, 1, lambda: time.sleep(3 * SILENCE))
    said = run_in_ranks(2, *GIVEN, "engine.rank_timeout=4", f"outputs={tmp_path}", before=before)
    assert [one.code for one in said] == [1, 1]
    (line,) = _lines(said)
    assert "gave no answer for 4 s (engine.rank_timeout)" in line


def test_ctrl_c_saves_a_checkpoint_from_which_another_number_goes_on(whole: Path, tmp_path: Path) -> None:
    given = (*GIVEN, "checkpoint_every=1000", f"outputs={tmp_path}")
    said = run_in_ranks(3, *given, before=_at_round(9, 2, _interrupt))  # in the second seed
    assert [one.code for one in said] == [130] * 3, _lines(said)
    (line,) = _lines(said)
    assert line.endswith(f"goes on from its checkpoint in {tmp_path}/runs/{whole.name}")
    rows = (tmp_path / "runs" / whole.name / "metrics.csv").read_text().splitlines()
    assert rows[-1].startswith("1,3,")
    said = run_in_ranks(2, *given)
    assert [one.code for one in said] == [0, 0], _lines(said)
    same_numbers(whole, tmp_path / "runs" / whole.name)


def test_other_processors_are_refused_before_data_load(tmp_path: Path) -> None:
    def before(rank: int) -> None:
        def no_data(settings: object) -> None:
            raise AssertionError("data were loaded")

        job.load_data = no_data  # type: ignore[assignment]  # in a process of its own
        if rank == 1:
            told = alike.environment
            alike.environment = lambda device: {**told(device), "family": "Other 6 85"}

    said = run_in_ranks(2, *GIVEN, f"outputs={tmp_path}", before=before)
    assert [one.code for one in said] == [2, 2]
    (line,) = _lines(said)
    assert line.startswith("dpfl-bench: rank 1 on ")
    assert "here Other 6 85): expected ranks that compute the same bits" in line
    assert not (tmp_path / "runs").exists()


def test_what_one_rank_alone_meets_is_said_by_that_rank(tmp_path: Path) -> None:
    def before(rank: int) -> None:
        def no_file(settings: object) -> None:
            raise FileNotFoundError(2, "No such file or directory", "there")

        if rank == 1:
            job.load_data = no_file  # type: ignore[assignment]  # in a process of its own

    said = run_in_ranks(2, *GIVEN, f"outputs={tmp_path}", before=before)
    assert all(one.code for one in said)
    (line,) = _lines(said)
    assert line.startswith("dpfl-bench: rank 1 on ")
    assert "there: No such file or directory" in line


def test_what_all_ranks_meet_is_said_once(tmp_path: Path) -> None:
    said = run_in_ranks(2, *GIVEN, "eps=-1", f"outputs={tmp_path}")
    assert [one.code for one in said] == [2, 2]
    assert len(_lines(said)) == 1


@pytest.mark.parametrize("words", [["run", "-m", "eps=1,2"], ["run", "--cfg", "job"], ["plan"], ["collect"]])
def test_what_is_no_single_run_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        for name, number in {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, str(number))
        with pytest.raises(SystemExit) as stop:
            cli.main(words)
        assert stop.value.code == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1 - rank
        assert not err or "expected a single run where torchrun starts 2 processes" in err


def test_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch script of Slurm has a rank and no step; a step with one task is alone."""
    names = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
    expected = Place(3, 4, 1, "srun")
    for values, found in {
        ("", "", "", "", ""): Place(),
        ("", "", "0", "", "0"): Place(),
        ("", "", "0", "1", "0"): Place(),
        ("", "", "3", "4", "1"): expected,
        ("1", "2", "3", "4", "1"): dataclasses.replace(
            expected, rank=1, ranks=2, local=0, starter="torchrun"
        ),
    }.items():
        for name, value in zip(names, values, strict=True):
            monkeypatch.setenv(name, value)
        assert place() == found


@pytest.mark.parametrize(
    ("listed", "first"),
    [("n1", "n1"), ("n1,n2", "n1"), ("n[1-2]", "n1"), ("gpu[01-03,7]", "gpu01"), ("", "")],
)
def test_the_first_node_of_a_list(listed: str, first: str) -> None:
    assert _first_name(listed) == first
