"""What looks at a YAML file of somebody's calls nothing that it names; and names become no
paths.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command import QUICK, call, read
from helpers.federations import CONF, settings_of

from dpfl_bench.checks.errors import ConfigError

pytestmark = pytest.mark.one_in(10)

# a module whose functions tell that they were called
MINE = """
from pathlib import Path
import numpy as np
from torch import nn
from dpfl_bench.algorithms.fedavg import FedAvg
from dpfl_bench.data.records import Records

def tell(what):
    with open({log!r}, "a") as file:
        file.write(what + "\\n")

def load():
    tell("dataset")
    x, y = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32), np.arange(40) % 2
    return Records(x, y, x[:8].copy(), y[:8].copy(), None, 2, "mine", None)

def deal(labels, clients, rng):
    tell("partition")
    return np.array_split(rng.permutation(len(labels)), clients)

def model(shape, classes):
    tell("model")
    return nn.Sequential(nn.Linear(shape[0], 3), nn.ReLU(), nn.Linear(3, classes))

class Algo(FedAvg):
    def __init__(self):
        tell("algo")
"""
DATASET = (
    "_target_: {target}\nname: mine\nshape: [4]\nclasses: 2\nrecords: 40\nclients: 2\nlr: 1.0\ntest_fraction:"
    " 0.0\nsplit: global\nstandardise: none\nunit_norm: false\nseed: 0\nmax_row_norm: null\ngram:"
    " null\ncommand: touch {log}\n"
)
FILES = {
    "dataset": DATASET,
    "partition": "_target_: {target}\nname: mine\nseed: 0\ncommand: touch {log}\n",
    "model": "_target_: {target}\nname: mine\ncommand: touch {log}\n",
    "algo": (
        "# @package _global_\nalgo:\n  _target_: {target}\n  name: mine\n  private: true\n  command: touch"
        " {log}\n"
    ),
}
NAMED = {"dataset": "mine.load", "partition": "mine.deal", "model": "mine.model", "algo": "mine.Algo"}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it would be told that something was called."""
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text(MINE.format(log=str(tmp_path / "called")))
    return tmp_path / "called"


def written(tmp_path: Path, log: Path, group: str, target: str, more: str = "") -> str:
    """A folder with one file of one's own."""
    file = tmp_path / "own" / group / "mine.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = FILES[group].format(target=target, log=log)
    file.write_text(
        (text if target == "os.system" or group == "algo" else text.rpartition("command: ")[0]) + more
    )
    if target != "os.system" and group == "algo":
        file.write_text(text.rpartition("  command: ")[0])
    return str(tmp_path / "own")


LOOKING = [
    ("plan",),
    ("plan", "--views"),
    ("run", "-m", "--dry-run"),
    ("run", "--cfg", "job"),
    ("list",),
    ("data", "list"),
    ("data", "show"),
]


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
@pytest.mark.parametrize("target", ["mine", "os.system"])
@pytest.mark.parametrize("group", FILES)
def test_what_only_looks_calls_nothing(
    arguments: tuple[str, ...], group: str, target: str, tmp_path: Path, log: Path
) -> None:
    folder = written(tmp_path, log, group, NAMED[group] if target == "mine" else target)
    chosen = () if "list" in arguments else (f"{group}=mine", "clients=2", "partition=iid")
    chosen = tuple(word for word in chosen if group != "partition" or word != "partition=iid")
    said = call(*arguments, "-cd", folder, *chosen)
    assert not log.exists(), said
    assert said.code in (0, 2), said.err
    assert "Traceback" not in said.err
    if said.code:
        assert said.err.count("\n") == 1
        assert "_target_=" in said.err


@pytest.mark.parametrize("group", FILES)
def test_a_run_calls_it_by_design(group: str, tmp_path: Path, log: Path) -> None:
    """The negative control."""
    folder = written(tmp_path, log, group, NAMED[group])
    chosen = [f"{group}=mine", "clients=2", *([] if group == "partition" else ["partition=iid"])]
    said = call("run", "-cd", folder, *chosen, *QUICK, "local_steps=1", "total_steps=1")
    assert said.code == 0, said.err
    assert group in log.read_text().split()


@pytest.mark.parametrize("group", ["dataset", "partition"])
def test_data_show_calls_it_when_told_to(group: str, tmp_path: Path, log: Path) -> None:
    folder = written(tmp_path, log, group, NAMED[group])
    chosen = [f"{group}=mine", "clients=2", *([] if group == "partition" else ["partition=iid"])]
    refused = call("data", "show", "-cd", folder, *chosen)
    assert refused.code == 2
    assert (
        refused.err
        == f"dpfl-bench: {group}._target_={NAMED[group]}: data show calls no code of your own unless you say"
        " --own-code\n"
    )
    assert not log.exists()
    assert call("data", "show", "--own-code", "-cd", folder, *chosen).code == 0
    assert log.read_text().split() == [group]


