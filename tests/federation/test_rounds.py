"""One round of every model on the data of its papers, at both privacy units, on the smallest real
sample there is.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import model_rounds
import pytest
from helpers.command import QUICK, call, metrics, read
from helpers.federations import CONF
from model_rounds import CASES, is_whole, lacking, sample, tried

from dpfl_bench.data import ixi, messidor
from dpfl_bench.federation import round_player, workers

UNITS = {"client": ("dp_fedavg",), "record": ("dp_scaffold", "privacy=record")}
# of photographs and of volumes, pixels a side: a round's way does not depend on it, its time does
SIDE, SIDES = 64, (12, 15, 12)
LARGE = {  # whose loss takes longest: that of two training records is enough
    "messidor": (f"dataset.shape=[3,{SIDE},{SIDE}]", "dataset.test_fraction=0.1"),
    "ixi": (f"dataset.shape=[1,{','.join(map(str, SIDES))}]",),
    "reddit": (),
    "shakespeare": (),
    "cifar10": (),
    "femnist": (),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_rounds, "TRAINING", 100)
        patch.setattr(model_rounds, "TEST", 30)
        patch.setattr(messidor, "SIZE", SIDE)
        patch.setattr(ixi, "SHAPE", SIDES)
        yield tmp_path_factory.mktemp("samples")


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", CASES)
def test_one_round(name: str, unit: str, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, (algo, *asked) = CASES[name], UNITS[unit]
    if case.model == "vgg11":  # whole it has 515 MB a vector, and one vector of sums fits
        asked += ["model.hidden=[64,64]", f"model.pooled={SIDE // 32}"]  # no averaging, as at 224
        for where in (round_player, workers):
            monkeypatch.setattr(where, "most_groups", lambda dimension: 1)
    root = Path(os.environ.get("DPFL_DATA_DIR", "/nonexistent"))
    if lacks := lacking(case.dataset, root):
        pytest.skip(f"real data: set DPFL_DATA_DIR to a folder with {lacks}")
    monkeypatch.setenv("DPFL_DATA_DIR", str(sample(case.dataset, root, samples)))
    if case.dataset in LARGE:
        asked += ["train_subset=2", *LARGE[case.dataset]]
    if unit == "record":  # each worker would try anew whether the model's records stay apart
        asked += ["engine.workers=1"]
    asked += [f"algo={algo}", f"batch_size={min(2, case.lot)}", "eps=8", "rounds=1", "local_steps=1"]
    said = call("run", *case.arguments, *asked, *QUICK)
    result, rows = read(said.folder, "result.json"), metrics(said.folder)
    assert (result["status"], result["unit"]) == ("done", unit)
    assert 0 < result["eps"] <= 8
    assert rows["train_loss"].map(math.isfinite).all()
    assert rows["train_loss"].nunique() == 2  # it moved
    cut = any(word.startswith("dataset.fraction=") for word in case.overrides)
    assert bool(result["subset"]) == (cut or not is_whole(case.dataset, root))
    shutil.rmtree(said.folder)  # VGG-11 takes half a gigabyte, and pytest keeps the folders of three sessions


def test_a_model_s_file_says_what_it_is_tried_on(tmp_path: Path) -> None:
    assert {path.stem for path in (CONF / "model").glob("*.yaml")} == {case.model for case in CASES.values()}
    (tmp_path / "mine.yaml").write_text(
        "# Mine\n# Try: dataset=mnist clients=3\n#   partition=iid\n"
        "# Try: dataset=ixi clients=2 batch_size=4\nname: mine\n# Try: dataset=reddit clients=9\n"
    )
    one, other = tried(tmp_path)
    assert one == (
        "mine",
        "mnist",
        3,
        ("dataset.verify=false", "dataset.download=false", "partition=iid"),
        16,
    )
    assert other == ("mine", "ixi", 2, (), 4)
    (tmp_path / "mute.yaml").write_text("name: mute\n")
    with pytest.raises(ValueError, match=r"mute.yaml: expected a line like `# Try: "):
        list(tried(tmp_path))


def test_what_lacks_for_a_round_is_said(tmp_path: Path) -> None:
    assert lacking("quadratics", tmp_path) == ""
    assert is_whole("quadratics", tmp_path)
    assert "MNIST/raw/train-images-idx3-ubyte" in lacking("mnist", tmp_path)
    assert "train/*.json" in lacking("femnist", tmp_path)
    assert not is_whole("femnist", tmp_path)
