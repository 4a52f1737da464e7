"""`dpfl-bench audit`: its answer, its files, its exit code, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from helpers.audits import noise_too_small
from helpers.command import QUICK, call, read

from dpfl_bench.results.collect import audited

SMALL = ("algo=dp_fedavg", "total_steps=12", "local_steps=4", *QUICK)
FEW = ("--canaries", "100")
KEYS = {"part", "verdict", "statistic", "p", "lower", "says"}


@pytest.fixture
def folder() -> Path:
    return call("run", *SMALL).folder.absolute()


@pytest.mark.slow
def test_a_run_is_audited(folder: Path) -> None:
    said = call("audit", str(folder), "--json", *FEW)
    found = said.json
    assert set(found) == {"eps", "lower", "confidence", "verdict", "parts"}
    assert all(set(part) == KEYS for part in found["parts"])
    assert (found["verdict"], found["confidence"]) == ("holds", 0.95)
    assert found["eps"] == read(folder, "result.json")["eps"]
    assert 0.95 * found["eps"] < found["lower"] <= found["eps"]
    assert read(folder, "audit.json") == found
    told = read(folder, "privacy.json")["audited"]
    assert told == {name: found[name] for name in ("verdict", "lower", "confidence")}
    assert call("collect", str(folder.parent)).code == 0
    row = pd.read_csv(folder.parent.parent / "results.csv").iloc[0]
    assert (row["audited"], row["proved_eps"]) == ("holds", found["lower"])
    assert "audited" in (folder.parent.parent / "table.md").read_text()
    assert call("replay", str(folder), "--check").code == 0, "an audit is no number of the run"


def test_settings_are_audited_before_a_run() -> None:
    said = call("audit", *SMALL, "outputs=elsewhere", *FEW)
    assert said.code == 0, said.err
    assert said.out.splitlines()[-1].startswith("holds: eps 2 is claimed, at least 1.9")
    assert not Path("elsewhere").exists()


@pytest.mark.slow
def test_a_violated_claim_is_exit_code_1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise_too_small(monkeypatch)
    said = call("audit", str(folder), "--json", *FEW)
    assert said.code == 1
    assert json.loads(said.out)["verdict"] == "violated"


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_the_record_alone_says_what_is_expected(folder: Path, whole: bool) -> None:
    """A record that claims more noise than the run has is refuted: by the noise, if its noise
    multiplier was raised; by its own numbers, wherever they do not fit.
    """
    record = read(folder, "privacy.json")
    main = record["releases"][0]
    main["noise_std"] *= 1.05
    if whole:
        main["noise_multiplier"] *= 1.05
        record["accounted"]["noise_multiplier"] *= 1.05
    (folder / "privacy.json").write_text(json.dumps(record))
    said = call("audit", str(folder), "--json", *FEW)
    assert said.code == 1
    violated = {part["part"] for part in json.loads(said.out)["parts"] if part["verdict"] == "violated"}
    assert "record" in violated
    assert ("residuals" in violated) is whole


def test_the_worst_of_some_audits() -> None:
    """What verdict.json says of an artefact's runs."""
    folders = [Path(name) for name in "abcd"]
    for place, verdict in zip(folders, ("holds", "violated", "inconclusive"), strict=False):
        place.mkdir()
        (place / "audit.json").write_text(json.dumps({"verdict": verdict, "lower": 1.0}))
    assert audited.of_runs(folders) == "violated (3 of 4 runs)"
    assert audited.of_runs(folders[::3]) == "holds (1 of 2 runs)"
    assert audited.of_runs(folders[3:]) == ""


REFUSED = {
    "nowhere": (("nowhere",), "expected a run folder"),
    "no privacy": (("eps=inf",), "nothing is claimed"),
    "confidence": (("--confidence", "95"), "expected a number from 0.5 to below 1"),
    "canaries": (("--canaries", "3"), "expected 40 to"),
    "a key": (("epsilon=3",), "epsilon"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    words, says = REFUSED[name]
    said = call("audit", *words)
    assert said.code == 2
    assert says in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("damage", ["none", "broken", "half"])
def test_a_record_that_cannot_be_read_is_refused(folder: Path, damage: str) -> None:
    record = folder / "privacy.json"
    if damage == "none":
        record.unlink()
    else:
        record.write_text("{" if damage == "broken" else '{"private": true}')
    said = call("audit", str(folder))
    assert said.code == 2
    assert "privacy.json" in said.err
    assert len(said.err.splitlines()) == 1
