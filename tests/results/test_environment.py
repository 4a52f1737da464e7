"""env.json is true: a commit is told only with what it lacks."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.command import QUICK, call, command, read

import dpfl_bench
from dpfl_bench.results import code_hashes, environment

WHO = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
SMALL = ("total_steps=4", "local_steps=2", *QUICK)


def git(where: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=where, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(where: Path) -> None:
    git(where, "add", "--all")
    git(where, *WHO, "commit", "--quiet", "--message=all")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This package as it is, in a checkout of its own, which commands take before the installed
    one.
    """
    source = tmp_path / "checkout"
    shutil.copytree(
        environment.PACKAGE,
        source / "dpfl_bench",
        ignore=shutil.ignore_patterns("__pycache__", code_hashes.BUILD),
    )
    (source / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "init", "--quiet", str(source))
    commit(source)
    monkeypatch.setenv("PYTHONPATH", str(source))
    return source


@pytest.mark.slow
def test_an_algorithm_that_is_in_no_commit_makes_it_dirty(checkout: Path, tmp_path: Path) -> None:
    (checkout / "notes.txt").write_text("no code")
    own = checkout / "outputs/runs/abc/.hydra"
    own.mkdir(parents=True)
    (own / "config.yaml").write_text("of a run")
    clean = command("run", "algo=dp_fedavg", *SMALL).folder
    told = read(clean, "env.json")
    assert (told["commit"], told["dirty"], told["diff"]) == (git(checkout, "rev-parse", "HEAD"), False, None)
    assert not (clean / "diff.patch").exists()
    assert told["cwd"] == str(tmp_path)
    assert told["cpu"]
    (checkout / "dpfl_bench/algorithms/mine.py").write_text(
        "from dpfl_bench.algorithms.fedavg import FedAvg as Mine\n"
    )
    (checkout / "dpfl_bench/algorithms/fedexp.py").write_text("# changed\n")
    dirty = command("run", "algo=dp_fedavg", "algo._target_=dpfl_bench.algorithms.mine.Mine", *SMALL).folder
    told = read(dirty, "env.json")
    assert (told["commit"], told["dirty"], told["diff"]) == (
        git(checkout, "rev-parse", "HEAD"),
        True,
        "diff.patch",
    )
    again = tmp_path / "again"
    git(tmp_path, "clone", "--quiet", str(checkout), str(again))
    git(again, "apply", str(dirty.absolute() / "diff.patch"))
    for name in ("mine.py", "fedexp.py"):
        assert (again / "dpfl_bench/algorithms" / name).read_text() == (
            checkout / "dpfl_bench/algorithms" / name
        ).read_text()


def test_a_long_patch_is_cut_and_says_so(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "large.py").write_text("x = 1\n" * 1000)
    monkeypatch.setattr(environment, "MOST", 1000)
    patch = environment._patch(checkout)
    assert len(patch) < 1100
    assert patch.endswith(" characters are left out]\n")


def test_a_users_own_checkout_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "lab"
    mine.mkdir()
    (mine / "ours.py").write_text("from dpfl_bench.algorithms.fedavg import FedAvg\n")
    git(tmp_path, "init", "--quiet", str(mine))
    commit(mine)
    monkeypatch.syspath_prepend(str(mine))
    given = ("run", "algo=dp_fedavg", "algo._target_=ours.FedAvg", *SMALL)
    (told,) = read(call(*given).folder, "env.json")["targets"]
    assert told == {"folder": str(mine), "commit": git(mine, "rev-parse", "HEAD"), "dirty": False}
    (mine / "new.py").write_text("")
    (told,) = read(call(*given, "seed=1").folder, "env.json")["targets"]
    assert told["dirty"] is True


def test_an_installed_wheel_tells_what_it_was_built_from(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    built = types.ModuleType("dpfl_bench._build")
    built.COMMIT, built.DIRTY = "abc", True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dpfl_bench._build", built)
    assert environment._built() == {"commit": "abc", "dirty": True}
    monkeypatch.setitem(sys.modules, "dpfl_bench._build", None)
    assert environment._built() == {"commit": None, "dirty": None}


def test_versions_stand_there() -> None:
    told = environment.environment("cpu")
    json.dumps(told)
    assert told["dpfl_bench"] == dpfl_bench.__version__
    assert told["versions"]["torch"]
