"""What lies in a run's folder is its own and whole, or is not gone on from: never a silently wrong
number, never a traceback.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command import Said, call, read
from helpers.runs import same_numbers

from dpfl_bench.experiment import train
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.machine import sealed

pytestmark = pytest.mark.one_in(4)


GIVEN = (
    "run",
    "algo=dp_scaffnew",
    "rounds=20",
    "local_steps=2",
    "eval_every=3",
    "checkpoint_every=4",
    "plot=false",
    "device=cpu",
)
LATEST, PREVIOUS = Path("checkpoint/latest.pt"), Path("checkpoint/previous.pt")


@pytest.fixture
def whole() -> Path:
    return call(*GIVEN, "outputs=whole").folder.absolute()


def cut_after(rounds: int, monkeypatch: pytest.MonkeyPatch, *given: str) -> Path:
    """A run that was killed after so many rounds: checkpoints lie there of its rounds 4, 8, ..."""
    with monkeypatch.context() as patched:
        left = iter(range(rounds))
        play = RoundPlayer.play

        def until_broken(*arguments: Any) -> Any:
            if next(left, None) is None:
                raise OSError("killed")
            return play(*arguments)

        patched.setattr(RoundPlayer, "play", until_broken)
        with pytest.raises(OSError, match="killed"):
            call(*GIVEN, *given, "outputs=cut")
    (folder,) = Path("cut/runs").iterdir()
    return folder.absolute()


@pytest.fixture
def cut(whole: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With two checkpoints, of rounds 12 and 8."""
    folder = cut_after(14, monkeypatch)
    assert [train.Checkpoint.load(folder / file).done for file in (LATEST, PREVIOUS)] == [12, 8]
    return folder


def finished(whole: Path, cut: Path) -> Said:
    said = call(*GIVEN, "outputs=cut")
    assert said.code == 0, said.err
    assert "Traceback" not in said.err
    same_numbers(whole, cut)
    assert (
        not list(cut.glob("checkpoint/*.new"))
        + list(cut.glob("checkpoint/latest.pt"))
        + list(cut.glob("checkpoint/previous.pt"))
    )
    return said


def flipped(path: Path, place: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.slow
def test_every_part_of_a_checkpoint_is_watched_over(cut: Path) -> None:
    """Headers, tensors, pickled whole numbers, directories and what the file tells of itself: one
    bit of a byte at a time.
    """
    size = (cut / LATEST).stat().st_size
    for place in sorted({*range(0, size, 23), *range(0, 1024), *range(size - 2 * sealed.END, size)}):
        with (cut / LATEST).open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1 << place % 8]))
            file.flush()
            with pytest.raises(sealed.Broken):
                sealed.check(cut / LATEST)
            file.seek(place)
            file.write(bytes([byte]))
    sealed.check(cut / LATEST)


def places(content: bytes) -> dict[str, int]:
    """One of each kind."""
    number = content.index(b"released") + len("released") + 5  # a pickled whole number follows its name
    return {
        "header": 10,
        "a pickled number": number,
        "a tensor": len(content) // 3,
        "the directory": len(content) - sealed.END - 40,
        "the last line": len(content) - sealed.END + 20,
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["header", "a pickled number", "a tensor", "the directory", "the last line"])
def test_a_flipped_bit_is_told_and_the_previous_checkpoint_is_gone_on_from(
    whole: Path, cut: Path, kind: str
) -> None:
    flipped(cut / LATEST, places((cut / LATEST).read_bytes())[kind], 2)
    bad = (cut / LATEST).read_bytes()
    said = finished(whole, cut)
    (line,) = [line for line in said.err.splitlines() if "latest.pt" in line]
    assert "damaged" in line
    assert line.endswith("kept as latest.pt.bad-1; the run goes on from round 8 of seed 0")
    assert (cut / "checkpoint" / "latest.pt.bad-1").read_bytes() == bad


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 100, 0.5, -1, -sealed.END])
def test_a_truncated_checkpoint(whole: Path, cut: Path, keep: float) -> None:
    size = (cut / LATEST).stat().st_size
    os.truncate(
        cut / LATEST, int(size * keep) if isinstance(keep, float) else keep if keep >= 0 else size + keep
    )
    assert "cut short or damaged" in finished(whole, cut).err


