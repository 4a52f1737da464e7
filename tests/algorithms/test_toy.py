"""Adding an algorithm is one Python file and one YAML with the same stem: the conformance suite
finds it, the command runs it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command import QUICK, call, read

# FedProx (Li et al. 2020): local steps on f_i(y) + mu/2 |y - x|^2
PYTHON = """
from dataclasses import dataclass
from typing import ClassVar

from dpfl_bench.algorithms.base import Server


@dataclass(frozen=True)
class FedProx:
    mu: float
    remembers: ClassVar[bool] = False

    def start(self, x):
        return Server(x)

    def client(self, server, memory, local):
        y = server.x.expand_as(memory)
        for _ in range(local.steps):
            y = local.step(y, local.gradient(y) + self.mu * (y - server.x))
        return y - server.x

    def server(self, server, sent, round):
        return Server(server.x + sent.mean)

    def remember(self, server, memory, sent, round):
        return memory
"""
YAML = """# @package _global_
# FedProx: a proximal term keeps the clients near the server's model
algo:
  _target_: toy.FedProx
  name: toy
  private: true
  mu: 0.3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    (made / "algo").mkdir(parents=True)
    (made / "toy.py").write_text(PYTHON)
    (made / "algo" / "toy.yaml").write_text(YAML)
    return made


# name -> (what of the toy, in its stead, the test that sees it)
IN_PLACE, TAKEN, RETURNED, MEMORIES = (
    "test_state_given_to_play_is_not_mutated",
    "test_methods_take_what_is_promised",
    "test_methods_return_what_is_promised",
    "test_the_cohorts_memories_are_the_promised_ones",
)
NEVER_CALLED = "def remember(self, server, memory, sent, round)"
REMEMBERS = "remembers: ClassVar[bool] = False"
BROKEN = {
    "model_in_place": (
        ("Server(server.x + sent.mean)", "Server(server.x.add_(sent.mean))"),
        {IN_PLACE, RETURNED},
    ),
    "old_remember": ((NEVER_CALLED, "def remember(self, memory, sent, round)"), {TAKEN, RETURNED}),
    "swapped_remember": ((NEVER_CALLED, "def remember(self, memory, server, sent, round)"), {TAKEN}),
    "keyword_remember": (
        (NEVER_CALLED, "def remember(self, server, memory, *, sent, round)"),
        {TAKEN, RETURNED},
    ),
    "wide_remember": ((NEVER_CALLED, "def remember(self, server, memory, sent, round, more=1)"), {TAKEN}),
    "any_remember": ((NEVER_CALLED, "def remember(self, *given)"), {TAKEN}),
    "mean_remembered": (("return memory", "return sent.mean"), {RETURNED}),
    "memory_in_place": (("return memory", "return memory.add_(1)"), {RETURNED}),
    "no_server_state": (("return Server(x)", "return x"), {IN_PLACE, RETURNED, MEMORIES}),
    "word_for_remembers": ((REMEMBERS, "remembers: ClassVar[str] = 'no'"), {TAKEN}),
    "empty_memories": ((REMEMBERS, "remembers: ClassVar[bool] = True"), {MEMORIES}),
}


def add_broken(folder: Path) -> None:
    for name, ((old, new), _) in BROKEN.items():
        broken = PYTHON.replace(old, new)
        assert broken != PYTHON
        (folder / f"{name}.py").write_text(broken)
        (folder / "algo" / f"{name}.yaml").write_text(YAML.replace("toy", name))


def conformance(folder: Path, chosen: str) -> tuple[int, set[str], set[str]]:
    """The suite on the folder's algorithms, in a process of its own: exit code, tests that passed
    and tests that failed.
    """
    suite = Path(__file__).with_name("test_contract.py")
    environment = {**os.environ, "DPFL_TEST_CONF": str(folder), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", suite, "-k", chosen, "-q", "-rpf", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command,
        env=environment,
        cwd=suite.parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    passed, failed = (
        set(re.findall(rf"^{word} .*::(\S+)", done.stdout, re.MULTILINE)) for word in ("PASSED", "FAILED")
    )
    assert passed or failed, done.stdout + done.stderr
    return done.returncode, passed, failed


@pytest.mark.slow
def test_the_suite_picks_it_up_and_sees_broken_ones(folder: Path) -> None:
    add_broken(folder)
    watched = " or ".join(BROKEN)
    code, passed, failed = conformance(
        folder, f"toy or (({watched}) and (promised or mutated) and not record)"
    )
    assert code == 1
    for name, (_, tests) in BROKEN.items():
        seen_by = {test.partition("[")[0] for test in failed if f"[{name}]" in test}
        assert seen_by >= tests, name
    of_the_toy = {test for test in passed | failed if "[toy" in test}
    assert len(of_the_toy) >= 20
    assert of_the_toy <= passed


def test_the_command_runs_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    asked = ("-cd", str(folder), "algo=toy", "algo.mu=0.5", "clients=6", "rounds=2", "local_steps=2")
    result = read(call("run", *asked, *QUICK).folder, "result.json")
    assert (result["algo"], result["status"]) == ("toy", "done")
    assert 0.99 * 2 < result["eps"] <= 2
    listed = [entry for entry in call("list", "-cd", str(folder), "--json").json if entry["name"] == "toy"]
    assert [entry["line"] for entry in listed] == [
        "FedProx: a proximal term keeps the clients near the server's model"
    ]
