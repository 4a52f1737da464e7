"""Run folders and what is collected of them: growing tables, atomic files, the optimal-(E, T) table, the pictures."""

from __future__ import annotations

import json
import math
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command import call

from dpfl_bench.results import collect, plots
from dpfl_bench.results.clean import clean
from dpfl_bench.results.folder import METRICS, GrowingCsv, RunFolder
from dpfl_bench.settings import ConfigError

NAN, INF = math.nan, math.inf


def png_size(path: Path) -> tuple[int, int]:
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", header[16:24])
    return width, height


def test_a_table_grows_and_is_cut_back(tmp_path: Path) -> None:
    table = GrowingCsv(tmp_path / "new" / "metrics.csv", ["seed", "eps", "loss"])
    table.start()
    table.append({"seed": 0, "eps": 0.1, "loss": 1 / 3})
    size = table.size
    assert size == len("seed,eps,loss\n0,0.1,0.3333333333333333\n")
    table.append({"seed": 0, "eps": 0.2, "loss": 0.25})
    with table.path.open("a") as file:
        file.write("0,0.3")  # cut off in the middle of a row
    table.start(size)
    table.append({"seed": 1, "eps": INF, "loss": NAN})
    assert table.path.read_text() == "seed,eps,loss\n0,0.1,0.3333333333333333\n1,inf,\n"
    rows = pd.read_csv(table.path)
    assert rows["loss"].iloc[0] == 1 / 3
    assert rows["eps"].iloc[1] == INF
    assert math.isnan(rows["loss"].iloc[1])
    table.start()
    assert table.path.read_text() == "seed,eps,loss\n"


def test_numbers_come_back_bit_for_bit(tmp_path: Path) -> None:
    table = GrowingCsv(tmp_path / "m.csv", ["x", "unknown"])
    table.start()
    numbers = [0.1, 1e-300, 2**53 + 1.0, math.pi, -0.0, 5e-324, 1.7976931348623157e308]
    for number in numbers:
        table.append({"x": number, "left out": 3})
    lines = table.path.read_text().splitlines()[1:]
    assert [struct.pack("d", float(line.rstrip(","))) for line in lines] == [struct.pack("d", n) for n in numbers]


def test_numbers_of_numpy_are_plain_numbers(tmp_path: Path) -> None:
    table = GrowingCsv(tmp_path / "m.csv", ["x", "y", "z"])
    table.start()
    table.append({"x": np.float64(0.1), "y": np.int64(3), "z": np.float64("nan")})
    assert table.path.read_text() == "x,y,z\n0.1,3,\n"


def test_metrics_begin_with_the_contracts_columns() -> None:
    contract = "seed, round, steps, eps, train_loss, test_loss, test_metric, test_error, update_norm, clipped_fraction, server_step"
    assert METRICS[:11] == contract.split(", ")
    assert len(set(METRICS)) == len(METRICS)


def test_clean() -> None:
    given = {"a": NAN, "b": [1.0, (NAN, INF)], 3: {"c": None, "d": "nan"}, "e": np.float64("nan"), "f": True}
    assert clean(given) == {"a": None, "b": [1.0, [None, INF]], "3": {"c": None, "d": "nan"}, "e": None, "f": True}
    assert json.loads(json.dumps(clean(given)))["b"] == [1.0, [None, INF]]


