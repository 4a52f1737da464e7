"""A wheel built from the sources, installed elsewhere without them, runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dpfl_bench.results import code_hashes

ROOT = Path(__file__).parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".git", "outputs", "*.egg-info", "__pycache__", ".venv", "build", "dist", ".*_cache"
)

pytestmark = pytest.mark.slow


def shell(*command: str | Path, cwd: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=600, env={**clean, **environment}
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", ignore=LEFT_OUT)
    commit(folder / "source")
    shell(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        "dist",
        "./source",
        cwd=folder,
    )
    (built,) = (folder / "dist").glob("dpfl_bench-*.whl")
    return built


def commit(source: Path) -> None:
    """A checkout of its own."""
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    for command in (["init", "--quiet"], ["add", "--all"], [*who, "commit", "--quiet", "--message=all"]):
        shell("git", *command, cwd=source)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bin/ of a fresh environment: the wheel, and this one's dependencies without its editable
    install (a .pth adds no .pth).
    """
    home = tmp_path_factory.mktemp("fresh") / "venv"
    shell(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    python = home / "bin" / "python"
    shell(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        wheel,
        cwd=home.parent,
    )
    (packages,) = (home / "lib").glob("python*/site-packages")
    ours = Path(pytest.__file__).parent.parent
    (packages / "dependencies.pth").write_text(f"{ours}\n")
    return home / "bin"


def test_the_wheel_holds_every_module_and_every_config(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    code_hashes = {path.relative_to(ROOT).as_posix() for path in (ROOT / "dpfl_bench").rglob("*.py")}
    configs = {f"dpfl_bench/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")}
    packages = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "dpfl_bench").rglob("*.py")}
    folders = {
        f"dpfl_bench/{path.parent.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")
    }
    assert packages | folders <= {name.rpartition("/")[0] for name in held}
    assert {f"{package}/__init__.py" for package in packages} <= held
    assert len(code_hashes) > 30
    assert len(configs) > 20
    assert code_hashes | configs | {"dpfl_bench/conf/__init__.py", "dpfl_bench/py.typed"} <= held
    assert not [name for name in held if name.startswith(("tests/", "outputs/", "scripts/"))]


def test_it_runs_elsewhere(installed: Path, wheel: Path, tmp_path: Path) -> None:
    cwd = tmp_path / "empty"
    cwd.mkdir()
    where = shell(
        installed / "python", "-c", "import dpfl_bench; print(dpfl_bench.__file__)", cwd=cwd
    ).strip()
    assert Path(where).is_relative_to(installed.parent), "it must not be the editable install"
    said = shell(installed / "dpfl-bench", "run", "total_steps=20", cwd=cwd)
    folder = cwd / said.splitlines()[-1]
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], result["rounds"], result["local_steps"]) == ("done", 2, 10)
    assert result["eps"] <= 2
    environment = json.loads((folder / "env.json").read_text())
    assert environment["commit"] == shell("git", "rev-parse", "HEAD", cwd=wheel.parents[1] / "source").strip()
    assert environment["dirty"] is False
    assert result["origin"]["package"] == code_hashes.package(), "its code is the checkout's"
    assert [path.name for path in cwd.iterdir()] == ["outputs"]


def test_the_other_verbs_work_elsewhere(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(shell(installed / "dpfl-bench", "list", "--json", cwd=tmp_path))
    assert {"dp_scaffnew", "mushrooms", "cnn", "dirichlet", "secagg"} <= {entry["name"] for entry in listed}
    assert "2 to run" in shell(
        installed / "dpfl-bench", "run", "-m", "--dry-run", "hydra/launcher=joblib", "eps=1,2", cwd=tmp_path
    )
    planned = json.loads(shell(installed / "dpfl-bench", "plan", "--json", "eps=1", cwd=tmp_path))
    assert 0.99 < planned["eps"] <= 1
    assert "trust: secagg" in shell(installed / "dpfl-bench", "run", "--cfg", "job", cwd=tmp_path)
