"""What `reproduce` refuses, before any data load; and `list papers` where files are broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.artefacts import content, write
from helpers.command import Said, call

from dpfl_bench.data import breast_cancer


def reproduce(*words: str, which: str = "own/fig9") -> Said:
    return call("reproduce", which, "-cd", "mine", *words)


def refused(said: Said, *words: str) -> None:
    assert said.code == 2, said.err
    (line,) = said.err.splitlines()
    assert line.startswith("dpfl-bench: ")
    for word in words:
        assert word in line
    assert not Path("outputs").exists()


@pytest.mark.parametrize("word", ["scale=tiny", "reading=none", "figure.width=huge", "rounds=3", "nonsense"])
def test_words_that_it_does_not_know(word: str) -> None:
    write(content())
    refused(reproduce(word), word.partition("=")[0])


def test_artefacts_that_are_not_there() -> None:
    write(content())
    refused(reproduce(which="own/fig8"), "own/fig8", "own/fig9")
    refused(reproduce(which="nobody"), "nobody", "own")


@pytest.mark.parametrize("flags", [(), ("--dry-run",), ("--plot-only",)])
@pytest.mark.parametrize(
    ("sweep", "key", "value", "said"),
    [
        ("main", "roundz", 3, "roundz"),
        ("main", "eps", -1, "eps=-1"),
        ("main", "algo", "dp_nothing", "dp_nothing"),
        ("second", "roundz", 3, "roundz"),  # of a later sweep: before the first one runs
        ("second", "eps", -1, "eps=-1"),
        ("planned", "roundz", 3, "roundz"),
        ("planned", "eps", "x", "eps"),
    ],
)
def test_a_sweep_that_cannot_run(
    sweep: str, key: str, value: Any, said: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breast_cancer, "load", lambda *_, **__: pytest.fail("data were loaded"))
    record = content()
    for part in ("set", "over"):
        record["sweeps"][sweep].setdefault(part, {}).pop(key, None)
    record["sweeps"][sweep]["set"][key] = value
    write(record)
    refused(reproduce(*flags), "fig9.yaml", f"sweeps.{sweep}", said)


@pytest.mark.parametrize(
    ("part", "key", "value", "said"),
    [
        ("figures/curve", "where", {"local_step": 1}, "figures.curve: local_step"),
        ("figures/curve", "line", ["algoo"], "figures.curve: algoo"),
        ("figures/curve", "best_over", ["lrr"], "figures.curve: lrr"),
        (
            "figures/tuned",
            "spread",
            ["clip"],
            "no run has that field; expected privacy.clip",
        ),
        ("table", "rows", ["algoo"], "table: algoo"),
        ("printed/1", "columns", ["local_step"], "printed: loss: local_step"),
        ("claims/0", "each", ["algoo"], "claims: falls: algoo"),
        ("claims/0", "along", "round_", "claims: falls: round_"),
        ("claims/0", "where", {"privacy.clpi": 1}, "claims: falls: privacy.clpi"),
    ],
)
def test_fields_that_no_run_has(part: str, key: str, value: Any, said: str) -> None:
    """Else a claim would be open for ever, or all its groups would be one."""
    record = content()
    node: Any = record
    for step in part.split("/"):
        node = node[int(step)] if step.isdigit() else node[step]
    node[key] = value
    write(record)
    refused(reproduce(), "fig9.yaml", said)


def test_a_stage_of_itself() -> None:
    record = content()
    for of in ("second", "third", "nothing"):
        record["sweeps"]["second"]["at_best"]["of"] = of
        record["sweeps"]["third"] = {"at_best": {"of": "second", "keys": ["rounds"]}}
        write(record)
        refused(reproduce(), "fig9.yaml", "at_best.of", of, "expected an earlier sweep")


# --- list papers ---


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        '{"claims": 3, "printed": []}',
        '{"claims": [{}], "printed": []}',
        "\x00\xff",
    ],
)
def test_anothers_unreadable_verdict_does_not_break_the_list(text: str) -> None:
    write(content())
    for scale, words in (("cpu-paper", text), ("smoke-exact", json.dumps({"claims": [], "printed": []}))):
        file = Path("outputs/papers/own/fig9", scale, "verdict.json")
        file.parent.mkdir(parents=True)
        file.write_text(words)
    shown = call("list", "papers", "-cd", "mine", "--json")
    (row,) = [row for row in shown.json if row["name"] == "own/fig9"]
    assert row["reproduced"] == {"smoke-exact": "drawn; nothing to check"}
