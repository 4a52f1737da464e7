"""`collect`: the eps of all models of a point together, beside that of one."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.collected import finish, free, table_of
from helpers.command import QUICK, call, read
from scipy.stats import norm

from dpfl_bench.privacy import accounting
from dpfl_bench.privacy.divergences import gaussian
from dpfl_bench.privacy.released.composition import Companion, Composition
from dpfl_bench.results import plots
from dpfl_bench.results.collect.eps_of_all import composed
from dpfl_bench.results.collect.gather import collect
from dpfl_bench.results.summary import summary

DELTA = 1e-5
MU = gaussian.mu_for(2.0, DELTA)
GAUSSIAN = Composition("gaussian", 20)
Z = math.sqrt(20) / MU  # 20 releases are eps 2


def tell(
    name: str, *, one: Composition = GAUSSIAN, z: float = Z, known: tuple[Composition, ...] = (), **more: Any
) -> Path:
    """A run with its privacy.json."""
    path = finish(name, **more)
    told = {"delta": DELTA, "fully_accounted": True, "accountant": "exact"}
    accounted = {
        "noise_multiplier": z,
        "as_one_of": [asdict(c) for c in (one, *known)],
        "repeats": len(more.get("seeds", [0])),
    }
    (path / "privacy.json").write_text(json.dumps({**told, "accounted": accounted}))
    return path


def only_row() -> dict[str, Any]:
    (row,) = collect(["runs"], "out").table.rows
    return row


def delta_of(mu: float, eps: float) -> float:
    return float(norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu))


@pytest.mark.parametrize("runs", [1, 2, 10])
def test_ten_models_of_eps_2_are_7_54(runs: int) -> None:
    """As repeats of one run, as runs of a seed each, or both. By the Gaussian's own formula, from
    scipy.
    """
    each = 10 // runs
    for number in range(runs):
        tell(
            f"r{number}",
            point_id="p",
            seeds=list(range(number * each, (number + 1) * each)),
            test_error_std=0.01,
        )
    row = only_row()
    assert row["eps_all"] == pytest.approx(7.539314, rel=1e-6)
    assert delta_of(math.sqrt(10) * MU, row["eps_all"]) == pytest.approx(DELTA, rel=1e-6)
    assert "| eps | eps of all n |" in Path("out/table.md").read_text()
    assert "| 2 | 7.539 |" in Path("out/table.md").read_text()
    assert float(table_of("out/table.csv")[0]["eps_all"]) == row["eps_all"]
    assert not [w for w in call("collect", "runs", "--json").json["warnings"] if w["kind"] == "no_eps_of_all"]


def test_what_a_run_of_its_own_says_is_taken() -> None:
    """And never less than one model's eps."""
    tell("a", seeds=[0, 1], eps_all_repeats=3.25)
    assert only_row()["eps_all"] == 3.25
    assert table_of("out/results.csv")[0]["eps_all_repeats"] == "3.25"
    tell("a", seeds=[0, 1], eps_all_repeats=0.1)
    assert only_row()["eps_all"] == 1.999
    tell("a", seeds=[0, 1], eps_all_repeats=None)
    assert only_row()["eps_all"] == pytest.approx(gaussian.eps_of_gaussian(math.sqrt(2) * MU, DELTA))


def test_all_models_never_cost_less_than_one() -> None:
    """As where one was accounted for by a looser accountant."""
    tell("a", seeds=[0, 1], eps=5.0, eps_target=5.0)
    assert only_row()["eps_all"] == 5.0


def test_one_model_has_one_eps_and_no_privacy_none() -> None:
    finish("a")
    free("b", seeds=[0, 1])
    rows = collect(["runs"], "out").table.rows
    assert [row["eps_all"] for row in rows] == [None, 1.999]
    assert "eps of all n" not in Path("out/table.md").read_text(), (
        "no row of several models that has any privacy"
    )
    tell("c", algo="dp_scaffnew", seeds=[0, 1])
    collect(["runs"], "out")
    assert "| inf |  |" in Path("out/table.md").read_text()


def test_a_seed_that_two_runs_share_is_one_model() -> None:
    tell("a", point_id="p", seeds=[0, 1, 2])
    tell("b", point_id="p", seeds=[2])
    assert only_row()["eps_all"] == pytest.approx(gaussian.eps_of_gaussian(math.sqrt(3) * MU, DELTA))


def split(seed: int) -> dict[str, str]:
    return {"config": f"eps: 2.0\ndataset:\n  seed: {seed}\n", "overrides": f"- dataset.seed={seed}\n"}


