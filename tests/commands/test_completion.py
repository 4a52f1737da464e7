"""`dpfl-bench completion`: what Tab proposes, asked as bash asks, and `python -m dpfl_bench`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command import BINARY, call
from helpers.imported import loaded_by

from dpfl_bench.cli import VERBS
from dpfl_bench.commands.completion import proposed

# the line so far -> what is among the proposals, what is not
LINES = {
    "": (VERBS, ("eps",)),
    "ru": (("run",), ("replay",)),
    "run ep": (("eps=",), ("delta=", "epsilon=")),
    "run privacy.tr": (("privacy.trust=",), ("privacy.clip=",)),
    "run privacy.trust=": (("privacy.trust=local", "privacy.trust=secagg"), ("privacy.trust=gaussian",)),
    "run plot=": (("plot=true", "plot=false"), ("plot=none",)),
    "run algo=dp_scaf": (("algo=dp_scaffold", "algo=dp_scaffnew"), ("algo=dp_fedavg",)),
    "run -m algo=dp_fedavg,dp_scaffn": (("algo=dp_fedavg,dp_scaffnew",), ("algo=dp_scaffnew",)),
    "run partition=dirichlet partition.": (("partition.alpha=",), ("partition.shards_per_client=",)),
    "run esp=2 partition=dir": (("partition=dirichlet",), ("partition=iid",)),
    "run privacy=": (("privacy=local",), ("privacy=_base",)),
    "run +experiment=de": (("+experiment=demo",), ("+experiment=quick",)),
    "run -m hydra/launcher=": (("hydra/launcher=slurm",), ()),
    "run -m --dr": (("--dry-run",), ("--no-retry",)),
    "plan --vi": (("--views",), ("--json",)),
    "data ": (("fetch", "show"), ("run",)),
    "data fetch mn": (("mnist",), ("femnist",)),
    "data show --to": (("--to",), ("--json",)),
    "reproduce normalized/fig": (("normalized/fig1",), ("balancing/fig2", "normalized")),
    "list ": (("papers",), ()),
    "status ": ((), ("eps=",)),
}


@pytest.mark.parametrize("line", LINES)
def test_proposals(line: str) -> None:
    found = [each.strip() for each in proposed(f"dpfl-bench {line}")]
    among, out = LINES[line]
    assert {*among} <= {*found}
    assert not {*out} & {*found}
    assert len(found) == len({*found})


def test_an_own_folder_is_looked_at(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "algo").mkdir(parents=True)
    (folder / "algo/my_algo.yaml").touch()
    assert proposed(f"dpfl-bench run -cd {folder} algo=my") == ["algo=my_algo "]
    assert proposed("dpfl-bench run algo=my") == []


@pytest.mark.parametrize(
    ("typed", "breaks", "proposes"),
    [
        ("pl", "=", ["plan "]),
        ("run privacy.trust=sec", "=", ["secagg "]),  # bash puts it behind the last =
        ("run privacy.trust=sec", "", ["privacy.trust=secagg "]),
        ("run eps=1 privacy.tr", "=", ["privacy.trust="]),
    ],
)
def test_bash_takes_it(typed: str, breaks: str, proposes: list[str]) -> None:
    line = f"dpfl-bench {typed}"
    script = (
        f'eval "$({BINARY} completion bash)"; COMP_WORDBREAKS="{breaks}"; COMP_LINE="{line} more";'
        f' COMP_POINT={len(line)}; _dpfl_bench {BINARY}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == proposes
    assert said.stderr == ""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
@pytest.mark.parametrize(
    ("typed", "adds"),
    [
        ("pl", ["-- plan"]),
        ("run privacy.trust=sec", ["-- privacy.trust=secagg"]),
        ("run eps=1 privacy.tr", ["-S  -- privacy.trust="]),
        ("run no_such_thing", ["files"]),
    ],
)
def test_zsh_takes_it(typed: str, adds: list[str]) -> None:
    *before, prefix = [str(BINARY), *typed.split()]
    script = (
        f'compdef() {{ }}; eval "$({BINARY} completion zsh)"; compadd() {{ print -r -- "$*" }};'
        f" _files() {{ print files }}; words=({' '.join(before)} {prefix}); CURRENT=$#words;"
        f" PREFIX={prefix}; _dpfl_bench"
    )
    said = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == adds
    assert said.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.parametrize(
    ("typed", "proposes"),
    [
        ("pl", "plan"),
        ("run privacy.trust=sec", "privacy.trust=secagg"),
        ("run eps=1 privacy.tr", "privacy.trust="),
    ],
)
def test_fish_takes_it(typed: str, proposes: str, tmp_path: Path) -> None:
    script = f"{BINARY} completion fish | source; complete -C '{BINARY} {typed}'"
    asked = {**os.environ, "HOME": str(tmp_path), "PATH": f"{BINARY.parent}:{os.environ['PATH']}"}
    said = subprocess.run(["fish", "-c", script], capture_output=True, text=True, check=True, env=asked)
    assert proposes in said.stdout.splitlines()


def test_the_script_is_bound_to_the_command() -> None:
    ask = 'eval "$(cat)"; complete -p dpfl-bench'
    script = call("completion", "bash").out
    said = subprocess.run(["bash", "-c", ask], input=script, capture_output=True, text=True, check=True)
    assert "_dpfl_bench dpfl-bench" in said.stdout


def test_what_tab_loads() -> None:
    loaded = loaded_by("from dpfl_bench.commands import completion as c; c.proposed('dpfl-bench run ep')")
    assert not loaded & {"torch", "numpy", "scipy", "dp_accounting", "matplotlib"}


def test_the_package_is_a_command() -> None:
    def said(*command: str) -> tuple[int, str, str]:
        done = subprocess.run([*command, "plan", "esp=2"], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert said(sys.executable, "-m", "dpfl_bench") == said(str(BINARY))
    assert said(str(BINARY))[0] == 2
