"""One round of every model on the data of its papers, at both privacy units, on the smallest real
sample there is.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from helpers.command import QUICK, call, metrics, read
from helpers.federations import CONF
from helpers.real_data import real_data
from model_rounds import CASES, FILES, sample

WHOLE = {"mushrooms", "quadratics", "synthetic_linear"}  # every other set is a sample, and its results say so
UNITS = {"client": ("dp_fedavg",), "record": ("dp_scaffold", "privacy=record")}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("samples")


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", CASES)
def test_one_round(name: str, unit: str, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, (algo, *asked) = CASES[name], UNITS[unit]
    if case.model == "vgg11":
        algo = "dp_fedavg"  # 6 GB; SCAFFOLD's controls make it 10
    if case.dataset in FILES:
        monkeypatch.setenv(
            "DPFL_DATA_DIR", str(sample(case.dataset, real_data(*FILES[case.dataset]), samples))
        )
    asked += [f"algo={algo}", f"batch_size={min(2, case.lot)}", "eps=8", "rounds=1", "local_steps=1"]
    said = call("run", *case.arguments, *asked, *QUICK)
    result, rows = read(said.folder, "result.json"), metrics(said.folder)
    assert (result["status"], result["unit"]) == ("done", unit)
    assert 0 < result["eps"] <= 8
    assert rows["train_loss"].map(math.isfinite).all()
    assert rows["train_loss"].nunique() == 2  # it moved
    assert bool(result["subset"]) == (case.dataset not in WHOLE)
    shutil.rmtree(said.folder)  # VGG-11 takes half a gigabyte, and pytest keeps the folders of three sessions


def test_every_model_is_here() -> None:
    assert {path.stem for path in (CONF / "model").glob("*.yaml")} == {case.model for case in CASES.values()}