def why() -> str:
    (found,) = [
        w["says"]
        for w in call("collect", "runs", "--json", "--to", "out").json["warnings"]
        if w["kind"] == "no_eps_of_all"
    ]
    assert "| no bound |" in Path("out/table.md").read_text()
    assert table_of("out/table.csv")[0]["eps_all"] == ""
    return str(found)


def test_splits_that_share_noise_have_no_bound() -> None:
    """f(D) + n and g(D) + n: their difference is f(D) - g(D), without noise."""
    for seed in (0, 1):
        tell(f"r{seed}", point_id="p", seeds=[0], unit="record", **split(seed))
    assert "splits of the data share noise" in why()


def test_other_splits_have_other_clients() -> None:
    """A client's records sit in many clients of another split: eps of one client there is not that
    of this one. A record is a record.
    """
    for seed in (0, 1):
        tell(f"r{seed}", point_id="p", seeds=[seed], unit="client", **split(seed))
    assert "deals other records to a client" in why()
    for seed in (0, 1):
        tell(f"r{seed}", point_id="p", seeds=[seed], unit="record", **split(seed))
    assert only_row()["eps_all"] == pytest.approx(gaussian.eps_of_gaussian(math.sqrt(2) * MU, DELTA))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fully_accounted": False}, "a run is not fully accounted"),
        ({"accountant": "paper"}, "a run is not fully accounted"),
        ({"delta": 1e-6}, "a run has no noise, or another delta"),
        ({"accounted": {"noise_multiplier": 0.0, "as_one_of": [asdict(GAUSSIAN)]}}, "a run has no noise"),
        ({"accounted": {"noise_multiplier": 1.0, "as_one_of": []}}, "a run does not tell what it released"),
        ({"accounted": None}, "a run does not tell"),
    ],
)
def test_runs_without_a_bound_say_so(change: dict[str, Any], said: str) -> None:
    path = tell("a", seeds=[0, 1])
    (path / "privacy.json").write_text(
        json.dumps({**json.loads((path / "privacy.json").read_text()), **change})
    )
    assert said in why()


@pytest.mark.parametrize("content", ["", "[]", "null", "{", None])
def test_a_spoilt_record_is_told(content: str | None) -> None:
    path = tell("a", seeds=[0, 1]) / "privacy.json"
    path.unlink() if content is None else path.write_text(content)
    assert "a run does not tell what it released" in why()


@pytest.mark.parametrize("flags", [{"fully_accounted": False}, {"accountant": "paper"}])
def test_results_without_a_guarantee_have_none_of_all(flags: dict[str, Any]) -> None:
    tell("a", seeds=[0, 1], **flags)
    assert "a run is not fully accounted" in why()


def test_gaussians_of_any_noise_add_up_exactly() -> None:
    """Companions and shares too: one vector of noise each."""
    companions = (Companion("norms", "squared", 2.0), Companion("bits", "times", 5.0))
    released = ((GAUSSIAN, 4.0, 3), (Composition("gaussian", 7, scale=0.5, companions=companions), 3.0, 2))
    joint = 0.5 / math.sqrt(1 / 9 + 1 / 18**2 + 1 / 15**2)
    mu = math.sqrt(3 * 20 / 16 + 2 * 7 / joint**2)
    assert delta_of(mu, composed(released, DELTA)) == pytest.approx(DELTA, rel=1e-6)


SAMPLED = [
    (Composition("fixed", 10, 1 / 3, 90, 30), 2.5),
    (Composition("poisson", 50, 0.1), 1.0),
    (Composition("pure", 3), 2.0),
    (Composition("fixed", 40, 0.2, 10, 2, share=0.5, rounds=((4, 10),)), 2.0),
]


@pytest.mark.parametrize(("one", "z"), SAMPLED)
def test_like_releases_are_more_of_them(one: Composition, z: float) -> None:
    """Tighter than a sum of Rényi divergences; more than one model costs; n models at once are n
    models one by one.
    """
    alone = accounting.epsilon(one, z, DELTA)
    three = composed(((one, z, 3),), DELTA)
    longer = Composition(
        **{
            **asdict(one),
            "companions": (),
            "times": one.times * 3,
            "rounds": tuple((k, 3 * n) for k, n in one.rounds),
        }
    )
    assert three == accounting.epsilon(longer, z, DELTA)
    assert alone < three <= accounting.one(longer, z, DELTA, "basic" if one.mechanism == "pure" else "rdp")
    other = Composition(
        **{
            **asdict(one),
            "companions": (),
            "times": one.times * 2,
            "rounds": tuple((k, 2 * n) for k, n in one.rounds),
        }
    )
    assert composed(((one, z, 1), (other, z, 1)), DELTA) == pytest.approx(three, rel=1e-9)