@pytest.mark.slow
def test_both_checkpoints_damaged(whole: Path, cut: Path) -> None:
    for file in (LATEST, PREVIOUS):
        flipped(cut / file, 500)
    said = finished(whole, cut)
    lines = [line for line in said.err.splitlines() if "damaged" in line]
    assert [line.endswith("; the run begins anew") for line in lines] == [True, True]
    assert {path.name for path in cut.glob("checkpoint/*.bad-1")} == {"latest.pt.bad-1", "previous.pt.bad-1"}


@pytest.mark.slow
def test_killed_between_the_two_names(whole: Path, cut: Path) -> None:
    """The latest has become the previous one, and the new one has not got its name yet."""
    (cut / LATEST).rename(cut / "checkpoint" / "latest.new")
    (cut / "checkpoint" / "latest.new").replace(cut / PREVIOUS)
    finished(whole, cut)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["shorter", "missing", "a digit"])
def test_a_table_that_is_not_what_the_checkpoint_saw(whole: Path, cut: Path, damage: str) -> None:
    """Its rows would be in the result."""
    table = cut / "metrics.csv"
    rows = table.read_text().splitlines(keepends=True)
    if damage == "shorter":
        table.write_text("".join(rows[:2]) + rows[2][:5])
    elif damage == "missing":
        table.unlink()
    else:
        flipped(table, table.read_text().index("\n0,3,") + 12)
    said = finished(whole, cut)
    assert "metrics.csv is shorter than the" in said.err
    assert said.err.count("kept as") == 2
    assert (cut / "metrics.csv.bad-1").exists() == (damage != "missing")


@pytest.mark.slow
def test_a_table_that_only_the_previous_checkpoint_saw(whole: Path, cut: Path) -> None:
    kept = train.Checkpoint.load(cut / PREVIOUS)
    os.truncate(cut / "metrics.csv", kept.metrics_bytes + 3)
    assert "; the run goes on from round 8 of seed 0" in finished(whole, cut).err


