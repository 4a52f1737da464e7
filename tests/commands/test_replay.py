"""`dpfl-bench replay`: a folder's question again, from the folder alone, and whether every number
is the same.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.command import QUICK, call, command, read

from dpfl_bench.results import code_hashes

SMALL = ("algo=dp_scaffnew", "total_steps=20", "local_steps=4", *QUICK)
SAME = "dpfl-bench: every number is the same: "


@pytest.fixture
def folder() -> Path:
    return call("run", *SMALL, "repeats=2", "seed=3").folder.absolute()


@pytest.mark.slow
def test_a_folder_that_was_moved_is_replayed_from_anywhere(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "a b, c=d"
    folder.rename(moved)
    before = {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()}
    (tmp_path / "elsewhere").mkdir()
    said = command("replay", str(moved), "--check", "--to", "x y", cwd=tmp_path / "elsewhere")
    assert said.code == 0, said.err
    assert said.err.splitlines()[-1].startswith(SAME)
    assert Path(said.out.strip()) == tmp_path / "elsewhere" / "x y" / "runs" / folder.name
    assert {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()} == before
    assert (Path(said.out.strip()) / "metrics.csv").read_bytes() == (moved / "metrics.csv").read_bytes()


def test_it_computes_every_time(folder: Path) -> None:
    """An earlier replay that lies there is not compared in its place."""
    for number in range(2):
        assert call("replay", str(folder), "--check").code == 0
        (replayed,) = [path for path in Path("outputs/replays/runs").iterdir() if ".old-" not in path.name]
        (replayed / "metrics.csv").write_text("rotten\n")
        assert replayed.with_name(f"{replayed.name}.old-1").exists() == (number == 1)


@pytest.mark.parametrize("damage", ["a digit", "a row", "a column", "result", "privacy", "no privacy"])
def test_what_differs_is_told(folder: Path, damage: str) -> None:
    table = (folder / "metrics.csv").read_text()
    rows = table.splitlines(keepends=True)
    if damage == "a digit":
        cells = rows[4].split(",")
        (folder / "metrics.csv").write_text(
            "".join(
                [
                    *rows[:4],
                    ",".join([*cells[:5], f"{cells[5][:-1]}{(int(cells[5][-1]) + 1) % 10}", *cells[6:]]),
                    *rows[5:],
                ]
            )
        )
        expected = f"metrics.csv, row 4 ({cells[0]},{cells[1]}), test_loss: was "
    elif damage == "a row":
        (folder / "metrics.csv").write_text("".join(rows[:-1]))
        expected = f"metrics.csv: had {len(rows) - 2} rows, now {len(rows) - 1}"
    elif damage == "a column":
        (folder / "metrics.csv").write_text(table.replace("test_error", "mistakes"))
        expected = "metrics.csv: the columns were seed,"
    else:
        name = "result.json" if damage == "result" else "privacy.json"
        content = read(folder, name)
        if damage == "result":
            content["partition"]["sizes"]["max"] += 1
        else:
            content["eps"] *= 1 + 1e-15
        (folder / name).write_text(json.dumps(content))
        if damage == "no privacy":
            (folder / name).unlink()
        expected = {
            "result": "result.json: partition.sizes.max was ",
            "privacy": "privacy.json: eps was ",
        }.get(damage, "privacy.json was None")
    said = call("replay", str(folder), "--check")
    assert said.code == 1
    assert said.err.splitlines()[-1].startswith(f"dpfl-bench: differs: {expected}"), said.err
    assert call("replay", str(folder)).code == 0, "nobody asked whether"


def test_which_code_and_data_differ_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_file = code_hashes._read
    monkeypatch.setattr(
        code_hashes, "_read", lambda file: ("0" * 16, ()) if file.name == "scaffnew.py" else read_file(file)
    )
    monkeypatch.setattr(code_hashes, "_package", lambda: ("0" * 16, 0))
    said = call("replay", str(folder), "--check")
    assert said.code == 0, "every number is the same"
    assert said.err.splitlines()[1:3] == [
        "dpfl-bench: the code that it names is other than it was (dpfl_bench.algorithms.scaffnew)",
        "dpfl-bench: dpfl-bench itself is other than it was",
    ]


def test_relative_paths_are_of_where_it_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    (tmp_path / "records").write_text(
        "".join(f"{1 + r % 2} 1:{draw.random():.4f} 2:{draw.random():.4f}\n" for r in range(60))
    )
    given = (
        "dataset=libsvm",
        "dataset.path=records",
        "partition=iid",
        "clients=3",
        "algo=dp_fedavg",
        "total_steps=4",
        "local_steps=2",
        *QUICK,
    )
    folder = call("run", *given).folder.absolute()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "records").write_text("1 1:1\n2 2:1\n" * 30)
    monkeypatch.chdir(tmp_path / "other")
    said = call("replay", str(folder), "--check")
    assert said.err.splitlines()[-1].startswith(SAME), said.err
    assert (tmp_path / "other" / "outputs" / "replays").is_dir(), "it is written where it was asked"


def test_refusals(folder: Path) -> None:
    itself = call("replay", str(folder), "--to", "outputs")
    assert (itself.code, itself.err.count("\n")) == (2, 1)
    assert "which is not to be touched" in itself.err
    shutil.rmtree(folder / "checkpoint")
    (folder / "result.json").unlink()
    unfinished = call("replay", str(folder), "--check")
    assert (unfinished.code, unfinished.err.count("\n")) == (2, 1)
    assert "found no result" in unfinished.err
    assert call("replay", str(folder)).code == 0, "its question is there"
    nothing = call("replay", "outputs")
    assert (nothing.code, nothing.err.count("\n")) == (2, 1)


def test_a_diverged_run_is_the_same_again() -> None:
    said = call("run", "lr=1e30", *SMALL)
    assert said.code == 1
    again = call("replay", said.out.strip(), "--check")
    assert again.code == 0, again.err
    assert call("replay", said.out.strip()).code == 1


def test_help() -> None:
    said = call("replay", "--help")
    assert said.code == 0
    assert "--check" in said.out
    assert "replay outputs/runs/ID" in call("--help").out
