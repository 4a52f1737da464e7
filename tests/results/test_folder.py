"""A run's files: growing tables, atomic JSON, the picture of its course."""

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
from helpers.collected import png_size

from dpfl_bench.results import plots
from dpfl_bench.results.folder import METRICS, GrowingCsv, RunFolder
from dpfl_bench.results.json_numbers import clean

NAN, INF = math.nan, math.inf


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
    assert [struct.pack("d", float(line.rstrip(","))) for line in lines] == [
        struct.pack("d", n) for n in numbers
    ]


def test_numbers_of_numpy_are_plain_numbers(tmp_path: Path) -> None:
    table = GrowingCsv(tmp_path / "m.csv", ["x", "y", "z"])
    table.start()
    table.append({"x": np.float64(0.1), "y": np.int64(3), "z": np.float64("nan")})
    assert table.path.read_text() == "x,y,z\n0.1,3,\n"


def test_metrics_begin_with_the_contracts_columns() -> None:
    contract = (
        "seed, round, steps, eps, train_loss, test_loss, test_metric, test_error, update_norm,"
        " clipped_fraction, server_step"
    )
    assert METRICS[:11] == contract.split(", ")
    assert len(set(METRICS)) == len(METRICS)


def test_clean() -> None:
    given = {"a": NAN, "b": [1.0, (NAN, INF)], 3: {"c": None, "d": "nan"}, "e": np.float64("nan"), "f": True}
    assert clean(given) == {
        "a": None,
        "b": [1.0, [None, INF]],
        "3": {"c": None, "d": "nan"},
        "e": None,
        "f": True,
    }
    assert json.loads(json.dumps(clean(given)))["b"] == [1.0, [None, INF]]


def test_a_folder_keeps_the_old_file_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("losses", [[0.7, 0.5, 0.4], [0.0, -0.1, NAN]])
def test_the_curve_of_a_run_is_drawn(losses: list[float]) -> None:
    table = GrowingCsv(Path("metrics.csv"), METRICS)
    table.start()
    for seed in (0, 1):
        for round, loss in enumerate(losses):
            table.append(
                {
                    "seed": seed,
                    "round": round,
                    "train_loss": loss + 0.01 * seed,
                    "test_error": 0.5 - round / 10,
                }
            )
    common = {
        "algo": "dp_fedavg",
        "dataset": "digits",
        "delta": 1e-5,
        "unit": "client",
        "trust": "secagg",
        "local_steps": 2,
    }
    plots.curve(table.path, {**common, "eps": 2.0, "metric": "accuracy"}, Path("curve.png"))
    width, height = png_size(Path("curve.png"))
    assert width > height > 300
    assert Path("curve.png").stat().st_size > 10_000
