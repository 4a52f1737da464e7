"""lr=1/L, and what a run and `plan` say of the theorems once the data are there."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from helpers.command import call, read
from helpers.federations import player_of, settings_of

from dpfl_bench.experiment import theory_of_run
from dpfl_bench.problems import theory

pytestmark = pytest.mark.one_in(2)

CONVEX = ("dataset=breast_cancer", "clients=10", "model.l2=.1", "partition=iid", "lr=1/L")
LENGTH = ("total_steps=40", "local_steps=4", "plot=false", "eval_every=5")
LOCAL = ("privacy=local", "privacy.clip=50", "privacy.calibration=formula", "privacy.v=1e-8")
GIVEN = ("algo=dp_scaffnew", *CONVEX, *LENGTH, *LOCAL)


def theory_of(*overrides: str) -> dict[str, Any]:
    found: dict[str, Any] = read(call("run", *overrides).folder, "result.json")["theory"]
    return found


def test_one_over_L_is_the_number_of_the_worst_client() -> None:
    asked = call("run", *GIVEN, "outputs=asked").folder
    result = read(asked, "result.json")
    federation = player_of(settings_of(*GIVEN)).job.data.federation
    norms = [
        torch.linalg.matrix_norm(federation.features[a:b].double(), 2).item() ** 2 / (b - a)
        for a, b in zip(federation.offsets, federation.offsets[1:], strict=False)
    ]
    assert result["lr"] == pytest.approx(1 / (max(norms) / 4 + 0.1), rel=1e-9)
    typed = [o for o in GIVEN if o != "lr=1/L"]
    told = call("run", *typed, f"lr={result['lr']!r}", "outputs=typed").folder
    assert asked.name != told.name, "it is another question"
    assert (asked / "metrics.csv").read_bytes() == (told / "metrics.csv").read_bytes()


def test_it_is_a_leak_of_private_runs_alone() -> None:
    assert any("lr=1/L" in leak for leak in settings_of(*GIVEN).leaks)
    assert settings_of(*GIVEN, "eps=inf").leaks == []
    folder = call("run", *GIVEN).folder
    assert any("lr=1/L" in leak for leak in read(folder, "privacy.json")["not_accounted"])


def test_a_sweep_and_a_replay_take_it() -> None:
    swept = call("run", "-m", *GIVEN[:1], *CONVEX[:-1], "lr=1/L,0.1", *LENGTH, *LOCAL)
    assert swept.code == 0, swept.err
    again = call("replay", str(call("run", *GIVEN).folder), "--check")
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (("model=mlp",), "lr=1/L: expected a linear model"),
        (("lr=fast",), "lr=fast: expected a number"),
        (("lr=2/L",), "lr=2/L: expected a number"),
        (("lr=0",), "expected a number > 0, 1e-30 to 1e+250, or 1/L"),
    ],
)
def test_refusals(given: tuple[str, ...], line: str) -> None:
    said = call("run", "lr=1/L", *given, "--dry-run", "-m")
    assert said.code == 2
    assert line in said.err


def test_where_L_cannot_be_computed_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpfl_bench.problems.optimum.LARGEST_WORK", 1)
    said = call("run", *GIVEN, "model.l2=.0917")  # not one whose optimum this process has kept
    assert said.code == 2
    assert said.err.startswith("dpfl-bench: lr=1/L: expected a problem whose smoothness L can be computed")


# Corollary 1


def test_T_star_is_the_least_of_the_bound_at_what_was_measured() -> None:
    found = theory_of(*GIVEN)
    assert found["T_star_is_none"] is None
    assert found["v"] == pytest.approx(1e-8)
    assert found["p_star"] == pytest.approx(math.sqrt(found["mu"] / found["L"]))
    assert found["rounds_star"] == pytest.approx(found["p_star"] * found["T_star"])
    of_run = (found["psi0"], 2.0, 1e-5, found["mu"], found["L"], 1e-8, 50.0, 10, 30)
    steps = range(1, 2000)
    least = min(steps, key=lambda T: theory.bound(T, *of_run))
    assert abs(found["T_star"] - least) <= 1
    assert 1 < least < 1999


def test_psi0_is_the_potential_at_the_start() -> None:
    """With lr = 1/L and p = p*, from the formula; metrics.csv has it for the run's own p."""
    played = player_of(settings_of(*GIVEN))
    star = played.job.reference
    assert star is not None
    p = math.sqrt(star.mu / star.L)
    expected = 10 * star.x_star.square().sum() + star.h_star.square().sum() / (star.L * p) ** 2
    assert theory_of_run.psi0(played.job, star) == pytest.approx(expected.item(), rel=1e-12)


def test_plan_says_the_same_when_it_looks_at_the_data() -> None:
    found = theory_of(*GIVEN)
    planned = call("plan", *GIVEN, "theory.measured=true", "--json").json
    assert planned["theory"]["psi0_from"] == "measured on the data, without noise"
    for key in ("L", "psi0", "T_star", "rounds_star", "p_star"):
        assert planned["theory"][key] == pytest.approx(found[key], rel=1e-9), key
    assert planned["lr"] == pytest.approx(1 / found["L"])
    blind = call("plan", *GIVEN, "--json").json
    assert blind["lr"] is None
    assert blind["theory"] is None or blind["theory"]["psi0_from"] == "a-priori bound"
    assert "needs the data" in call("plan", *GIVEN).out
    assert planned["theory"]["bound_here"] == next(
        row["bound"] for row in planned["theory"]["bound"] if row["T"] == 40
    )


def test_plan_refuses_to_measure_what_has_no_optimum() -> None:
    said = call("plan", "dataset=breast_cancer", "model=mlp", "theory.measured=true")
    assert said.code == 2
    assert "theory.measured=true: expected a linear model" in said.err


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("eps=inf",), "without noise"),
        (("algo=dp_fedavg",), "is not ScaffNew"),
        (("privacy.clip=.01",), "updates were clipped"),
        (("privacy.calibration=fixed", "privacy.noise_multiplier=.001", "privacy.v=null"), "given"),
    ],
)
def test_where_the_corollary_does_not_apply_it_says_why(given: tuple[str, ...], reason: str) -> None:
    found = theory_of(*GIVEN, *given)
    assert found["T_star"] is None
    assert reason in found["T_star_is_none"]
    assert found["p_star"] > 0
    assert found["psi0"] > 0
