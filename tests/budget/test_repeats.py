"""What several models spend together, and what a run spends that ends early."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.command import QUICK, call, metrics, read
from helpers.federations import settings_of

from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.privacy import answers_on_disk
from dpfl_bench.privacy.accounting import epsilon
from dpfl_bench.privacy.divergences.gaussian import eps_of_gaussian
from dpfl_bench.privacy.released.composition import Composition

SMALL = ("algo=dp_fedavg", "rounds=2", "local_steps=1")


def test_ten_repeats_of_eps_2_are_7_54_together() -> None:
    """Ten Gaussian runs are one with mu sqrt(10) times as large."""
    made = call("plan", "--json", "algo=dp_scaffnew", "eps=2", "repeats=10").json
    assert made["eps"] == pytest.approx(2)
    assert made["eps_all_repeats"] == pytest.approx(
        eps_of_gaussian(math.sqrt(10 * 10) / made["noise_multiplier"], 1e-5), rel=1e-9
    )
    assert made["eps_all_repeats"] == pytest.approx(7.54, abs=5e-3)
    assert (
        "the models of all repeats together spend 7.539"
        in call("plan", "algo=dp_scaffnew", "eps=2", "repeats=10").out
    )
    one = call("plan", "--json", "algo=dp_scaffnew", "eps=2").json
    assert one["eps_all_repeats"] == one["eps"]


def test_a_run_says_both() -> None:
    folder = call("run", *SMALL, "eps=2", "repeats=3", *QUICK).folder
    result, told = read(folder, "result.json"), read(folder, "privacy.json")
    assert result["eps"] == told["eps"] == pytest.approx(2)
    expected = eps_of_gaussian(math.sqrt(6) / result["noise_multiplier"], 1e-5)
    assert result["eps_all_repeats"] == told["eps_all_repeats"] == pytest.approx(expected, rel=1e-9)
    assert told["accounted"]["repeats"] == 3


@pytest.mark.parametrize(
    "overrides",
    [
        ("sampled_clients=30",),
        ("sampled_clients=30", "privacy.observer=third_party"),
        ("privacy=record", "batch_size=2", "sampled_clients=30", "privacy.observer=third_party"),
        ("privacy=record", "partition=overlap", "clients=5", "sampled_clients=2"),
        ("privacy=local", "privacy.mechanism=privunit", "sampled_clients=30"),
        (
            "algo=dp_scaffnew",
            "algo.coins=true",
            "privacy=record",
            "sampled_clients=30",
            "privacy.observer=third_party",
        ),
    ],
    ids=" ".join,
)
def test_together_they_spend_more_than_one_and_less_than_the_sum(overrides: tuple[str, ...]) -> None:
    settings = settings_of(
        "algo=dp_fedavg", "eps=2", "total_steps=24", "local_steps=4", "repeats=4", *overrides
    )
    budget = Budget.of(settings, drawn_schedules(settings))
    assert budget.eps < budget.eps_all_repeats <= 4 * budget.eps * (1 + 1e-9)


def test_the_server_s_worst_client_is_that_of_all_repeats() -> None:
    """A client that was often drawn for one seed is seldom the one of another: the sum over seeds
    is counted, client by client.
    """
    fixed = ("privacy.calibration=fixed", "privacy.noise_multiplier=8")
    settings = settings_of(
        "algo=dp_fedavg", "rounds=9", "local_steps=1", "clients=30", "sampled_clients=3", "repeats=5", *fixed
    )
    drawn = drawn_schedules(settings)
    most = max(sum(int(i in s.cohort(t)) for s in drawn for t in range(9)) for i in range(30))
    budget = Budget.of(settings, drawn)
    assert budget.eps_all_repeats == epsilon(Composition("gaussian", most), 8.0, 1e-5)
    assert most < 5 * budget.planned.worst


def test_a_run_that_diverges_tells_what_its_rounds_spent() -> None:
    """Server momentum overflows after some rounds; later rounds and later seeds released
    nothing.
    """
    steps = ("server_lr=2e38", "server_momentum=.99")
    said = call(
        "run",
        "algo=dp_fedavg",
        "rounds=50",
        "local_steps=1",
        "eps=2",
        "repeats=3",
        *steps,
        "eval_every=1",
        *QUICK,
    )
    assert said.code == 1
    folder = Path(said.out.splitlines()[-1])
    result, told = read(folder, "result.json"), read(folder, "privacy.json")
    assert result["diverged"]["seed"] == 0
    played = result["diverged"]["round"]
    assert 1 < played < 50
    one = epsilon(Composition("gaussian", played), result["noise_multiplier"], 1e-5)
    assert result["eps"] == told["eps"] == result["eps_all_repeats"] == pytest.approx(one, rel=1e-9)
    assert told["views"]["server"] == pytest.approx(one, rel=1e-9)
    assert told["releases"][0]["rounds"] == played
    assert (told["accounted"]["as_one_of"][0]["times"], told["accounted"]["fresh"][0]["times"]) == (
        played,
        50,
    )  # a trial may go to the end
    assert metrics(folder)["eps"].max() < result["eps"] < 1.99


# ---- noise that was kept on disk ----


def entries(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted((folder / "calibration").iterdir())
        if json.loads(path.read_text())["question"].get("releases")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1 / 20, 20.0, 0.999])
def test_a_forged_noise_is_not_used(factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry with a twentieth of the noise made `eps=2` train at eps 1006, with exit code 0."""
    monkeypatch.setenv("DPFL_CACHE_DIR", str(tmp_path / "cache"))
    asked = ("algo=dp_fedavg", "privacy=record", "batch_size=2", "rounds=3", "local_steps=2", "eps=2", *QUICK)
    honest = read(call("run", *asked).folder, "result.json")["noise_multiplier"]
    (entry,) = entries(tmp_path / "cache")
    told = json.loads(entry.read_text())
    question = {
        key: value for key, value in told["question"].items() if key not in ("cache_version", "dp_accounting")
    }
    told["answer"] = honest * factor
    told["checksum"] = answers_on_disk._checksum(
        answers_on_disk._text(question), told["answer"]
    )  # who forges an entry can compute this too
    entry.write_text(json.dumps(told))
    assert answers_on_disk.cached(question, lambda: math.nan) == honest * factor  # it reads well
    result = read(call("run", *asked, "outputs=elsewhere").folder, "result.json")
    assert result["noise_multiplier"] == honest
    assert 1.98 < result["eps"] <= 2
    (again,) = entries(tmp_path / "cache")
    assert json.loads(again.read_text())["answer"] == honest


