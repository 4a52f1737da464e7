"""`collect --tuning-eps`: from runs' folders to the budget of the best of several."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.command import QUICK, call, read

from dpfl_bench.privacy import selection
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.released.composition import Companion, Composition
from dpfl_bench.results.collect.tuning import candidate
from dpfl_bench.results.folder import RunFolder

pytestmark = pytest.mark.usefixtures("no_pictures")

THIRD = ("privacy.observer=third_party", "eps=2")
FIXED = ("privacy.calibration=fixed", "privacy.noise_multiplier=2")
SHORT = ("total_steps=8", *QUICK)


def ran(*overrides: str) -> Path:
    steps = () if any(override.startswith("local_steps") for override in overrides) else ("local_steps=2",)
    return call("run", *SHORT, *steps, *overrides).folder


def tuned(*flags: str) -> tuple[dict[float, Any], list[str]]:
    made = call("collect", "outputs/runs", "--json", *flags).json
    return {row["budget"]: row["tuning_eps"] for row in made["table"]}, made["notes"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outputs = tmp_path_factory.mktemp("swept")
    sweep = (
        "run",
        "-m",
        "algo=dp_fedavg",
        "eps=inf,2,0.5",
        "local_steps=1,2,4,8",
        "seed=0,1",
        *SHORT,
        f"outputs={outputs}",
    )
    assert call(*sweep).code == 0
    return outputs


@pytest.fixture
def outputs(swept: Path) -> None:
    shutil.copytree(swept, "outputs")


@pytest.mark.slow
@pytest.mark.usefixtures("outputs")
def test_a_point_that_diverged_is_a_candidate() -> None:
    """It would have been tried, and that it diverged was learnt from private data."""
    before = tuned("--tuning-eps")[0]
    one = next(
        path
        for path in sorted(Path("outputs/runs").glob("*/result.json"))
        if json.loads(path.read_text())["eps_target"] == 2.0
    )
    result = json.loads(one.read_text())
    one.write_text(
        json.dumps(
            {**result, "status": "diverged", "diverged": {"seed": 0, "round": 1}, "test_error_mean": None}
        )
    )
    made = call("collect", "outputs/runs", "--json", "--tuning-eps").json
    (row,) = [row for row in made["table"] if row["budget"] == 2.0]
    assert (row["points"], row["tuning_trials"], row["tuning_eps"]) == (3, 4.0, before[2.0])
    assert "| trials | eps with tuning |" in call("collect", "outputs/runs", "--tuning-eps").out


@pytest.mark.slow
@pytest.mark.usefixtures("outputs")
def test_the_best_of_the_sweep_has_an_eps_of_its_own() -> None:
    """Four points a row: as `selection` says of Gaussians calibrated to the same budget, which is
    as `mu` says.
    """
    from dpfl_bench.privacy.divergences.gaussian import mu_for

    for distribution in selection.DISTRIBUTIONS:
        found, notes = tuned("--tuning-distribution", distribution)
        assert found[math.inf] is None
        for eps in (2.0, 0.5):
            one = selection.trial([(Composition("gaussian", 1), 1 / mu_for(eps, 1e-5))])
            assert found[eps] == pytest.approx(selection.epsilon(one, 1e-5, distribution, 4.0), rel=1e-6)
            assert found[eps] > eps
        assert len(notes) == 2
        assert f"({distribution}, as many on average as points were run; Papernot & Steinke 2022)" in notes[1]
        assert ("(nothing, if there was none)" in notes[1]) == (distribution == "poisson")


@pytest.mark.slow
@pytest.mark.usefixtures("outputs")
def test_the_mean_of_the_trials_can_be_said() -> None:
    by_mean = [tuned("--tuning-trials", mean)[0][2.0] for mean in ("1", "2", "4", "100")]
    assert by_mean == sorted(by_mean)
    assert by_mean[0] == pytest.approx(2.0, rel=1e-9), "one trial is one run"
    assert by_mean[2] == tuned("--tuning-eps")[0][2.0]
    said = call("collect", "outputs/runs", "--tuning-eps", "--tuning-trials", "4")
    assert "(geometric, 4 on average; Papernot & Steinke 2022)" in said.out
    assert (
        "the score that trials are compared by comes from public data or is part of what a run releases"
        in said.out
    )
    assert " | eps with tuning |" in said.out.splitlines()[0]
    assert "eps with tuning: at the runs' delta" in Path("outputs/table.md").read_text()


@pytest.mark.usefixtures("outputs")
def test_without_the_flag_there_is_none() -> None:
    made = call("collect", "outputs/runs", "--json").json
    assert "tuning_eps" not in made["table"][0]
    assert len(made["notes"]) == 1


def test_where_there_is_no_privacy_there_is_nothing_to_tell() -> None:
    ran("algo=fedavg")
    found, notes = tuned("--tuning-eps")
    assert found == {math.inf: None}
    assert notes[-1] == "no eps with tuning: all runs have eps=inf, there is no privacy to lose"


@pytest.mark.slow
def test_the_noisiest_run_does_not_speak_for_the_others() -> None:
    """The largest divergence counts: of a run whose noise was given, and one point beside it that
    has less.
    """
    for z, steps in (("4", "4"), ("5", "8")):
        ran(
            "algo=dp_fedavg",
            "privacy.calibration=fixed",
            f"privacy.noise_multiplier={z}",
            f"local_steps={steps}",
            "eps=1",
        )
    for path in Path("outputs/runs").iterdir():  # one row of both, as if they had been asked for the same eps
        (path / "result.json").write_text(json.dumps({**read(path, "result.json"), "eps": 1.0}))
    found, _ = tuned("--tuning-eps", "--tuning-trials", "3")
    worst = selection.trial([(Composition("gaussian", 2), 4.0), (Composition("gaussian", 1), 5.0)])
    assert found[1.0] == pytest.approx(selection.epsilon(worst, 1e-5, "geometric", 3.0), rel=1e-9)


@pytest.mark.parametrize(
    "overrides",
    [
        ("algo=dp_fedexp", "eps=2"),
        ("algo=dp_fedavg", "eps=2", "sampled_clients=30", "privacy.observer=third_party"),
        ("algo=dp_scaffold", "privacy=record", "batch_size=2", "eps=2"),
        (
            "algo=dp_fedavg",
            "privacy=record",
            "sample_rate=.5",
            "privacy.neighbours=add_remove_one",
            "sampled_clients=20",
            *THIRD,
        ),
        ("algo=dp_fedavg", "privacy=local", "privacy.mechanism=privunit", "eps=2"),
    ],
)
def test_every_kind_of_run_tells_what_it_released(overrides: tuple[str, ...]) -> None:
    """Companions, cohorts without replacement, lots, a participation, PrivUnit: with tuning it
    costs more than the run, by Rényi.
    """
    folder = ran(*overrides)
    told = read(folder, "privacy.json")
    composition, z = candidate(RunFolder(folder))
    loosest = told["accountants"].get("rdp", told["eps"])
    found, notes = tuned("--tuning-trials", "5")
    assert len(notes) == 2
    ((_, eps),) = found.items()
    assert loosest < eps < 6 * loosest
    one = selection.epsilon(selection.trial([(composition, z)]), 1e-5, "geometric", 1)
    assert (
        told["eps"] * (1 - 1e-6)
        <= one
        <= (1.25 if "privacy.mechanism=privunit" in overrides else 1.01) * loosest
    )


def test_a_candidate_is_read_as_it_was_written() -> None:
    folder = RunFolder(ran("algo=dp_fedexp", "eps=2"))
    composition, z = candidate(folder)
    assert composition.companions == (Companion("norms", "squared", composition.companions[0].value),)
    assert z == read(folder.path, "result.json")["noise_multiplier"]


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("privacy.clip=median",), "is not fully accounted; expected runs with a guarantee"),
        (
            (
                "privacy=record",
                "batch_size=2",
                "sampled_clients=20",
                *THIRD,
                "privacy.accountant=paper",
                *FIXED,
            ),
            "is not fully accounted",
        ),
    ],
)
def test_runs_without_a_guarantee_are_refused_in_one_line(overrides: tuple[str, ...], why: str) -> None:
    run_id = ran("algo=dp_fedavg", "eps=2", *overrides).name
    found, notes = tuned("--tuning-eps")
    assert list(found.values()) == [None]
    assert notes[-1].startswith("no eps with tuning for dp_fedavg on breast_cancer at eps ")
    assert f"run {run_id} {why}" in notes[-1]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "{}", '{"accounted": null}', '{"accounted": {"noise_multiplier": 1}}']
)
def test_what_does_not_tell_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "privacy.json").write_text(content)
    with pytest.raises(
        PrivacyError, match=r"does not tell what it released; expected privacy\.json of this version"
    ):
        candidate(RunFolder(tmp_path))
    (tmp_path / "privacy.json").unlink()
    with pytest.raises(PrivacyError, match="does not tell"):
        candidate(RunFolder(tmp_path))


@pytest.mark.parametrize("key", ["eps", "delta"])
def test_results_without_eps_or_delta_are_refused(key: str) -> None:
    folder = ran("algo=dp_fedavg", "eps=2")
    (folder / "result.json").write_text(
        json.dumps({k: v for k, v in read(folder, "result.json").items() if k != key})
    )
    found, notes = tuned("--tuning-eps")
    assert list(found.values()) == [None]
    assert notes[-1].endswith("the runs tell no eps or no delta; expected result.json of this version")


def test_noise_of_nothing_is_refused() -> None:
    folder = ran("algo=dp_fedavg", "eps=2")
    told = read(folder, "privacy.json")
    told["accounted"]["noise_multiplier"] = 0.0
    (folder / "privacy.json").write_text(json.dumps(told))
    with pytest.raises(PrivacyError, match="has no noise"):
        candidate(RunFolder(folder))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--tuning-trials", "0.5"), "trials=0.5: expected a mean >= 1"),
        (("--tuning-trials", "0", "--tuning-distribution", "poisson"), "trials=0: expected a mean > 0"),
        (("--tuning-trials", "inf"), "trials=inf: expected a mean >= 1"),
    ],
)
@pytest.mark.usefixtures("outputs")
def test_a_mean_that_cannot_be_is_refused(flags: tuple[str, ...], said: str) -> None:
    found = call("collect", "outputs/runs", *flags)
    assert found.code == 2
    assert said in found.err
    assert found.err.count("\n") == 1