@pytest.mark.parametrize(("one", "z"), SAMPLED)
def test_unlike_releases_add_their_divergences(one: Composition, z: float) -> None:
    """Between the dearest of all of them, and every one as dear as the dearest, by an accountant
    that is looser than either.
    """
    cheap = composed(((one, 1.25 * z, 4),), DELTA)
    mixed = composed(((one, z, 2), (one, 1.25 * z, 2)), DELTA)
    tripled = composed(((one, z, 4), (one, 2 * z, 4)), DELTA)
    assert cheap < mixed < tripled
    with_gaussian = composed(((one, z, 2), (GAUSSIAN, 10.0, 1)), DELTA)
    orders, curve = (np.asarray(found) for found in accounting.renyi(one, z))
    valid = orders > 1
    a, total = orders[valid], 2 * curve[valid] + orders[valid] * 20 / 200
    by_hand = np.min(total + np.log1p(-1 / a) - (math.log(DELTA) + np.log(a)) / (a - 1))
    assert with_gaussian == pytest.approx(by_hand, rel=1e-9)


def test_rounds_that_show_are_not_rounds_that_do_not() -> None:
    """A participation of share 1 is no plain sampling: the two are added, not merged."""
    plain, shown = (
        Composition("fixed", 10, 0.2, 10, 2),
        Composition("fixed", 10, 0.2, 10, 2, rounds=((2, 5),)),
    )
    both = composed(((plain, 2.0, 1), (shown, 2.0, 1)), DELTA)
    assert both == pytest.approx(
        accounting.one(Composition("fixed", 20, 0.2, 10, 2), 2.0, DELTA, "rdp"), rel=1e-9
    )


def test_what_the_draw_of_the_cohorts_knows_is_not_composed() -> None:
    """Of a view's alternatives only the first is an average over secret cohorts."""
    average, known = Composition("fixed", 20, 0.5, 20, 10), Composition("gaussian", 1)
    tell("a", seeds=[0, 1], one=average, known=(known,), z=5.0, eps=1.0, eps_target=1.0)
    assert only_row()["eps_all"] == accounting.epsilon(Composition("fixed", 40, 0.5, 20, 10), 5.0, DELTA)


def test_the_summary_says_both() -> None:
    folder = call(
        "run", "algo=dp_fedavg", "eps=2", "total_steps=4", "local_steps=2", *QUICK, "repeats=2"
    ).folder
    result = read(folder, "result.json")
    result["eps"] = float(result["eps"])
    assert "eps 2 each, 7.54 all 10 together (noise multiplier" in summary(
        {**result, "seeds": list(range(10)), "eps_all_repeats": 7.539}
    )
    for lacking in ({"eps_all_repeats": None}, {"seeds": [0], "eps_all_repeats": 2.0}):
        assert "eps 2 (noise multiplier" in summary({**result, **lacking})


def test_the_picture_of_a_run_says_both(monkeypatch: pytest.MonkeyPatch) -> None:

    titles: list[str] = []
    monkeypatch.setattr(plots, "save", lambda figure, *_: titles.append(figure.texts[1].get_text()))
    Path("metrics.csv").write_text("seed,round,test_error,train_loss\n0,0,.5,1\n1,0,.4,1\n")
    told = {
        "algo": "a",
        "dataset": "b",
        "eps": 2.0,
        "delta": 1e-5,
        "unit": "client",
        "trust": "local",
        "local_steps": 1,
        "metric": "m",
    }
    for seeds in ([0], [0, 1]):
        plots.curve(
            Path("metrics.csv"), {**told, "seeds": seeds, "eps_all_repeats": 3.012}, Path("curve.png")
        )
    assert "ε = 2, δ" in titles[0]
    assert "ε = 2 each, 3.01 all 2 together, δ" in titles[1]


@pytest.mark.slow
def test_real_runs_of_seeds_are_those_with_repeats() -> None:
    sampled = (
        "run",
        "-m",
        "algo=dp_fedavg",
        "eps=2",
        "sampled_clients=30",
        "privacy.observer=third_party",
        "total_steps=8",
        *QUICK,
    )
    assert call(*sampled, "local_steps=2", "repeats=3", "outputs=repeats").code == 0
    assert call(*sampled, "local_steps=2", "seed=0,1,2", "outputs=seeds").code == 0
    (one,), (other,) = (
        call("collect", f"{way}/runs", "--json").json["table"] for way in ("repeats", "seeds")
    )
    assert one["eps"] < one["eps_all"] < 3 * one["eps"]
    assert other["eps_all"] == pytest.approx(one["eps_all"], rel=1e-6)
