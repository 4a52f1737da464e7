"""`fedexp`'s table 1 and the eps of `pfl`'s noise: no training, exact at every scale."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.command import call
from helpers.federations import CONF

pytestmark = pytest.mark.slow


def verdict(which: str, outputs: Path, *more: str) -> dict[str, Any]:
    said = call("reproduce", which, f"outputs={outputs}", *more)
    assert said.code in (0, None), said.err
    content: dict[str, Any] = json.loads((outputs / "papers" / which / "verdict.json").read_text())
    return content


def test_table_1_has_both_numbers_of_rounds_side_by_side(tmp_path: Path) -> None:
    record = verdict("fedexp/table1", tmp_path)
    by_id = {name: [m for m in record["printed"] if m["id"] == name] for name in ("central-49-rounds",)}
    assert {m["match"] for m in by_id["central-49-rounds"]} == {"exact"}
    assert Counter(m["match"] for m in record["printed"]) == {"exact": 6, "differs": 10}
    ours = {(m["id"], m["at"]): m["ours"] for m in record["printed"]}
    local = "local / gaussian / synthetic_linear / dp_fedexp / "
    assert ours["local-one-round", local + "1"] == pytest.approx(15.65812, abs=1e-5)
    assert ours["local-50-rounds", local + "50"] == pytest.approx(289.3386, abs=1e-4)
    assert [claim["verdict"] for claim in record["claims"]] == ["holds", "holds"]


def test_another_printed_number_differs(tmp_path: Path) -> None:
    text = (CONF / "paper" / "fedexp" / "table1.yaml").read_text()
    own = tmp_path / "own" / "paper" / "fedexp" / "table1.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(text.replace("{dp_fedexp / 49: 15.261", "{dp_fedexp / 49: 15.262"))
    record = verdict("fedexp/table1", tmp_path / "out", "-cd", str(tmp_path / "own"))
    flipped = [m for m in record["printed"] if m["printed"] == 15.262]
    assert [m["match"] for m in flipped] == ["differs"]
    assert Counter(m["match"] for m in record["printed"]) == {"exact": 5, "differs": 11}


def test_the_eps_of_pfl_s_noise_grows_with_the_clients(tmp_path: Path) -> None:
    """One copy of a record 2.918, the record that most clients hold 8.47 to
    17.52.
    """
    record = verdict("pfl/table5", tmp_path)
    claims = {claim["id"]: claim for claim in record["claims"]}
    assert claims["one-client-has-the-printed-eps"]["verdict"] == "holds"
    every = claims["every-record-has-the-printed-eps"]
    assert every["verdict"] == "does not hold"
    for clients, eps in ((10, 8.472), (25, 11.08), (50, 13.94), (100, 17.52)):
        assert f"clients {clients}: {eps}, at most 2.93" in every["evidence"]
