"""What was swept, read out of the configs line by line."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.collected import finish, free, table_of
from helpers.federations import CONF
from omegaconf import OmegaConf

from dpfl_bench.config import compose
from dpfl_bench.results.collect.columns import columns, flat
from dpfl_bench.results.collect.gather import collect


def flattened(config: Any, prefix: str = "") -> dict[str, Any]:
    """By a real parser."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= (
            flattened(value, f"{prefix}{key}.")
            if isinstance(value, dict) and value
            else {f"{prefix}{key}": value}
        )
    return found


def parsed(text: str) -> dict[str, Any]:
    return {key: yaml.safe_load(value) for key, value in flat(text).items()}


@pytest.mark.slow
@pytest.mark.parametrize("group", ["algo", "dataset", "model", "partition", "privacy"])
def test_every_config_reads_as_by_a_parser(group: str) -> None:
    composer = compose.Composer(None, "config")
    for path in sorted((CONF / group).glob("[!_]*.yaml")):
        text = composer.job((f"{group}={path.stem}",)).yaml()
        assert parsed(text) == flattened(yaml.safe_load(text))


def test_odd_values_read_as_by_a_parser() -> None:
    config = {
        "words": "a: b # c",
        "long": "word " * 60,
        "quoted": 'it\'s "so"',
        "lines": "one\ntwo: 2\n\n  three\n",
        "numbers": [1e-5, float("inf"), -3, True, None, "1e-5", "null"],
        "deep": {
            "list": [{"a": 1, "b": [2, 3]}, [4]],
            "empty": {},
            "none": [],
            "next": {"x": "", "y": "é ± ε", "z": ":"},
        },
        "after": {"path": "C:\\dir: x", "date": "2020-01-01", "key with spaces": 1},
    }
    text = OmegaConf.to_yaml(OmegaConf.create(config))
    assert parsed(text) == flattened(yaml.safe_load(text)) == flattened(config)


@pytest.mark.slow
def test_random_configs_read_as_by_a_parser() -> None:
    dice = random.Random(0)
    leaves = [
        0,
        1.5,
        "a",
        "a: b",
        "- a",
        "x\ny",
        "# no",
        "",
        "'",
        '"',
        "{",
        "[1",
        None,
        True,
        [],
        {},
        "long words " * 20,
        ["a", {"b": "c\nd"}],
    ]

    def made(depth: int) -> Any:
        if depth == 0 or dice.random() < 0.5:
            return dice.choice(leaves)
        return {f"k{dice.randrange(100)}": made(depth - 1) for _ in range(dice.randrange(1, 5))}

    for _ in range(300):
        config = {"top": made(4), "next": made(3)}
        text = OmegaConf.to_yaml(OmegaConf.create(config))
        assert parsed(text) == flattened(yaml.safe_load(text)), text


def test_columns_are_what_overrides_name_and_what_differs() -> None:
    """Whichever way it was set: by an override, the choice of a group's file, another primary
    config.
    """
    finish(
        "a",
        config="eps: 2.0\nserver_lr: 1.0\nmodel:\n  name: mlp\n  width: 8\nsame: 3\nlr: 0.5\n",
        overrides="- +same=3\n- lr=.5\n",
    )
    finish(
        "b",
        config="eps: 2.0\nserver_lr: 0.1\nmodel:\n  name: logreg\n  l2: 0.0\nsame: 3\nlr: 0.5\n",
        overrides="- model=logreg\n",
    )
    told = columns([Path("runs/a"), Path("runs/b")])
    assert set(told.differing) == {"server_lr", "model.name", "model.width", "model.l2"}
    assert told.rows[0] == {
        "server_lr": 1.0,
        "model.name": "mlp",
        "model.width": 8,
        "same": 3,
        "lr": 0.5,
        "model.l2": None,
    }
    collect(["runs"], "out")
    rows = table_of("out/results.csv")
    assert [row["server_lr"] for row in rows] == ["1.0", "0.1"]
    assert [row["model.width"] for row in rows] == ["8", ""]
    assert list(rows[0])[:3] == ["run_id", "status", "seeds"]


def test_what_can_change_no_number_is_no_column() -> None:
    for name, more in (("a", "1"), ("b", "2")):
        ours = f"dataset:\n  root: r{more}\n  _target_: dpfl_bench.data.t{more}\n"
        finish(name, config=f"eps: 2.0\noutputs: o{more}\nengine:\n  workers: {more}\n{ours}")
    assert columns([Path("runs/a"), Path("runs/b")]).rows == [{}, {}]


def test_every_key_of_a_users_own_loader_is_one() -> None:
    for name, more in (("a", "1"), ("b", "2")):
        finish(name, config=f"eps: 2.0\ndataset:\n  root: r{more}\n  _target_: mine.load\n")
    assert columns([Path("runs/a"), Path("runs/b")]).rows == [{"dataset.root": "r1"}, {"dataset.root": "r2"}]


def test_without_privacy_its_settings_are_idle() -> None:
    """Runs of eps=inf with different C have one id: whose C the folder holds is chance, so it is
    not told.
    """
    free(
        "a",
        config="eps: .inf\ndelta: 1.0e-05\nprivacy:\n  clip: 0.1\n  bound_without_noise: false\n",
        overrides="- privacy.clip=0.1\n",
    )
    free("b", config="eps: .inf\ndelta: 1.0e-05\nprivacy:\n  clip: 0.1\n  bound_without_noise: true\n")
    finish("c", config="eps: 2.0\ndelta: 1.0e-05\nprivacy:\n  clip: 0.3\n  bound_without_noise: false\n")
    told = columns([Path("runs") / name for name in "abc"])
    assert [row["privacy.clip"] for row in told.rows] == [None, 0.1, 0.3]
    assert "delta" not in told.differing


def test_without_a_config_the_overrides_have_to_do() -> None:
    path = finish("a", overrides="- lr=.1\n- model.l2=0.5\n- +x=1\n- ~y\n- algo=dp_fedavg\n")
    (path / ".hydra" / "config.yaml").unlink()
    assert columns([path]).rows == [{"lr": 0.1, "model.l2": 0.5, "x": 1, "algo": "dp_fedavg"}]
