"""The eps that a paper states beside the eps that holds; and what no accountant counts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.command import QUICK, call, read
from helpers.federations import settings_of
from helpers.sources import facts, run

from dpfl_bench.experiment.plan import plan
from dpfl_bench.results.select import budgets
from dpfl_bench.results.select.sources import Facts, Run

# dpscaffold's figure 1: docs/papers.md has the numbers
DPSCAFFOLD = (
    *("algo=dp_scaffold", "privacy=record", "dataset=synthetic_logistic", "sampled_clients=20"),
    *("local_steps=50", "rounds=400", "delta=2.5e-6", "privacy.observer=third_party", "batch_size=800"),
    *("records=4000", "privacy.calibration=fixed", "privacy.noise_multiplier=60"),
)


def planned(*words: str) -> Facts:
    chosen = settings_of(*words)
    told = {"privacy.calibration": chosen.privacy.calibration}
    return Facts("main", "plan", told, plan(chosen), words=words)


def told(*sources: Any, eps: Any = None) -> tuple[dict[float, Any], str]:
    return budgets.budgets(sources, eps), budgets.note(sources, eps)


@pytest.mark.slow
def test_the_papers_accountant() -> None:
    source = planned(*DPSCAFFOLD, "privacy.accountant=paper")
    known, note = told(source)
    ((nominal, (low, high)),) = known.items()
    assert nominal == pytest.approx(12.9063, rel=1e-4)
    assert low == high == pytest.approx(0.859874, rel=1e-4)
    assert note.endswith(": ε 0.8599 holds")
    stated, note = told(source, eps=13)
    assert list(stated) == [13.0]
    assert note == "nominal ε 13: ε 0.8599 holds"
    assert budgets.json(stated) == {"nominal": 13.0, "valid": pytest.approx(0.859874, rel=1e-4)}


def test_a_formula() -> None:
    source = planned("privacy=local", "privacy.calibration=formula", "privacy.v=1", "total_steps=20", "eps=2")
    ((nominal, (low, high)),) = told(source)[0].items()
    assert nominal == 2
    assert low == high > 2


def test_noise_that_was_given() -> None:
    """Without an eps beside it the default says nothing; a stated one stands beside what holds."""
    fixed = ("privacy.calibration=fixed", "privacy.noise_multiplier=1", "rounds=2", "local_steps=2")
    ((nominal, (valid, _)),) = told(planned(*fixed))[0].items()
    assert nominal == valid != 2
    ((nominal, (same, _)),) = told(planned(*fixed, "eps=7"))[0].items()
    assert (nominal, same) == (7, valid)
    ((nominal, (same, _)),) = told(planned(*fixed, "privacy.nominal=.25"))[0].items()
    assert (nominal, same) == (0.25, valid)


def test_no_privacy() -> None:
    known, note = told(planned("algo=fedavg", "rounds=2", "local_steps=2"), facts({"clients": 3}, "data"))
    assert known == {}
    assert note == "no privacy"
    assert budgets.json(known) == {"nominal": None, "valid": None}


def finished(nominal: float | None, asked: float, valid: float | None, *leaks: str) -> Run:
    made = run({}, 1.0, nominal_eps=nominal, eps_target=asked, valid_eps=valid)
    made.__dict__["leaks"] = leaks
    return made


def test_several_budgets() -> None:
    runs = [finished(None, 2.0, 1.9), finished(None, 2.0, 2.0), finished(1.0, 5.0, 7.0)]
    runs += [finished(None, math.inf, None)]
    known, note = told(*runs)
    assert known == {1.0: (7.0, 7.0), 2.0: (1.9, 2.0)}
    assert note == "nominal ε 1: ε 7 holds; nominal ε 2: ε 1.9 to 2 holds"
    assert budgets.json(known) == {"nominal": [1.0, 2.0], "valid": [7.0, [1.9, 2.0]]}


@pytest.mark.parametrize("valid", [None, math.inf])
def test_privacy_without_a_valid_eps_is_not_no_privacy(valid: float | None) -> None:
    known, note = told(finished(13.0, 2.0, valid))
    assert known == {13.0: (math.inf, math.inf)}
    assert note == "nominal ε 13: ε none holds"


def test_what_is_not_fully_accounted_holds_nowhere() -> None:
    runs = [finished(None, 2.0, 2.0), finished(None, 2.0, 2.0, "model.init: of the data", "labels")]
    note = told(*runs)[1]
    assert "not fully accounted" in note
    assert "holds" not in note
    assert budgets.leaks(runs) == ["model.init: of the data", "labels"]


LEAKY = (
    *("dataset=quadratics", "algo=dp_fedavg", "model.init=near_optimum", "rounds=2", "local_steps=2"),
    *("privacy=central", "privacy.calibration=formula", "privacy.v=1", "eps=3", *QUICK),
)


def test_a_run_that_is_not_fully_accounted_says_so() -> None:
    folder = call("run", *LEAKY).folder
    source = Run("main", folder, read(folder, "result.json"))
    for each in (source, planned(*LEAKY)):
        known, note = told(each)
        assert list(known) == [3.0]
        assert "not fully accounted" in note
        assert budgets.leaks([each]) == [line for line in source.leaks]
        assert "near_optimum" in budgets.leaks([each])[0]
    assert known == told(source)[0]
