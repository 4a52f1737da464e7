"""A run that failed, or left half-written files behind, goes on from its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command import call, read
from helpers.federations import settings_of
from helpers.runs import same_numbers

from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.privacy.ledger import OverspentError
from dpfl_bench.results.folder import RunFolder

DRAWN = ("sampled_clients=45", "batch_size=2", "server_momentum=.5", "local_momentum=.3", "lr_decay=.99")
GIVEN = (
    "run",
    "rounds=20",
    "local_steps=2",
    *DRAWN,
    "eval_every=3",
    "checkpoint_every=4",
    "repeats=2",
    "plot=false",
    "device=cpu",
)


class Broken(RuntimeError):
    pass


@pytest.fixture
def whole() -> Path:
    return call(*GIVEN, "outputs=whole").folder.absolute()


@pytest.fixture
def failed(whole: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its 31st round, the 11th of the second seed, raised."""
    with monkeypatch.context() as patched:
        left = iter(range(30))
        play = RoundPlayer.play

        def until_broken(*arguments: Any) -> Any:
            if next(left, None) is None:
                raise Broken("out of memory")
            return play(*arguments)

        patched.setattr(RoundPlayer, "play", until_broken)
        with pytest.raises(Broken):
            call(*GIVEN, "outputs=cut")
    return Path("cut/runs", whole.name).absolute()


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The rounds that are played from now on."""
    rounds: list[int] = []
    play = RoundPlayer.play

    def counted(player: RoundPlayer, state: Any, round: Any, crew: Any) -> Any:
        rounds.append(round.index)
        return play(player, state, round, crew)

    monkeypatch.setattr(RoundPlayer, "play", counted)
    return rounds


@pytest.mark.slow
def test_a_failure_is_told_and_resumed(whole: Path, failed: Path, played: list[int]) -> None:
    status = read(failed, "status.json")
    assert (status["status"], status["error"]) == ("failed", "Broken: out of memory")
    assert "until_broken" in status["traceback"]
    assert not (failed / "result.json").exists()
    rows = (failed / "metrics.csv").read_text().count("\n")
    assert rows == 1 + 8 + 4, "the rows so far are kept"
    assert call(*GIVEN, "outputs=cut").code == 0
    assert played == list(range(8, 20)), "from the checkpoint after round 8 of the second seed"
    assert read(failed, "status.json")["status"] == "done"
    assert "traceback" not in read(failed, "status.json")
    same_numbers(whole, failed)
    assert not (failed / "checkpoint" / "latest.pt").exists()


@pytest.mark.slow
def test_half_written_files_do_not_disturb(whole: Path, failed: Path) -> None:
    """What a kill leaves: parts beside the files, half a row at the end of the tables."""
    for name in (
        "checkpoint/latest.4711.part",
        "status.json.4711.part",
        "result.json.4711.part",
        "checkpoint/final.pt",
    ):
        (failed / name).write_bytes(b"PK\x03\x04 half a file")
    with (failed / "metrics.csv").open("a") as file:
        file.write("1,12,24,0.9")
    with (failed / "timing.csv").open("a") as file:
        file.write("1,1")
    assert call(*GIVEN, "outputs=cut").code == 0
    same_numbers(whole, failed)


@pytest.mark.slow
def test_a_finished_seed_is_not_played_again(whole: Path, failed: Path, played: list[int]) -> None:
    kept = torch.load(failed / "checkpoint" / "latest.pt", weights_only=True)
    assert (kept["seed"], kept["done"], list(kept["finals"])) == (1, 8, [0])
    assert call(*GIVEN, "outputs=cut").code == 0
    assert len(played) == 12


@pytest.mark.slow
def test_killed_between_result_and_status(whole: Path, played: list[int]) -> None:
    """Finished means that result.json is there, which is written last."""
    (whole / "result.json").unlink()
    assert RunFolder(whole).finished is None
    before = (whole / "metrics.csv").read_bytes()
    assert call(*GIVEN, "outputs=whole").code == 0
    assert (whole / "metrics.csv").read_bytes() == before
    assert settings_of(*GIVEN[1:]).run_id == whole.name


def test_more_than_the_schedule_allows_saves_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the doors record more releases than were accounted for, the run fails."""
    play = RoundPlayer.play

    def twice(player: RoundPlayer, state: Any, round: Any, crew: Any) -> Any:
        state, _ = play(player, state, round, crew)
        return play(player, state, round, crew)

    monkeypatch.setattr(RoundPlayer, "play", twice)
    with pytest.raises(OverspentError, match="no result is saved"):
        call(*GIVEN)
    (folder,) = Path("outputs/runs").iterdir()
    assert read(folder, "status.json")["status"] == "failed"
    assert not (folder / "result.json").exists()
