"""Colour on a terminal, and nowhere else; `run -m --quiet`."""

from __future__ import annotations

import io
import os
import pty
import subprocess
from collections.abc import Mapping

import pytest
from helpers.command import BINARY, QUICK, call

from dpfl_bench.machine import colour

ESCAPE = "\033["


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("stream", "variables", "coloured"),
    [
        (Terminal, {}, True),
        (io.StringIO, {}, False),
        (Terminal, {"NO_COLOR": "1"}, False),
        (Terminal, {"NO_COLOR": ""}, True),  # empty counts as not set
        (Terminal, {"TERM": "dumb"}, False),
        (io.StringIO, {"FORCE_COLOR": "1"}, True),
        (io.StringIO, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_where(
    stream: type[io.StringIO],
    variables: Mapping[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    text = "3 runs: 2 done, 1 failed\n  failed      ab  eps=1: why\n"
    painted = colour.painted(text, stream(), colour.STATES)
    assert (ESCAPE in painted) == coloured
    assert painted.replace("\033[0m", "").replace("\033[31m", "").replace("\033[32m", "") == text
    if coloured:
        assert "\033[32m2 done\033[0m, \033[31m1 failed\033[0m" in painted
        assert "\n\033[31m  failed\033[0m      ab" in painted


@pytest.mark.parametrize("words", ["plan eps=1", "list", "--help", "plan --help", "plan esp=1"])
def test_the_words_are_the_same(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = call(*words.split())
    assert ESCAPE not in plain.out + plain.err
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = call(*words.split())
    for before, after in ((plain.out, coloured.out), (plain.err, coloured.err)):
        assert (ESCAPE in after) == bool(before)
        assert (
            "".join(part.partition("m")[2] if k else part for k, part in enumerate(after.split(ESCAPE)))
            == before
        )


def test_json_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert ESCAPE not in call("plan", "--json", "eps=1").out


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_on_a_terminal(variables: dict[str, str], coloured: bool) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, **variables}
    with os.fdopen(ours, "rb", 0) as shown:
        subprocess.run([BINARY, "plan", "esp=1"], stdout=theirs, stderr=theirs, env=env, check=False)
        os.close(theirs)
        said = shown.read(10_000).decode()
    assert "did you mean" in said
    assert (ESCAPE in said) == coloured


def test_a_quiet_sweep_has_no_line_for_what_is_done() -> None:
    sweep = ("run", "-m", "eps=1,2", "rounds=2", "local_steps=1", *QUICK)
    quiet = call(*sweep, "--quiet")
    assert (quiet.code, quiet.err.count("test error")) == (0, 0)
    assert "2 of 2 jobs done" in quiet.err
    assert len(quiet.out.splitlines()) == 2
    told = call(*sweep, "seed=1")
    assert told.err.count("test error") == 2
    failing = call("run", "-m", "lr=1e30", "rounds=2", "local_steps=3", "--quiet", *QUICK)
    assert failing.code == 1
    assert "diverged" in failing.err