@pytest.mark.parametrize("group", FILES)
def test_python_s_own_functions_are_nobody_s_target(group: str, tmp_path: Path, log: Path) -> None:
    folder = written(tmp_path, log, group, "os.system")
    chosen = [f"{group}=mine", "clients=2", *([] if group == "partition" else ["partition=iid"])]
    said = call("run", "-cd", folder, *chosen, *QUICK)
    assert said.code == 2
    assert (
        "_target_=os.system: expected a function or class of dpfl_bench or of your own, not one of Python's"
        " library" in said.err
    )
    assert not log.exists()


# the noise on FedEXP's norms and PrivUnit's messages follow from the number of parameters
NEEDS_PARAMETERS = [
    ("algo=dp_fedexp",),
    ("algo=dp_fedavg", "privacy=local", "privacy.mechanism=privunit", "eps=30"),
]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", NEEDS_PARAMETERS)
def test_plan_asks_how_many_parameters_a_model_of_one_s_own_has(
    overrides: tuple[str, ...], tmp_path: Path, log: Path
) -> None:
    asked = ("model=mine", "clients=2", "partition=iid", *overrides)
    folder = written(tmp_path, log, "model", "mine.model")
    refused = call("plan", "-cd", folder, *asked)
    assert refused.code == 2
    assert (
        "model._target_=mine.model: plan calls no code of your own; say in the YAML file how many parameters"
        in refused.err
    )
    assert not log.exists()
    written(tmp_path, log, "model", "mine.model", "parameters: 101\n")  # 30 x 3 + 3 + 3 x 2 + 2
    planned = call("plan", "-cd", folder, *asked, "--json").json
    assert not log.exists()
    run = read(
        call("run", "-cd", folder, *asked, *QUICK, "local_steps=5", "total_steps=10").folder, "result.json"
    )
    assert run["parameters"] == 101
    assert planned["releases"] == 10
    written(tmp_path, log, "model", "mine.model", "parameters: 99\n")
    wrong = call("run", "-cd", folder, *asked, *QUICK, "outputs=other")
    assert (wrong.code, wrong.err) == (
        2,
        "dpfl-bench: model.parameters=99: the model has 101; correct the YAML file\n",
    )


def test_a_network_that_calls_itself_logreg_has_its_own_parameters(tmp_path: Path, log: Path) -> None:
    """What is called is asked, not what it is called: the noise of a run follows from it."""
    folder = written(tmp_path, log, "model", "mine.model")
    file = tmp_path / "own/model/mine.yaml"
    file.write_text(file.read_text().replace("name: mine", "name: logreg"))
    chosen = ("algo=dp_fedexp", "model=mine", "clients=2", "partition=iid")
    ledger = read(
        call("run", "-cd", folder, *chosen, *QUICK, "local_steps=5", "total_steps=10").folder, "privacy.json"
    )
    ours = call(
        "plan", "algo=dp_fedexp", "clients=2", "partition=iid", "local_steps=5", "total_steps=10", "--json"
    ).json
    norms, of_thirty = (
        ledger["releases"][1]["noise_multiplier"],
        ours["further_releases"][0]["noise_multiplier"],
    )
    ratio = ledger["releases"][0]["noise_multiplier"] / ours["noise_multiplier"]
    assert norms / of_thirty == pytest.approx(101 / 30 * ratio**2, rel=1e-3)


def test_models_of_ours_are_planned_as_before() -> None:
    assert call("plan", "algo=dp_fedexp", "dataset=mnist", "model=fedexp_ldp", "clients=100").code == 0


# --- names ---

BAD = [
    "../../x",
    "/tmp/x",
    "a/b",
    "a\\\\b",
    "..",
    ".hidden",
    "-rf",
    "+cmd",
    "a b",
    "<script>",
    "=1+1",
    "",
    "a\nb",
    "x" * 101,
]
LONELY = [("dataset", name) for name in BAD] + [
    (group, BAD[0]) for group in ("algo", "model", "partition", "privacy")
]


@pytest.mark.parametrize(("group", "name"), LONELY)
def test_a_name_is_no_path(group: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "a" / "b" / "c"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    for arguments in (("plan",), ("run", *QUICK), ("data", "show"), ("run", "-m")):
        said = call(*arguments, f"{group}.name='{name}'")
        assert said.code == 2, said
        assert f"{group}.name={' '.join(name.split())}: expected letters, digits, _ - . and +" in said.err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["mine", "a1a.t", "ijcnn1+x", "_x", "breast-cancer_2", "Étude"])
def test_a_name_is_a_name(name: str) -> None:
    assert settings_of(f"dataset.name='{name}'").dataset["name"] == name


def test_a_file_without_a_name_is_refused_in_one_line(tmp_path: Path, log: Path) -> None:
    folder = written(tmp_path, log, "partition", "mine.deal")
    file = tmp_path / "own/partition/mine.yaml"
    file.write_text(file.read_text().replace("name: mine\n", ""))
    with pytest.raises(ConfigError, match=r"^partition.name=None: expected letters, digits, "):
        settings_of("partition=mine", config_dir=folder)


def test_every_shipped_name_is_its_file_s() -> None:
    for group in ("dataset", "model", "partition", "privacy"):
        for file in (CONF / group).glob("[!_]*.yaml"):
            assert f"name: {file.stem}\n" in file.read_text()
