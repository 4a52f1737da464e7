"""An artefact of one's own, in a folder of one's own."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

from dpfl_bench.papers.artefact import Artefact, load

# sweeps that take a second: who is best among the local steps goes on with more rounds
CONTENT: dict[str, Any] = {
    "place": "Figure 9",
    "title": "Loss against local steps",
    "cost": {"smoke": "2 s", "cpu": "2 s"},
    "reduced": {"smoke": "few rounds"},
    "nominal": {"eps": 3, "how": "typed"},
    "sweeps": {
        "main": {
            "set": {"dataset": "breast_cancer", "rounds": 3, "repeats": 3, "clients": 4, "device": "cpu"},
            "over": {"algo": ["dp_fedavg", "dp_normfedavg"], "local_steps": [1, 4]},
            "full": {"set": {"rounds": 30}},
        },
        "second": {
            "set": {"dataset": "breast_cancer", "repeats": 3, "clients": 4, "device": "cpu"},
            "at_best": {"of": "main", "keys": ["local_steps"], "for": ["algo"], "by": "train_loss"},
            "over": {"rounds": [2, 4]},
        },
        "planned": {
            "does": "plan",
            "set": {"dataset": "breast_cancer", "clients": 4, "local_steps": 2, "rounds": 7},
            "over": {"eps": [1, 4]},
        },
    },
    "figures": {
        "curve": {"from": ["main"], "x": "round", "y": "train_loss", "line": "algo", "column": "local_steps"},
        "tuned": {"from": ["second"], "x": "rounds", "y": "train_loss", "line": "algo"},
    },
    "table": {"from": ["main"], "rows": "algo", "columns": "local_steps", "value": "100 * train_loss"},
    "printed": [
        {
            "id": "rounds",
            "what": "rounds",
            "place": "Table 1",
            "from": ["planned"],
            "value": "plan.rounds",
            "digits": 0,
            "rows": "eps",
            "cells": {1: 7, 4.0: 7},
            "scales": ["smoke", "cpu"],
        },
        {
            "id": "loss",
            "what": "loss, %",
            "place": "Table 2",
            "from": ["main"],
            "value": "100 * train_loss",
            "digits": 0,
            "runs": 3,
            "rows": "algo",
            "columns": "local_steps",
            "cells": {"dp_fedavg": {1: -5.0}},
            "scales": ["smoke"],
        },
    ],
    "claims": [
        {
            "id": "falls",
            "says": "the loss falls with rounds",
            "place": "section 1",
            "kind": "falls",
            "from": ["second"],
            "y": "train_loss",
            "along": "rounds",
            "each": "algo",
            "scales": ["smoke", "cpu"],
        },
        {
            "id": "plans",
            "says": "every plan has seven rounds",
            "place": "section 2",
            "kind": "equal",
            "from": ["planned"],
            "y": "plan.rounds",
            "to": 7,
            "digits": 0,
            "each": "eps",
            "scales": ["smoke", "cpu"],
        },
        {
            "id": "later",
            "says": "at scale",
            "place": "section 3",
            "kind": "reaches",
            "y": "train_loss",
            "most": 1,
            "each": ["sweep", "algo", "local_steps", "rounds"],
        },
    ],
}


def content(**changed: Any) -> dict[str, Any]:
    return {**copy.deepcopy(CONTENT), **changed}


def write(record: Any, folder: Path | str = "mine", name: str = "fig9", paper: str = "own") -> Path:
    """DIR/paper/PAPER/NAME.yaml; a string is written as it is."""
    file = Path(folder, "paper", paper, f"{name}.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    text = record if isinstance(record, str) else yaml.safe_dump(record, sort_keys=False)
    file.write_text(f"# Loss against local steps, small\n{text}")
    return file


def artefact(**changed: Any) -> Artefact:
    return load(write(content(**changed)))


def verdict_of(folder: Path) -> Any:
    return json.loads((folder / "verdict.json").read_text())
