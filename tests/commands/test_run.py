"""`dpfl-bench run`: the run folder, asked twice, the user's own YAML, divergence, the other verbs'
surface.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
import yaml
from helpers.command import QUICK, Said, call, command, metrics, read
from helpers.federations import CONF, settings_of

from dpfl_bench import __version__, cli
from dpfl_bench.commands import version
from dpfl_bench.config import compose, validate
from dpfl_bench.machine import device

pytestmark = pytest.mark.one_in(2)


COLUMNS = [
    *("seed", "round", "steps", "eps", "train_loss", "test_loss", "test_metric", "test_error"),
    *("update_norm", "clipped_fraction", "server_step"),
]
FILES = {
    *(
        ".hydra/config.yaml",
        ".hydra/overrides.yaml",
        "status.json",
        "metrics.csv",
        "timing.csv",
        "result.json",
        "partition.csv",
        "client_eps.csv",
    ),
    *("privacy.json", "env.json", "checkpoint/final.pt", "curve.png", "origin.json", "partition.npz"),
}
RESULT = [
    *("run_id", "status", "algo", "dataset", "model", "eps_target", "eps", "delta"),
    *("unit", "trust", "neighbours", "accountant", "noise_multiplier", "clip", "rounds", "local_steps"),
    *(
        "total_steps",
        "clients",
        "sampled_clients",
        "seeds",
        "metric",
        "test_error_mean",
        "test_error_std",
        "best_round",
    ),
    *("seconds",),
]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """The installed command with no argument, in an empty folder."""
    cwd = tmp_path_factory.mktemp("empty")
    return cwd, command("run", cwd=cwd)


@pytest.mark.slow
def test_no_argument_is_enough(first: tuple[Path, Said]) -> None:
    cwd, said = first
    assert said.code == 0, said.err
    folder = cwd / said.out.splitlines()[-1]
    assert folder == cwd / "outputs" / "runs" / settings_of().run_id
    patch = {"diff.patch"} if read(folder, "env.json")["dirty"] else set()
    assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} == FILES | patch
    assert [p.name for p in cwd.iterdir()] == ["outputs"]
    assert "Traceback" not in said.err
    assert "test error" in said.err


def test_the_files_of_a_run(first: tuple[Path, Said]) -> None:
    cwd, said = first
    folder = cwd / said.out.splitlines()[-1]
    rows = metrics(folder)
    assert list(rows)[: len(COLUMNS)] == COLUMNS
    assert list(rows["round"]) == list(range(11))
    assert list(rows["steps"]) == list(range(0, 101, 10))
    result = read(folder, "result.json")
    assert [key for key in RESULT if key not in result] == []
    assert result["test_error_mean"] == rows["test_error"].iloc[-1]
    assert (result["status"], read(folder, "status.json")["status"]) == ("done", "done")
    assert (result["seeds"], result["metric"], result["partition"]["name"]) == ([0], "accuracy", "shards")
    assert len(result["partition"]["hash"]) == 16
    environment = read(folder, "env.json")
    assert environment["dpfl_bench"] == __version__
    assert environment["products"] == ("numpy" if device.numpy_multiplies() else "torch")
    assert (folder / "curve.png").stat().st_size > 10_000
    kept = yaml.safe_load((folder / ".hydra" / "config.yaml").read_text())
    assert kept == compose.composed([]).config


def test_it_learns_honestly(first: tuple[Path, Said]) -> None:
    """Under the exact accountant: well below the .37 of always answering the larger class."""
    cwd, said = first
    folder = cwd / said.out.splitlines()[-1]
    result, ledger = read(folder, "result.json"), read(folder, "privacy.json")
    assert result["test_error_mean"] < 0.12
    assert 0.99 * 2 < result["eps"] <= 2
    assert ledger["eps"] == result["eps"]
    assert ledger["accountants"]["pld"] == pytest.approx(2, rel=0.01)
    assert ledger["views"]["server"] == result["eps"]
    (release,) = ledger["releases"]
    assert (release["rounds"], release["clip"], release["sensitivity"]) == (10, 0.3, 0.6)
    assert release["noise_std"] == pytest.approx(0.6 * result["noise_multiplier"])
    assert ledger["not_accounted"]
    assert ledger["assumes"]


def test_asked_again_it_computes_nothing(first: tuple[Path, Said], monkeypatch: pytest.MonkeyPatch) -> None:
    cwd, said = first
    monkeypatch.chdir(cwd)
    folder = Path(said.out.splitlines()[-1])
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    again = call("run", "seed=0", "total_steps=100")  # the same question in other words
    assert again.code == 0
    assert again.out == said.out
    assert "already done" in again.err
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before


def test_cfg_job_composes_back_to_the_same_run() -> None:
    overrides = ("algo=dp_fedavg", "eps=3", "model.l2=0.02", "local_steps=5")
    shown = call("run", "--cfg", "job", *overrides)
    assert shown.code == 0
    told = yaml.safe_load(shown.out)
    assert (told["eps"], told["model"]["l2"], told["algo"]["name"]) == (3, 0.02, "dp_fedavg")
    Path("saved").mkdir()
    Path("saved/mine.yaml").write_text(shown.out)
    assert validate.settings(compose.composed([], "saved", "mine")).run_id == settings_of(*overrides).run_id


def test_a_typo_in_a_users_yaml_is_not_ignored() -> None:
    """In a primary config and in a choice that sets top-level keys; also a key that is missing."""
    Path("mine/algo").mkdir(parents=True)
    shipped = (CONF / "algo" / "dp_fedavg.yaml").read_text()
    Path("mine/algo/mine.yaml").write_text(shipped.replace("dp_fedavg", "mine") + "learning_rate: 3\n")
    Path("mine/study.yaml").write_text("defaults:\n  - config\n  - _self_\nep: 5.0\n")
    Path("mine/alone.yaml").write_text(call("run", "--cfg", "job").out.replace("seed: 0\nrepeats", "repeats"))
    for arguments, key in (("algo=mine", "learning_rate=3"), ("-cn study", "ep=5.0"), ("-cn alone", "seed")):
        said = call("run", "-cd", "mine", *arguments.split())
        assert said.code == 2
        assert f"dpfl-bench: {key}: " in said.err
        assert not Path("outputs").exists()


@pytest.mark.slow
def test_a_users_own_yaml(tmp_path: Path) -> None:
    """-cd DIR adds choices, hides ours of the same name, and holds primary configs for -cn."""
    text = (
        "# @package _global_\n# Mine\nalgo:\n  _target_: dpfl_bench.algorithms.fedavg.FedAvg\n  name: {}\n "
        " private: true\nlr: {}\n"
    )
    (tmp_path / "mine" / "algo").mkdir(parents=True)
    (tmp_path / "mine" / "algo" / "my_fedavg.yaml").write_text(text.format("my_fedavg", 0.5))
    (tmp_path / "mine" / "algo" / "dp_fedavg.yaml").write_text(text.format("dp_fedavg", 0.25))
    (tmp_path / "mine" / "study.yaml").write_text(
        "defaults:\n  - config\n  - override algo: my_fedavg\n  - _self_\neps: 5.0\n"
    )
    ran = call("run", "-cd", "mine", "algo=my_fedavg", "total_steps=20", *QUICK)
    assert read(ran.folder, "result.json")["algo"] == "my_fedavg"
    assert read(ran.folder, "result.json")["lr"] == 0.5
    assert yaml.safe_load(call("run", "-cd", "mine", "algo=dp_fedavg", "--cfg", "job").out)["lr"] == 0.25
    study = yaml.safe_load(call("run", "--config-dir", "mine", "--config-name", "study", "--cfg", "job").out)
    assert (study["eps"], study["lr"], study["algo"]["name"]) == (5, 0.5, "my_fedavg")
    listed = {
        e["name"]: e["line"] for e in call("list", "--json", "-cd", "mine").json if e["group"] == "algo"
    }
    assert listed["my_fedavg"] == listed["dp_fedavg"] == "Mine"
    assert "my_fedavg" in call("run", "-cd", "mine", "algo=nope").err


@pytest.mark.parametrize("algo", ["dp_scaffnew", "fedavg"])
def test_overflow_ends_the_run_as_diverged(algo: str) -> None:
    said = call("run", f"algo={algo}", "lr=1e30", "rounds=5", "local_steps=3", *QUICK)
    assert said.code == 1
    folder = Path(said.out.splitlines()[-1])
    result = read(folder, "result.json")
    assert (result["status"], read(folder, "status.json")["status"]) == ("diverged", "diverged")
    found = result["diverged"]
    assert found["seed"] == 0
    assert 1 <= found["round"] <= 5
    assert f"diverged in round {found['round']}" in said.err
    assert result["test_error_mean"] is None
    rows = metrics(folder)
    assert list(rows["round"]) == list(range(found["round"])), "the rounds before it are kept"
    assert math.isfinite(rows["train_loss"].iloc[0])
    again = call("run", f"algo={algo}", "lr=1e30", "rounds=5", "local_steps=3", *QUICK)
    assert again.code == 1
    assert "already done" in again.err


def test_list() -> None:
    entries = call("list", "--json").json
    assert {e["group"] for e in entries} == {*compose.GROUPS, "experiment"}
    assert all(set(e) == {"name", "group", "line", "module"} and e["line"] for e in entries)
    modules = {e["name"]: e["module"] for e in entries}
    assert modules["dp_scaffnew"] == "dpfl_bench.algorithms.scaffnew.ScaffNew"
    text = call("list").out
    assert all(f"  {e['name']} " in text and e["line"] in text for e in entries)


def test_help() -> None:
    said = [call(*arguments) for arguments in ((), ("--help",), ("-h",), ("help",))]
    assert {s.out for s in said} == {said[0].out}
    assert {s.code for s in said} == {0}
    assert all(f"\n  {verb} " in said[0].out for verb in cli.VERBS)
    assert all(word in said[0].out for word in ("-cd DIR", "130"))
    assert max(map(len, said[0].out.splitlines())) <= 100


PARTS = ("data list", "data fetch", "data verify", "data show")


@pytest.mark.parametrize("verb", [*cli.VERBS, *PARTS])
def test_every_verb_has_help_of_its_own(verb: str) -> None:
    said = call(*verb.split(), "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"usage: dpfl-bench {verb}")
    assert said.out == call(*verb.split(), "-h").out
    examples = re.findall(r"^  dpfl-bench (.*)$", said.out, re.MULTILINE)
    assert len(examples) == 3
    assert all(example.split()[0] == verb.split()[0] for example in examples)
    pages = re.findall(r"docs/[\w-]+\.md", said.out.partition("read on: ")[2])
    assert pages, "where to read on"


@pytest.mark.parametrize("verb", ["run", "plan", "status", "list", "version"])
def test_an_unknown_flag_is_named(verb: str) -> None:
    said = call(verb, "--nosuch")
    assert said.code == 2
    assert "--nosuch" in said.err
    assert "Traceback" not in said.err


def test_version() -> None:
    assert call("version").out == call("--version").out == f"{__version__}\n"
    facts = call("version", "--json").json
    assert facts["dpfl-bench"] == __version__
    versions = {part["name"]: part["version"] for part in facts["parts"]}
    assert versions["torch"] == torch.__version__
    assert facts["device"].startswith(
        "torch is built for CUDA" if torch.version.cuda else ("cpu", "mps", "torch")
    )
    text = call("version", "--verbose").out
    assert all(len([line for line in text.splitlines() if f"  {name} " in line]) == 1 for name in versions)
    assert max(map(len, text.splitlines())) <= 100


def test_parts_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of a package's name is not the package."""
    (tmp_path / "no_such_part").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        version, "PARTS", {"a": ("no_such_part", "x"), "b": ("nor_this", "y"), "c": ("json", "z")}
    )
    parts = {part["name"]: part["version"] for part in version.facts()["parts"]}
    assert parts == {"a": None, "b": None, "c": "version not known"}
    assert "not there" in version.text(version.facts())


