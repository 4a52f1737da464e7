"""One run has one guarantee: plan --json, result.json, privacy.json, the last line, the picture and
collect tell the same record.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.command import QUICK, Said, call
from helpers.federations import settings_of

from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.guarantee import STOPPED, Guarantee
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.results import plots
from dpfl_bench.results.collect import eps_of_all, tuning
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.json_numbers import clean

SMALL = ("algo=dp_fedavg", "dataset=digits", "clients=10", "rounds=4", "local_steps=2")
# equal shares, which are foreseen without data
RECORD = (*SMALL, "privacy=record", "partition=iid")
OVERFLOWS = ("server_lr=2e38", "server_momentum=.99", "eval_every=1")
DIVERGES = ("algo=dp_fedavg", "rounds=50", "local_steps=1", "repeats=3", *OVERFLOWS)
CASES = {
    "client": SMALL,
    "record": (*RECORD, "batch_size=5"),
    "repeats": (*SMALL, "repeats=3", "sampled_clients=4"),
    "record, repeats": (*RECORD, "batch_size=5", "repeats=2", "sampled_clients=5"),
    "diverged": DIVERGES,
    "leak": (*SMALL, "privacy.clip=median"),
    "third party": (*SMALL, "privacy=central", "sampled_clients=4"),
    "privunit": (*SMALL, "privacy=local", "privacy.mechanism=privunit", "eps=8"),
    "formula": (*SMALL, "privacy.calibration=formula", "privacy.v=1"),
    "no privacy": ("algo=fedavg", *SMALL[1:]),
}
# keys of each file that tell a field of the record under another name, or tell more than it
APART = {"accounted", "leaks", "observers"}


def facts(guarantee: Guarantee) -> dict[str, Any]:
    """Every field of the record that a JSON file may tell, as JSON."""
    fields = {name: getattr(guarantee, name) for name in guarantee.__dataclass_fields__}
    return {name: _json(value) for name, value in fields.items() if name not in APART}


def _json(value: Any) -> Any:
    return json.loads(json.dumps(clean(value)))


def differing(guarantee: Guarantee, file: dict[str, Any]) -> list[str]:
    """The keys of a file that say something else than the record."""
    return [key for key, value in facts(guarantee).items() if key in file and file[key] != value]


def budget_of(overrides: tuple[str, ...]) -> Budget:
    settings = settings_of(*overrides)
    return Budget.of(settings, drawn_schedules(settings))


def guarantee_of(overrides: tuple[str, ...], result: dict[str, Any]) -> Guarantee:
    """The record, made here of settings and schedules; of a run that diverged in its first seed, of
    its played rounds.
    """
    whole = budget_of(overrides)
    diverged = result["diverged"]
    played = whole.played({diverged["seed"]: diverged["round"]}) if diverged else whole
    return Guarantee.of(played, whole)


def json_of(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / name).read_text())
    return content


def last_line(said: Said) -> str:
    return said.err.strip().splitlines()[-1]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("overrides", CASES.values(), ids=CASES)
def test_all_that_tell_of_a_run_tell_one_guarantee(overrides: tuple[str, ...]) -> None:
    said = call("run", *overrides, *QUICK)
    folder = Path(said.out.splitlines()[-1])
    result, privacy = json_of(folder, "result.json"), json_of(folder, "privacy.json")
    guarantee = guarantee_of(overrides, result)
    told = facts(guarantee)
    if not guarantee.private:  # what only privacy has is left out of these files
        told = {key: told[key] for key in ("eps", "delta")}
        assert privacy["private"] is False
        assert privacy["eps"] == told["eps"]
        assert {key: result[key] for key in told} == told
        assert "no privacy" in last_line(said)
        return
    assert differing(guarantee, result) == []
    assert differing(guarantee, privacy) == []
    plan, whole = (
        call("plan", "--json", "--views", *overrides).json,
        Guarantee.of(budget_of(overrides), every=True),
    )
    assert differing(whole, plan) == []
    assert told.keys() <= result.keys() | privacy.keys() | plan.keys()
    assert plan["observers"] == _json(whole.observers)
    assert guarantee.accounted is not None
    assert privacy["accounted"] == _json(guarantee.accounted.json())
    assert privacy["not_accounted"][: len(guarantee.leaks)] == list(guarantee.leaks)
    _check_last_line(last_line(said), guarantee, result)


def _check_last_line(line: str, guarantee: Guarantee, result: dict[str, Any]) -> None:
    (eps,) = re.findall(r" eps (?:nominal [\d.e+-]+, valid )?([\d.e+-]+)", line)
    assert eps == f"{guarantee.eps:.4g}"
    assert ("nominal" in line) is (guarantee.nominal_eps is not None)
    eps_of_all = re.findall(r" each, ([\d.e+-]+) all (\d+) together", line)
    several = len(result["seeds"]) > 1 and result["status"] == "done"
    assert eps_of_all == (
        [(f"{guarantee.eps_all_repeats:.3g}", str(len(result["seeds"])))] if several else []
    )
    assert re.findall(r"noise multiplier ([\d.e+-]+)", line) == (
        [] if guarantee.noise_multiplier is None else [f"{guarantee.noise_multiplier:.4g}"]
    )
    assert ("not fully accounted" in line) is (guarantee.fully_accounted is False)


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("result.json", "eps", 1.9),
        ("result.json", "accountant", "pld"),
        ("result.json", "fully_accounted", False),
        ("privacy.json", "eps_all_repeats", 2.1),
        ("privacy.json", "views", {"server": 1.0, "third_party": 1.0}),
        ("privacy.json", "neighbours", "add_remove_one"),
    ],
)
def test_a_file_that_tells_something_else_is_seen(file: str, key: str, value: object) -> None:
    """The negative control."""
    folder = call("run", *CASES["client"], *QUICK).folder
    content = json_of(folder, file)
    guarantee = guarantee_of(CASES["client"], json_of(folder, "result.json"))
    assert differing(guarantee, content) == []
    assert differing(guarantee, {**content, key: value}) == [key]


def test_a_last_line_that_tells_something_else_is_seen() -> None:
    """The negative control."""
    said = call("run", *CASES["repeats"], *QUICK)
    result = json_of(said.folder, "result.json")
    guarantee, line = guarantee_of(CASES["repeats"], result), last_line(said)
    _check_last_line(line, guarantee, result)
    for old, new in (
        (" eps 2", " eps 1.9"),
        ("all 3 together", "all 2 together"),
        (")", "; not fully accounted)"),
    ):
        assert old in line
        with pytest.raises(AssertionError):
            _check_last_line(line.replace(old, new), guarantee, result)


@pytest.mark.parametrize("name", ["client", "record, repeats", "diverged", "leak"])
def test_what_is_read_back_is_what_was_written(name: str) -> None:
    """The last line, the picture and collect read the record from the files."""
    folder = RunFolder(Path(call("run", *CASES[name], *QUICK).out.splitlines()[-1]))
    result = folder.read("result.json")
    assert result is not None
    guarantee = guarantee_of(CASES[name], result)
    of_result, of_privacy = Guarantee.read(result), Guarantee.read(folder.read("privacy.json") or {})
    for read in (of_result, of_privacy):
        assert (read.eps, read.delta, read.eps_all_repeats) == (
            guarantee.eps,
            guarantee.delta,
            guarantee.eps_all_repeats,
        )
        assert (read.unit, read.trust, read.neighbours) == (
            guarantee.unit,
            guarantee.trust,
            guarantee.neighbours,
        )
        assert read.holds is guarantee.holds is (name != "leak")
    assert of_privacy.accounted == guarantee.accounted
    assert f"ε = {guarantee.eps:.3g}" in plots.budget(result)
    if guarantee.holds:
        assert guarantee.accounted is not None
        assert guarantee.accounted.as_one_of is not None
        assert guarantee.accounted.fresh is not None
        z = guarantee.accounted.noise_multiplier
        assert eps_of_all.released(folder, guarantee.delta) == (guarantee.accounted.as_one_of[0], z)
        assert tuning.candidate(folder) == (guarantee.accounted.fresh[0], z)


def test_a_run_whose_updates_were_all_blanked_is_not_fully_accounted() -> None:
    budget = budget_of(SMALL)
    assert Guarantee.of(budget).holds
    blanked = Guarantee.of(budget, blanked=True)
    assert (blanked.leaks, blanked.fully_accounted, blanked.holds) == ((STOPPED,), False, False)


def test_without_privacy_nothing_is_guaranteed() -> None:
    guarantee = Guarantee.of(budget_of(CASES["no privacy"]), blanked=True)
    assert (guarantee.eps, guarantee.private, guarantee.holds) == (math.inf, False, False)
    assert guarantee.leaks == ()
