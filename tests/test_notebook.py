"""`dpfl_bench.run`, `plan`, `load` and `Run`, and docs/notebook.ipynb."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.command import call, read
from helpers.imported import loaded_by

import dpfl_bench
from dpfl_bench.checks.errors import ConfigError

ROOT = Path(dpfl_bench.__file__).parents[1]
ASKED = {"algo": "dp_fedavg", "eps": 2, "rounds": 3, "local_steps": 2, "plot": False, "device": "cpu"}


def words(asked: dict[str, Any]) -> list[str]:
    return [f"{key}={str(value).lower()}" for key, value in asked.items()]


def test_a_run_is_the_command_s() -> None:
    made = dpfl_bench.run(ASKED | {"repeats": 2})
    said = call("run", *words(ASKED), "repeats=2")
    assert said.folder == made.path
    assert "already done" in said.err
    pd.testing.assert_frame_equal(made.metrics, pd.read_csv(made.path / "metrics.csv"))
    assert [*made.metrics["round"]] == [0, 1, 2, 3] * 2
    assert made.result == read(made.path, "result.json")
    assert made.privacy["private"] is True
    assert {seed: vector.shape for seed, vector in made.parameters.items()} == {0: (30,), 1: (30,)}
    assert "test error" in repr(made)


def test_its_line_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    """The folder's name, which the command prints last, is `path`."""
    dpfl_bench.run(ASKED)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("test error") == 1
    dpfl_bench.run(ASKED)
    assert "already done" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ({"privacy": {"clip": 0.1, "neighbours": "add_remove_one"}}, {"privacy.clip": 0.1}),
        ({"privacy.clip": np.float64(0.1)}, {"privacy.clip": 0.1}),
        ({"outputs": Path("else where")}, {}),
        ({"eps": math.inf}, {}),
        ({"dataset": "mnist", "model": "mlp", "model.hidden": [3, 4]}, {"model.hidden": [3, 4]}),
        ({"stop_at_eps": None}, {"stop_at_eps": None}),
    ],
)
def test_settings_are_typed_as_on_the_command_line(asked: dict[str, Any], same: dict[str, Any]) -> None:
    from dpfl_bench.notebook import _composed

    by_name = _composed(asked, None).by_name
    for key, value in (same or {k: str(v) if isinstance(v, Path) else v for k, v in asked.items()}).items():
        assert by_name[key] == value


def test_plan_is_the_command_s() -> None:
    asked = {"algo": "dp_fedavg", "eps": 1}
    assert dpfl_bench.plan(asked) == call("plan", "--json", *words(asked)).json
    assert dpfl_bench.plan()["algo"] == "dp_scaffnew"


def test_load_is_results_csv(tmp_path: Path) -> None:
    for eps in (1, 2):
        dpfl_bench.run(ASKED | {"eps": eps})
    loaded = dpfl_bench.load("outputs/runs")
    assert [*loaded["eps_target"]] == [2, 1]
    before = sorted(Path("outputs").rglob("*"))
    dpfl_bench.load(Path("outputs"))
    assert sorted(Path("outputs").rglob("*")) == before  # it writes nothing
    assert call("collect", "outputs/runs").code == 0
    written = pd.read_csv("outputs/results.csv")
    assert [*written["run_id"]] == [*loaded["run_id"]]
    shared = [
        "eps",
        "noise_multiplier",
        "test_error_mean",
        "privacy.clip" if "privacy.clip" in written else "clip",
    ]
    np.testing.assert_array_equal(written[shared].to_numpy(), loaded[shared].to_numpy())


def test_what_is_wrong_is_refused_in_the_same_words(tmp_path: Path) -> None:
    for asked, said in (
        ({"esp": 2}, "esp=2: unknown key; did you mean eps=2?"),
        ({"eps": -1}, "eps=-1: expected eps > 0"),
        ({"eps": [1, 2]}, r"eps=\[1, 2\]: expected a number"),
        ({"algo": "nosuch"}, "algo=nosuch: no such choice"),
    ):
        with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
            dpfl_bench.run(asked)
    with pytest.raises(ConfigError, match="expected the folder of a finished run"):
        dpfl_bench.Run(tmp_path)
    with pytest.raises(ConfigError, match="expected folders with finished runs"):
        dpfl_bench.load(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        dpfl_bench.runs  # noqa: B018


def test_an_own_folder(tmp_path: Path) -> None:
    (tmp_path / "mine" / "algo").mkdir(parents=True)
    text = (ROOT / "conf/algo/dp_fedavg.yaml").read_text().replace("name: dp_fedavg", "name: mine")
    (tmp_path / "mine/algo/mine.yaml").write_text(text)
    made = dpfl_bench.plan({"algo": "mine"}, config_dir=str(tmp_path / "mine"))
    assert made["algo"] == "mine"


def test_importing_the_package_is_cheap() -> None:
    loaded = loaded_by("import dpfl_bench; dpfl_bench.__version__")
    assert not loaded & {"torch", "pandas", "numpy", "hydra"}


def test_the_notebook_runs() -> None:
    cells = json.loads((ROOT / "docs/notebook.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    assert names["table"].shape == (2, 2)
    assert (names["table"] > 0).all().all()
    assert [*names["budgets"]] == [0.5, 1, 2]
    text = "".join(line for cell in cells for line in cell["source"])
    assert all(word in text for word in ("metrics", "parameters", "load", "plan"))