def test_a_rotten_entry_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any changed digit of the answer, of any kind of entry."""
    monkeypatch.setenv("DPFL_CACHE_DIR", str(tmp_path))
    question: dict[str, Any] = {"eps_of": ["something"]}
    assert answers_on_disk.cached(question, lambda: 1.2345) == 1.2345
    (entry,) = (tmp_path / "calibration").iterdir()
    assert answers_on_disk.cached(question, lambda: pytest.fail("asked again")) == 1.2345
    entry.write_text(entry.read_text().replace("1.2345", "1.2335"))
    assert answers_on_disk.cached(question, lambda: 1.2345) == 1.2345
    assert json.loads(entry.read_text())["answer"] == 1.2345


# ---- messages ----


def test_colluders_are_refused_by_the_setting_s_name() -> None:
    said = call("plan", "algo=dp_fedavg", "clients=20", "sampled_clients=4", "client_sampling=poisson",
                "rounds=30", "local_steps=1",
                "privacy.colluding=3")  # fmt: skip
    assert said.code == 2
    assert "dpfl-bench: privacy.colluding=3: expected 0 to " in said.err
    assert "lower it, take larger cohorts, or use privacy=local" in said.err


def test_nobody_is_told_to_use_auto_where_it_is_auto() -> None:
    said = call(
        "plan",
        "algo=dp_fedavg",
        "privacy=record",
        "batch_size=2",
        "rounds=3",
        "local_steps=2",
        "eps=1e-9",
        "delta=1e-14",
    )
    assert said.code == 2
    assert "finds no noise that is enough; raise eps or delta" in said.err
    assert "auto" not in said.err