@pytest.mark.slow
def test_no_times_at_all(whole: Path, cut: Path) -> None:
    (cut / "timing.csv").unlink()
    assert "kept as" not in call(*GIVEN, "outputs=cut").err
    assert (cut / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


@pytest.mark.slow
def test_lost_times_cost_no_round(whole: Path, cut: Path) -> None:
    (cut / "timing.csv").write_text("seed,round,seconds\n0,0,0.1\n0,3")
    said = call(*GIVEN, "outputs=cut")
    assert said.code == 0
    assert "kept as" not in said.err
    assert (cut / "timing.csv").read_text().splitlines()[1] == "0,0,0.1"
    assert all(line.count(",") == 2 for line in (cut / "timing.csv").read_text().splitlines())


@pytest.mark.slow
def test_another_runs_interrupted_folder_under_this_name(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = cut_after(14, monkeypatch, "eps=8")
    ours = theirs.with_name(whole.name)
    theirs.rename(ours)
    said = call(*GIVEN, "outputs=cut")
    assert said.code == 0, said.err
    assert f"is a checkpoint of run {theirs.name}; kept as latest.pt.bad-1; the run begins anew" in said.err
    same_numbers(whole, ours)


@pytest.mark.slow
@pytest.mark.parametrize("sweep", [False, True], ids=["run", "sweep"])
def test_another_runs_finished_folder_under_this_name(whole: Path, sweep: bool) -> None:
    theirs = call(*GIVEN, "eps=8", "outputs=cut").folder
    ours = theirs.with_name(whole.name)
    theirs.rename(ours)
    said = call(*GIVEN[:1], *(["-m"] if sweep else []), *GIVEN[1:], "outputs=cut")
    assert said.code == 0, said.err
    assert f"{ours}: holds the result of run {theirs.name}, kept as {ours.name}.old-1" in said.err
    assert "already" not in said.err.replace("0 of them finished already", "")
    same_numbers(whole, ours.absolute())
    assert read(ours.with_name(f"{ours.name}.old-1"), "result.json")["eps_target"] == 8


@pytest.mark.slow
def test_a_checkpoint_of_another_version(whole: Path, cut: Path) -> None:
    """As one was before checkpoints had a checksum."""
    for file in (LATEST, PREVIOUS):
        content = torch.load(cut / file, weights_only=True)
        torch.save({**content, "more": 1}, cut / file)
    finished(whole, cut)


@pytest.mark.slow
def test_a_checkpoint_is_read_with_the_weights_alone(cut: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No code in it is run, checksum or not."""
    asked: list[Any] = []
    real = torch.load
    monkeypatch.setattr(
        torch, "load", lambda *given, **named: (asked.append(named["weights_only"]), real(*given, **named))[1]
    )
    train.Checkpoint.load(cut / LATEST)
    assert asked == [True]


class Interrupting:
    """A file whose n-th write a second signal interrupts."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def write(self, data: Any) -> int:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return memoryview(data).nbytes

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("writes", [1, 2, 3, 5, 9, 15])
def test_a_second_signal_out_of_a_save_is_a_signal(writes: int) -> None:
    """torch alone raises RuntimeError for some of these: the run would be told as failed."""
    with pytest.raises(KeyboardInterrupt):
        train._save({"a": torch.zeros(1000), "b": torch.ones(3)}, Interrupting(writes))  # type: ignore[arg-type]


def test_torch_alone_raises_another_error() -> None:
    """The negative control."""
    ended = set()
    for writes in (1, 2, 3, 5, 9, 15):
        try:
            torch.save({"a": torch.zeros(1000), "b": torch.ones(3)}, Interrupting(writes))  # type: ignore[arg-type]
        except (KeyboardInterrupt, RuntimeError) as error:
            ended.add(type(error))
    assert RuntimeError in ended


# --- sealed files ---


@pytest.fixture
def seal(tmp_path: Path) -> Callable[..., Path]:
    def write(content: bytes, **told: Any) -> Path:
        with sealed.writing(tmp_path / "one.pt", **told) as file:
            file.write(content)
        return tmp_path / "one.pt"

    return write


def test_what_is_sealed_is_told(seal: Callable[..., Path]) -> None:
    path = seal(b"content", run_id="abc", origin={"data": None})
    assert sealed.footer(path) == sealed.check(path) == {"run_id": "abc", "origin": {"data": None}}
    assert [path.name for path in path.parent.iterdir() if path.suffix == ".part"] == []


def test_what_is_told_cannot_be_changed(seal: Callable[..., Path]) -> None:
    """Neither can a line that is well-formed in itself."""
    path = seal(b"content", run_id="abc")
    content = path.read_bytes()
    found = json.loads(content[-sealed.END :])
    path.write_bytes(content[: -sealed.END] + sealed._padded({**found, "run_id": "abd"}))
    assert sealed.footer(path)["run_id"] == "abd"
    with pytest.raises(sealed.Broken, match="checksum"):
        sealed.check(path)


def test_a_kill_while_it_is_written_leaves_what_was_there(seal: Callable[..., Path]) -> None:
    path = seal(b"first")

    def killed() -> None:
        with sealed.writing(path) as file:
            file.write(b"half")
            raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        killed()
    sealed.check(path)
    assert path.read_bytes()[:5] == b"first"


def test_a_folder_is_set_aside_under_the_next_free_name(whole: Path) -> None:
    shutil.copytree(whole, whole.with_name(f"{whole.name}.old-1"))
    said = call(*GIVEN, "outputs=whole", "--force")
    assert said.code == 0
    assert f"kept as {whole.name}.old-2" in said.err
