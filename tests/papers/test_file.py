"""An artefact's file: what it says, and every mistake in one line with the file and the key."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from helpers.artefacts import CONTENT, artefact, content, write

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.papers.artefact import artefacts, chosen, load


def changed(path: str, value: Any) -> dict[str, Any]:
    """The content with one value in another place; DROP drops the key."""
    record = copy.deepcopy(CONTENT)
    node: Any = record
    *above, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    for key in above:
        node = node.setdefault(key, {}) if isinstance(node, dict) else node[key]
    if value is DROP:
        del node[last]
    else:
        node[last] = value
    return record


DROP = object()
MISTAKES: list[tuple[str, Any, str]] = [
    # unknown keys, anywhere
    ("colour", 1, "colour"),
    ("line", "x", "line"),
    ("paper", "x", "paper"),
    ("nominal/epsilon", 1, "epsilon"),
    ("cost/tiny", "1 s", "tiny"),
    ("reduced/tiny", "1 s", "tiny"),
    ("readings", ["papr"], "papr"),
    ("figures/curve/colour", 1, "figures.curve.colour"),
    ("figures/curve/log", ["z"], "figures.curve.log"),
    ("figures/curve/kind", "pie", "figures.curve.kind"),
    ("figures/curve/from", ["man"], "man"),
    ("table/colour", 1, "table.colour"),
    ("printed/0/colour", 1, "colour"),
    ("printed/0/scales", ["fulll"], "fulll"),
    ("printed/0/readings", ["x"], "readings"),
    ("claims/0/colour", 1, "falls: colour"),
    ("claims/0/scales", ["fulll"], "fulll"),
    ("claims/0/untestable", {"fulll": "x"}, "fulll"),
    ("claims/0/kind", "rise", "kind=rise"),
    ("sweeps/main/sets", {}, "sweeps.main.sets"),
    ("sweeps/main/full/sets", {}, "sweeps.main.full.sets"),
    ("sweeps/main/exact", {"full": {"ovr": {}}}, "sweeps.main.exact.full.ovr"),
    ("sweeps/second/at_best/fro", 1, "fro"),
    ("sweeps/second/does", "walk", "walk"),
    # what is missing, or of another kind
    ("sweeps/second/at_best/keys", DROP, "sweeps.second.at_best.keys"),
    ("sweeps/second/at_best/of", DROP, "sweeps.second.at_best.of"),
    ("sweeps/second/at_best/for", 3, "sweeps.second.at_best.for"),
    ("sweeps/main/set", None, "sweeps.main.set"),
    ("sweeps/main/over", [1], "sweeps.main.over"),
    ("sweeps/main/over/lr", [], "sweeps.main.over.lr"),
    ("sweeps/main/points", {"lr": 1}, "sweeps.main.points"),
    ("sweeps/main/points", [3], "sweeps.main.points"),
    ("sweeps/main", None, "sweeps.main"),
    ("figures/curve/y", "", "figures.curve"),
    ("figures/curve/x", DROP, "figures.curve.x"),
    ("figures/curve", None, "figures.curve"),
    ("table/value", DROP, "table"),
    ("table/last", "some", "last=some"),
    ("table/digits", "two", "table.digits"),
    ("printed", {}, "printed"),
    ("printed/0/cells", {1: "7 (?)"}, "cells: 1"),
    ("printed/0/cells", {1: True}, "cells: 1"),
    ("printed/0/std", {3: 1}, "std: 3"),
    ("printed/0/differs", {"3": "x"}, "differs: 3"),
    ("printed/0/rows", [], "rows or columns"),
    ("printed/0/runs", -1, "runs"),
    ("printed/0/id", "loss", "expected each once"),
    ("claims/0/id", DROP, "ids of claims"),
    ("claims/0/y", DROP, "falls"),
    ("claims/0/along", DROP, "along"),
    ("claims/1/digits", "0", "digits=0"),
    ("claims/1/to", [7], "to=[7]"),
    ("claims/2/most", "1", "most=1"),
    ("claims/2/most", DROP, "most"),
    ("claims/2/in", "some", "in=some"),
    ("claims/2/in", 0, "in=0"),
    ("claims/2/in", True, "in=True"),
    # quantities
    ("table/value", "os.system('x')", "table"),
    ("figures/curve/y", "train_loss[0]", "figures.curve.y"),
    ("figures/curve/y", "best local_steps", "expected by"),
    ("figures/curve/by", "train loss", "figures.curve"),
    ("figures/curve/at", {"p": "best p"}, "figures.curve.p"),
    ("claims/0/y", "1 - test_metric", "expected better: least or most"),
]


@pytest.mark.parametrize(("path", "value", "said"), MISTAKES, ids=[each[0] for each in MISTAKES])
def test_a_mistake_is_one_line_with_file_and_key(path: str, value: Any, said: str) -> None:
    file = write(changed(path, value))
    with pytest.raises(ConfigError) as error:
        load(file)
    assert str(error.value).startswith(f"{file}: ")
    assert "\n" not in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected keys and values"),
        ("[1, 2]", "expected keys and values"),
        ("a: [1", "line"),
        ("title: x\ntitle: y", "line 3: title: expected each key once"),
        ("printed: [{id: a, cells: {10: 1, 10.0: 2}}]", "10: expected each key once"),
        ("title: 'x\n  - y", "line"),
        ("sweeps: {main: {set: {lr: 1, lr: 2}}}", "lr: expected each key once"),
        ("title: \x07", ""),
    ],
    ids=range(8),
)
def test_no_artefact_at_all(text: str, said: str) -> None:
    file = write(text)
    with pytest.raises(ConfigError) as error:
        load(file)
    assert str(error.value).startswith(f"{file}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text() -> None:
    file = write("x")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"fig9\.yaml: "):
        load(file)


def test_the_content_itself_is_fine() -> None:
    made = artefact()
    assert (made.id, made.line) == ("own/fig9", "Loss against local steps, small")
    assert made.figures["curve"].line == ["algo"]
    assert made.claims[0].terms == {"along": "rounds"}
    assert made.claims[2].each == ["sweep", "algo", "local_steps", "rounds"]


def test_words_of_yaml_that_are_numbers() -> None:
    record = content()
    text = "sweeps: {main: {over: {eps: [1, inf, .inf], lr: [1e-5, 1.5e3, 1.0e-3]}}}\nreduced: {smoke: 1e}"
    sweeps = load(write(f"{text}\ntitle: '-inf x'")).sweeps
    assert sweeps["main"]["over"] == {"eps": [1, float("inf"), float("inf")], "lr": [1e-5, 1500.0, 1e-3]}
    assert all(isinstance(value, float) for value in sweeps["main"]["over"]["lr"])
    assert record == CONTENT


def test_which_files_there_are() -> None:
    packaged = artefacts()
    write(content(), name="fig1")
    write(content(), name="_hidden")
    some = next(iter(packaged), "own/fig1")
    paper, name = some.split("/")
    mine = write(content(), name=name, paper=paper)
    found = artefacts("mine")
    assert set(found) == {*packaged, "own/fig1", some}
    assert found[some] == mine
    assert [each.id for each in chosen("own", "mine")] == ["own/fig1"]
    assert [each.id for each in chosen("own/fig1", "mine")] == ["own/fig1"]
    assert len(chosen("all", "mine")) == len(found)
    for word in ("own/fig2", "nobody", "own/", ""):
        with pytest.raises(ConfigError, match="expected all, a paper or an artefact"):
            chosen(word, "mine")


def test_every_packaged_file_is_read() -> None:
    """And each of its claims says what is compared."""
    for file in artefacts().values():
        assert [claim.id for claim in load(Path(file)).claims if not claim.reads] == []
