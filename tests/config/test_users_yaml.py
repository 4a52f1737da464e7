"""Data sets' YAML files of users: what they may leave out, and that a file with a mistake is
refused in one line by everything that reads it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command import QUICK, call
from helpers.federations import settings_of

from dpfl_bench.checks import yaml_file
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.identity import packaged

MODULE = """
import numpy as np
from dpfl_bench.data.records import Records

def load():
    x, y = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32), np.arange(40) % 2
    return Records(x, y, x[:8].copy(), y[:8].copy(), None, 2, "mine", None)
"""
GOOD = {
    "_target_": "mine_data.load",
    **{"name": "mine", "shape": "[4]", "classes": "2", "records": "40", "clients": "2", "lr": "1.0"},
    **{"test_fraction": "0.0", "split": "global", "standardise": "none", "unit_norm": "false"},
    **{"seed": "0", "max_row_norm": "null", "gram": "null"},
}
ASKED = ("dataset=mine", "partition=iid", "clients=2")


def text(keys: dict[str, str]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in keys.items())


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file; its folder is `own.parent.parent`."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine_data.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delitem(__import__("sys").modules, "mine_data", raising=False)
    (tmp_path / "own/dataset").mkdir(parents=True)
    return tmp_path / "own/dataset/mine.yaml"


def test_only_the_target_is_needed(own: Path) -> None:
    own.write_text("_target_: mine_data.load\n")
    folder = str(own.parent.parent)
    run = settings_of("dataset=mine", "partition=iid", config_dir=folder)
    assert run.dataset == {**packaged("dataset", "_base"), "_target_": "mine_data.load", "name": "mine"}
    assert call("run", "-cd", folder, *ASKED, *QUICK, "total_steps=2", "local_steps=1").code == 0
    assert settings_of("dataset=mine", "dataset.records=40", config_dir=folder).dataset["records"] == 40


@pytest.mark.parametrize("key", [key for key in GOOD if key != "_target_"])
def test_every_other_key_may_be_left_out(key: str, own: Path) -> None:
    own.write_text(text({name: value for name, value in GOOD.items() if name != key}))
    said = call("plan", "-cd", str(own.parent.parent), *ASKED)
    assert (said.code, said.err) == (0, "")


def test_a_file_that_builds_on_another_keeps_that_one_s_keys(own: Path) -> None:
    own.write_text("defaults: [digits, _self_]\n_target_: dpfl_bench.data.digits.load\ntest_fraction: 0.5\n")
    made = settings_of("dataset=mine", config_dir=str(own.parent.parent)).dataset
    assert (made["shape"], made["clients"], made["test_fraction"]) == ([64], 200, 0.5)


# a value | what the line says
WRONG = """
shape: 4              | dataset.shape=4: expected a list
shape: [a]            | whole numbers >= 1
shape: []             | whole numbers >= 1
shape: [0]            | whole numbers >= 1
classes: x            | dataset.classes=x: expected a whole number
classes: 1            | dataset.classes=1: expected at least 2
classes: -1           | dataset.classes=-1: expected at least 2
records: -1           | dataset.records=-1: expected at least 1
records: 1e400        | dataset.records=
clients: 0            | dataset.clients=0: expected at least 1
lr: .nan              | dataset.lr=nan: expected a number > 0
test_fraction: null   | dataset.test_fraction=null: expected a number
standardise: x        | public or data or none
unit_norm: x          | true or false
split: x              | global or client
seed: -1              | dataset.seed=-1: expected a whole number >= 0
seed: 9223372036854775808 | dataset.seed=9223372036854775808: expected
max_row_norm: -1      | dataset.max_row_norm=-1
gram: x               | dataset.gram=x: expected a number
holds: 3              | dataset.holds=3: expected keys and values
_target_: 3           | dataset._target_=3: expected a word
_target_: null        | dataset._target_=null: expected a word
root: 3               | dataset.root=3: expected a word
root: ~nouser/x       | dataset.root=~nouser/x: expected a path
"""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("row", WRONG.strip().splitlines())
def test_a_wrong_value_is_one_line(row: str, own: Path) -> None:
    line, says = (part.strip() for part in row.split("|"))
    key, value = line.split(": ")
    own.write_text(text({**GOOD, key: value}))
    refused(own, says)


def refused(own: Path, says: str) -> None:
    every = (("plan",), ("run", *QUICK), ("run", "-m", "--dry-run"), ("data", "show"))
    for verb in (every[len(says) % 4], every[(len(says) + 1) % 4]):  # two of the four, to be quick
        said = call(*verb, "-cd", str(own.parent.parent), *ASKED)
        assert said.code == 2, said
        assert said.err.count("\n") == 1, said.err
        assert says in said.err
        assert not Path("outputs").exists()


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)
# name | bytes | what the line says
FILES = {
    "tab": (text(GOOD).replace("name: m", "\tname: m").encode(), "tab"),
    "tab behind a key": (text(GOOD).replace("name: m", "name:\tm").encode(), "expected YAML"),
    "unclosed bracket": (text(GOOD).replace("[4]", "[4").encode(), "expected YAML"),
    "a key twice": ((text(GOOD) + "name: other\n").encode(), "expected each key once"),
    "a key twice alike": ((text(GOOD) + "name: mine\n").encode(), "duplicate key name"),
    "a list": (b"- a\n- b\n", "it holds a list"),
    "a word": (b"hello\n", "it holds only 'hello'"),
    "empty": (b"", "dataset"),
    "no text": (bytes(range(256)), "expected a text file"),
    "zeros": (b"\0\0\0", "expected YAML"),
    "latin-1": (text({**GOOD, "name": "ä"}).encode("latin1"), "expected a text file"),
    "utf-16": (text(GOOD).encode("utf16"), "expected a text file"),
    "a number as key": ((text(GOOD) + "1: x\n").encode(), "key 1: expected a word"),
    "a number as inner key": ((text(GOOD) + "holds: {1: x}\n").encode(), "key 1: expected a word"),
    "null as key": ((text(GOOD) + "null: x\n").encode(), "key None: expected a word"),
    "a list as key": ((text(GOOD) + "[1]: x\n").encode(), "expected YAML"),
    "no date": ((text(GOOD) + "when: 2020-13-45\n").encode(), "expected YAML"),
    "bytes": ((text(GOOD) + "b: !!binary aGk=\n").encode(), "expected a number, a word"),
    "a set": ((text(GOOD) + "b: !!set {a, b}\n").encode(), "expected YAML"),
    "code": ((text(GOOD) + "b: !!python/object/apply:os.system [ls]\n").encode(), "expected YAML"),
    "in itself": ((text(GOOD) + "b: &a [*a]\n").encode(), "no alias of what it is part of"),
    "bomb": ((BOMB + text(GOOD)).encode(), "expected at most 1000000 values"),
    "deep": ((text(GOOD) + "d: " + "[" * 3000 + "]" * 3000 + "\n").encode(), "nested too deeply"),
    "two documents": ((text(GOOD) + "---\n" + text(GOOD)).encode(), "expected a single document"),
    "a reference to nothing": ((text(GOOD) + "b: ${nosuch}\n").encode(), "nosuch"),
    "half a reference": ((text(GOOD) + "b: ${\n").encode(), "expected YAML"),
    "defaults": (("defaults: 3\n" + text(GOOD)).encode(), "defaults: expected a list"),
    "no target": (text({**GOOD, "_target_": ""}).encode(), "dataset._target_=null: expected a word"),
    "target left out": (
        text({key: value for key, value in GOOD.items() if key != "_target_"}).encode(),
        "dataset._target_: expected a value, the key is missing",
    ),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FILES)
def test_a_malformed_file_is_one_line(name: str, own: Path) -> None:
    content, says = FILES[name]
    own.write_bytes(content)
    refused(own, says)
    listed = call("data", "list", "-cd", str(own.parent.parent))
    assert listed.code == 0 or (listed.code == 2 and listed.err.count("\n") == 1), listed
    assert call("list", "-cd", str(own.parent.parent)).code == 0


def test_a_pipe_is_no_file(own: Path) -> None:
    import os

    os.mkfifo(own)
    assert call("list", "-cd", str(own.parent.parent)).code == 0
    said = call("plan", "-cd", str(own.parent.parent), *ASKED)
    assert (said.code, said.err.count("\n")) == (2, 1)
    with pytest.raises(ConfigError, match=r"^expected a file$"):
        yaml_file.read(own)


@pytest.mark.parametrize(
    ("key", "value", "has"), [("shape", "[5]", "[4]"), ("shape", "[2, 2]", "[4]"), ("classes", "3", "2")]
)
def test_what_contradicts_the_data_is_refused(key: str, value: str, has: str, own: Path) -> None:
    own.write_text(text({**GOOD, key: value}))
    for verb in (("run", *QUICK), ("data", "show", "--own-code")):
        said = call(*verb, "-cd", str(own.parent.parent), *ASKED)
        assert said.code == 2
        assert said.err.startswith(f"dpfl-bench: dataset.{key}={value}: the records of mine have {has}; ")
        assert said.err.count("\n") == 1


def test_a_loader_that_returns_something_else(own: Path) -> None:
    own.write_text(text({**GOOD, "_target_": "numpy.random.default_rng"}))
    said = call("run", *QUICK, "-cd", str(own.parent.parent), *ASKED)
    assert said.code == 2
    assert "expected a function that returns dpfl_bench.data.records.Records, got Generator" in said.err
