"""What another system than Linux lacks is not needed: modules, signals and functions of Unix are
made absent, every module is imported, and a small run and a sweep with spawned workers are played.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dpfl_bench
from dpfl_bench.machine import file_lock

ROOT = Path(dpfl_bench.__file__).parent
ABSENT = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline")
OF_LINUX = ("sched_getaffinity", "sched_yield", "posix_fallocate", "setpgrp", "getuid", "geteuid", "fork")
OF_UNIX = ("SIGUSR1", "SIGUSR2", "SIGHUP")

PLAYED = f"""
import builtins, importlib, os, pkgutil, signal, sys
import matplotlib.pyplot, multiprocessing, omegaconf, pandas, scipy.stats, sklearn, torch  # not ours to mend

plain = builtins.__import__

def absent(name, globals=None, locals=None, fromlist=(), level=0):
    ours = str((globals or {{}}).get("__name__", "")).startswith("dpfl_bench")
    if ours and name.partition(".")[0] in {ABSENT!r}:
        raise ImportError(f"no module named {{name}} on this system")
    return plain(name, globals, locals, fromlist, level)

def main():
    builtins.__import__ = absent
    for name in {OF_LINUX!r}:
        vars(os).pop(name, None)
    for name in {OF_UNIX!r}:
        vars(signal).pop(name, None)
    import dpfl_bench
    skipped = {{"dpfl_bench.__main__", "dpfl_bench.sweep.fork_server_imports"}}  # these act when imported
    found = [m.name for m in pkgutil.walk_packages(dpfl_bench.__path__, "dpfl_bench.")]
    for name in found:
        if name not in skipped:
            importlib.import_module(name)
    print(len(found), "modules")
    from dpfl_bench import cli
    from dpfl_bench.machine import device
    from dpfl_bench.sweep import fork_server
    device.forks = lambda where: False
    fork_server.context = lambda: multiprocessing.get_context("spawn")
    for words in ARGUMENTS:
        try:
            cli.main(words)
        except SystemExit as stop:
            assert stop.code == 0, (words, stop.code)

SHORT = ["rounds=2", "local_steps=1", "device=cpu", "plot=false"]
RUN = ["run", "algo=dp_scaffnew", *SHORT]
ARGUMENTS = [RUN, [*RUN, "engine.memories=disk", "seed=1"]]
if "sweep" in sys.argv:
    ARGUMENTS = [["run", "-m", "lr=0.1,0.2", *SHORT, "hydra/launcher=cores", "hydra.launcher.n_jobs=2"]]
if __name__ == "__main__":
    main()
"""


def play(*words: str) -> str:
    Path("elsewhere.py").write_text(PLAYED)
    done = subprocess.run(
        [sys.executable, "elsewhere.py", *words], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_module_is_imported_and_runs_are_played() -> None:
    count, *folders = play().splitlines()
    assert int(count.split()[0]) > 250
    assert all((Path(folder) / "result.json").exists() for folder in folders)
    assert len(folders) == 2


@pytest.mark.slow
def test_a_sweep_with_spawned_workers() -> None:
    play("sweep")
    assert len(list(Path("outputs/runs").glob("*/result.json"))) == 2


def imported_at_the_top(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    found = set()
    for node in tree.body:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        found |= {name.partition(".")[0] for name in names}
    return found


def test_no_module_imports_what_only_unix_has() -> None:
    files = sorted(ROOT.rglob("*.py"))
    assert len(files) > 250
    assert [str(f) for f in files if imported_at_the_top(f) & {*ABSENT, "msvcrt"}] == []
    assert imported_at_the_top(Path(__file__)) >= {"ast", "subprocess"}  # the check can see


def test_without_any_lock_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    path = tmp_path / "lock"
    with file_lock.alone(path), file_lock.alone(path):  # the second would wait for ever
        assert path.exists()
    assert not path.exists()
    with file_lock.alone(path, keep=True):
        pass
    assert path.exists()


def test_the_lock_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for its module: it is asked again while another process has the lock."""
    asked = []

    class Module:
        LK_NBLCK = 2

        @staticmethod
        def locking(handle: int, mode: int, size: int) -> None:
            asked.append((mode, size))
            if len(asked) < 3:
                raise PermissionError(13, "taken")

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", Module)
    monkeypatch.setattr(file_lock, "POLL", 0.0)
    with file_lock.alone(tmp_path / "lock"):
        assert asked == [(2, 1)] * 3