def test_a_folder_keeps_the_old_file_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.at(str(tmp_path), "abc")
    assert folder.path == tmp_path / "runs" / "abc"
    assert folder.read("status.json") is None
    folder.write("status.json", {"status": "running", "x": NAN})
    assert folder.read("status.json") == {"status": "running", "x": None}

    def stopped(self: Path, *_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            folder.write("status.json", {"status": "done"})
    assert folder.read("status.json") == {"status": "running", "x": None}


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write("privacy.json", {"n": 0, "long": ["x" * 1000] * 50})
    stop, seen, broken = threading.Event(), set(), []

    def watch() -> None:
        while not stop.is_set():
            try:
                seen.add((folder.read("privacy.json") or {})["n"])
            except (ValueError, KeyError) as error:
                broken.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    for n in range(200):
        folder.write("privacy.json", {"n": n, "long": ["x" * 1000] * 50})
    stop.set()
    thread.join()
    assert broken == []
    assert len(seen) > 1
    assert [path.name for path in tmp_path.iterdir()] == ["privacy.json"]


@pytest.mark.parametrize(("status", "finished"), [("done", True), ("diverged", True), ("running", False)])
def test_finished_is_what_the_result_says(tmp_path: Path, status: str, finished: bool) -> None:
    folder = RunFolder(tmp_path)
    assert folder.finished is None
    folder.write("result.json", {"status": status})
    assert (folder.finished is not None) == finished


def finish(name: str, where: str = "runs", *, status: str = "done", overrides: str = "", **more: Any) -> Path:
    """A run folder as a run leaves it."""
    base = {
        **{
            "run_id": name,
            "status": status,
            "algo": "dp_fedavg",
            "dataset": "digits",
            "eps_target": 2.0,
            "eps": 1.99,
            "local_steps": 5,
        },
        **{"rounds": 20, "clip": 1.0, "lr": 0.1, "test_error_mean": 0.2, "test_error_std": 0.0, "seeds": [0], "theory": None},
    }
    folder = RunFolder(Path(where) / name)
    folder.write("status.json", {"status": status})
    folder.write("result.json", {**base, **more})
    folder.write(".hydra/overrides.yaml", overrides)
    return folder.path


def test_the_table_takes_the_least_error_and_the_gap_to_no_privacy() -> None:
    finish("a", local_steps=1, rounds=100, test_error_mean=0.30)
    finish("b", local_steps=5, rounds=20, test_error_mean=0.25, test_error_std=0.01)
    finish("c", local_steps=10, rounds=10, test_error_mean=0.28)
    finish("d", eps_target=INF, eps=INF, local_steps=1, rounds=100, test_error_mean=0.10)
    finish("e", eps_target=INF, eps=INF, local_steps=5, test_error_mean=0.12)
    finish("f", algo="dp_scaffnew", local_steps=2, rounds=50, test_error_mean=0.24)
    finish("g", local_steps=20, rounds=5, status="diverged", test_error_mean=NAN)
    collected = collect.collect(["runs"], "out")
    table = collected.table
    assert [tuple(row) for row in table[["algo", "eps_target", "local_steps", "rounds"]].itertuples(index=False)] == [
        ("dp_fedavg", INF, 1, 100),
        ("dp_fedavg", 2.0, 5, 20),
        ("dp_scaffnew", 2.0, 2, 50),
    ]
    assert table["gap"].iloc[:2].tolist() == pytest.approx([0, 0.15])
    assert math.isnan(table["gap"].iloc[2])
    lines = collect.markdown(table).splitlines()
    assert lines[0].count("|") == lines[1].count("|") == 8
    assert lines[3] == "| digits | dp_fedavg | 2 | 5 | 20 | 0.2500 ± 0.0100 | +0.1500 |"
    assert lines[4].endswith("| 0.2400 |  |")
    assert collect.TUNING in Path("out/table.md").read_text()
    assert len(pd.read_csv("out/results.csv")) == 7
    assert json.loads(collected.json())["table"][2]["gap"] is None


def test_a_half_finished_sweep_counts_what_there_is() -> None:
    finish("a", overrides="- lr=.1\n- model.l2=0.5\n- +x=1\n")
    for name, status in (("b", "running"), ("c", "failed")):
        RunFolder(Path("runs") / name).write("status.json", {"status": status})
    Path("runs/empty").mkdir()
    collected = collect.collect(["runs"], None)
    assert (collected.runs, sorted(collected.unfinished)) == (3, ["b", "c"])
    assert "unfinished: 2" in collected.text()
    (row,) = pd.read_csv("results.csv").to_dict("records")
    assert (row["lr"], row["model.l2"], row["x"]) == (0.1, 0.5, 1)


def test_a_run_that_is_finished_somewhere_is_finished() -> None:
    finish("a", "one/runs")
    RunFolder(Path("two/runs/a")).write("status.json", {"status": "interrupted"})
    for folders in (["one", "two"], ["two", "one"]):
        collected = collect.collect(folders, "out")
        assert (collected.runs, collected.unfinished) == (1, [])


def test_nothing_finished_and_nothing_but_divergence() -> None:
    RunFolder(Path("runs/a")).write("status.json", {"status": "running"})
    assert collect.collect(["runs"], "out").unfinished == ["a"]
    finish("b", status="diverged", test_error_mean=NAN)
    collected = collect.collect(["runs"], "out")
    assert len(collected.table) == 0
    assert "1 (a" in collected.text()
    with pytest.raises(ConfigError, match="expected folders with runs"):
        collect.collect(["nowhere"], None)


def test_u_curves_are_drawn_where_there_is_a_curve() -> None:
    for steps, error in ((1, 0.3), (5, 0.2), (20, 0.4)):
        finish(f"a{steps}", local_steps=steps, test_error_mean=error, test_error_std=0.02)
        finish(f"b{steps}", local_steps=steps, test_error_mean=error / 2, algo="dp_scaffnew", eps_target=INF)
    finish("lone", dataset="mushrooms")
    collect.collect(["runs"], "out")
    picture = Path("out/u_curves_digits.png")
    assert picture.stat().st_size > 10_000
    width, height = png_size(picture)
    assert 900 < width < 2000
    assert 300 < height < 1000
    assert not Path("out/u_curves_mushrooms.png").exists(), "one point is no curve"


@pytest.mark.parametrize("losses", [[0.7, 0.5, 0.4], [0.0, -0.1, NAN]])
def test_the_curve_of_a_run_is_drawn(losses: list[float]) -> None:
    table = GrowingCsv(Path("metrics.csv"), METRICS)
    table.start()
    for seed in (0, 1):
        for round, loss in enumerate(losses):
            table.append({"seed": seed, "round": round, "train_loss": loss + 0.01 * seed, "test_error": 0.5 - round / 10})
    common = {"algo": "dp_fedavg", "dataset": "digits", "delta": 1e-5, "unit": "client", "trust": "secagg", "local_steps": 2}
    plots.curve(table.path, {**common, "eps": 2.0, "metric": "accuracy"}, Path("curve.png"))
    width, height = png_size(Path("curve.png"))
    assert width > height > 300
    assert Path("curve.png").stat().st_size > 10_000


def test_different_guarantees_share_no_row(tmp_path: Path) -> None:
    """A run with a fixed noise stands under the eps that it really has, and central trust is not compared with secagg."""
    base = {"status": "done", "algo": "dp_fedavg", "dataset": "d", "model": "m", "clients": 9, "local_steps": 1, "rounds": 1, "delta": 1e-5}
    base |= {"neighbours": "replace_one", "observer": "server", "test_error_std": 0.0, "eps_target": 2.0}
    runs = {
        "calibrated": {"trust": "secagg", "eps": 1.9999, "test_error_mean": 0.3},
        "fixed": {"trust": "secagg", "eps": 46.2, "test_error_mean": 0.1},
        "trusting": {"trust": "central", "eps": 2.0, "test_error_mean": 0.2},
    }
    for name, more in runs.items():
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "status.json").write_text("{}")
        (folder / "result.json").write_text(json.dumps({**base, **more, "run_id": name}))
    text = call("collect", str(tmp_path / "runs")).out
    assert "| secagg, replace_one, server, delta 1e-05 | 2 | 1 | 1 | 0.3000" in text
    assert "| secagg, replace_one, server, delta 1e-05 | 46.2 | 1 | 1 | 0.1000" in text
    assert "| central, replace_one, server, delta 1e-05 | 2 | 1 | 1 | 0.2000" in text