@pytest.mark.parametrize(
    "door",
    [
        ("privacy=record", "sample_rate=0.5"),
        ("privacy=local", "privacy.colluding=3"),
        ("privacy.mechanism=privunit",),
    ],
)
def test_without_privacy_nothing_of_it_is_asked(door: tuple[str, ...]) -> None:
    """Such a run once trained to its end and then failed for what its open door was told."""
    result = read(
        call("run", "algo=fedavg", *door, "rounds=2", "local_steps=1", *QUICK).folder, "result.json"
    )
    assert (result["status"], result["eps"]) == ("done", math.inf)
    assert call("plan", "algo=fedavg", *door, "--json").json["eps"] == math.inf


@pytest.mark.slow
def test_what_a_run_and_its_plan_call_fully_accounted_is_the_same() -> None:
    optimum = (
        "algo=dp_fedavg dataset=quadratics dataset.dimension=5 dataset.rank=3 dataset.clients=6 clients=6"
        " model.init=near_optimum rounds=2 local_steps=1"
    )
    paper = (
        "algo=dp_fedavg privacy=record privacy.observer=third_party privacy.accountant=paper batch_size=2"
        " rounds=2 local_steps=1 sampled_clients=9 eps=20"
    )
    for overrides in (optimum.split(), paper.split()):
        result = read(call("run", *overrides, *QUICK).folder, "result.json")
        assert (
            result["fully_accounted"] is call("plan", "--json", *overrides).json["fully_accounted"] is False
        )


@pytest.mark.slow
def test_collect_keeps_the_naive_step_and_other_mechanisms_apart(tmp_path: Path) -> None:
    shared = (
        "algo=dp_fedexp",
        "privacy=local",
        "eps=60",
        "rounds=2",
        "local_steps=1",
        f"outputs={tmp_path}",
        *QUICK,
    )
    for more in ((), ("algo.naive=true",), ("privacy.mechanism=privunit",)):
        assert call("run", *shared, *more).code == 0
    table = call("collect", str(tmp_path), "--json").json["table"]
    assert {row["algo"] for row in table} == {"dp_fedexp", "dp_fedexp (naive step)"}
    assert len(table) == 3
    assert any("PrivUnit" in row["guarantee"] for row in table)
