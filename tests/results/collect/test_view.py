"""What is asked of many runs: by which column, over which rounds, which of them, over what."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from helpers.collected import finish, free, table_of
from helpers.command import call
from helpers.refusals import check, table

INF = float("inf")
CONFIG = """eps: {eps}
lr: {lr}
seed: 0
algo:
  _target_: a.b
  name: {algo}
dataset:
  name: digits
privacy:
  name: secagg
  clip: {clip}
  bound: {bound}
partition:
  name: dirichlet
  alpha: {alpha}
local_steps: {steps}
"""


def run(name: str, errors: list[float], **more: Any) -> Path:
    """A run of one seed per error; over its ten rounds the error falls to that, psi to twice
    that. One algorithm has no psi.
    """
    of = {"algo": "dp_fedavg", "eps": 2.0, "clip": 1.0, "bound": "clip", "alpha": 1, "steps": 5, "lr": 0.1}
    of |= {key: more.pop(key) for key in list(more) if key in of}
    eps = ".inf" if of["eps"] == INF else of["eps"]
    result = {"algo": of["algo"], "eps_target": of["eps"], "eps": of["eps"], "local_steps": of["steps"]}
    result |= {"clip": of["clip"], "lr": of["lr"], "seeds": list(range(len(errors)))}
    make = free if of["eps"] == INF else finish
    if of["eps"] == INF:
        result |= {"clip": None, "bound": None}
    mean = sum(errors) / len(errors)
    folder = make(
        name, config=CONFIG.format(**{**of, "eps": eps}), **{**result, "test_error_mean": mean, **more}
    )
    lines = ["seed,round,test_error,psi,client_test_metric"]
    for seed, error in enumerate(errors):
        for number in range(11):
            value = error + (10 - number) / 100
            psi = repr(2 * value) if of["algo"] == "dp_scaffnew" else ""
            lines.append(f"{seed},{number},{value!r},{psi},{1 - value!r}")
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    return folder


def rows(*words: str) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = call("collect", "runs", "--to", "out", "--json", *words).json["table"]
    return result


def view(*words: str) -> list[dict[str, str]]:
    said = call("collect", "runs", "--to", "out", *words)
    assert said.code == 0, said.err
    return table_of("out/view.csv")


@pytest.mark.usefixtures("hollow_pictures")
def test_the_best_is_by_any_column_and_over_the_last_rounds() -> None:
    run("a", [0.3, 0.1], steps=1)
    run("b", [0.15, 0.15], steps=5)
    (row,) = rows()
    assert (row["local_steps"], row["test_error_mean"]) == (5, 0.15)
    (row,) = rows("--last", "5")
    assert row["test_error_mean"] == pytest.approx(0.15 + 0.02)
    (row,) = rows("--last", "50%")
    assert row["test_error_mean"] == pytest.approx(0.15 + 0.02)
    (row,) = rows("--by", "client_test_metric", "--last", "5")
    assert (row["local_steps"], row["client_test_metric_mean"]) == (5, pytest.approx(0.83)), "the greatest"
    assert (
        "client test metric (last 5 rounds)"
        in call("collect", "runs", "--by", "client_test_metric", "--last", "5").out
    )
    run("a", [0.3, 0.1], steps=1, algo="dp_scaffnew")
    run("b", [0.5, 0.5], steps=5, algo="dp_scaffnew")
    (row,) = rows("--by", "psi")
    assert (row["local_steps"], row["psi_mean"]) == (1, pytest.approx(0.4))
    assert row["psi_std"] == pytest.approx(0.2 * math.sqrt(2))


def test_where_takes_runs() -> None:
    for name, eps, clip in (("a", 2.0, 0.1), ("b", 2.0, 1.0), ("c", INF, 1.0), ("d", 8.0, 0.3)):
        run(name, [0.2], eps=eps, clip=clip)

    def chosen(*where: str) -> set[str]:
        return {
            name for row in rows(*(w for each in where for w in ("--where", each))) for name in row["run_ids"]
        }

    assert chosen("eps=2", "privacy.clip=0.1") == {"a"}
    assert chosen("eps=inf") == {"c"}
    assert chosen("eps=inf,8") == {"c", "d"}
    assert chosen("algo=dp_fedavg", "eps=8") == {"d"}
    assert chosen("privacy.clip=1") == {"b"}, "a run without privacy has no C"


@pytest.mark.usefixtures("hollow_pictures")
def test_variants_are_apart_where_they_are_asked_for() -> None:
    for bound, error in (("clip", 0.3), ("normalise", 0.2)):
        for steps in (1, 5):
            run(f"{bound}{steps}", [error], bound=bound, steps=steps)
    for steps in (1, 5):
        run(f"free{steps}", [0.1], eps=INF, steps=steps)
    assert len(rows()) == 2, "pooled: the best of both"
    apart = rows("--line", "privacy.bound")
    assert [(row["apart"], row["test_error_mean"]) for row in apart] == [
        ("", 0.1),
        ("privacy.bound clip", 0.3),
        ("privacy.bound normalise", 0.2),
    ]
    assert [row["gap"] for row in apart] == pytest.approx([0, 0.2, 0.1])
    said = call("collect", "runs", "--to", "out", "--facet", "privacy.bound")
    assert "| apart |" in said.out


@pytest.mark.usefixtures("hollow_pictures")
def test_panels_of_numbers_stand_by_their_size() -> None:
    for clip in (0.3, 10.0, 2.0):
        for steps in (1, 5):
            run(f"c{clip}{steps}", [clip / 100], clip=clip, steps=steps)
    told = view("--facet", "privacy.clip")
    assert list(dict.fromkeys(row["privacy.clip"] for row in told)) == ["0.3", "2.0", "10.0"]


def test_a_view_has_mean_and_interval_of_the_best_over_the_rest() -> None:
    for clip in (0.1, 1.0):
        for lr, errors in ((0.1, [0.5, 0.6, 0.7]), (0.2, [0.2, 0.3, 0.4])):
            run(f"c{clip}{lr}", [clip / 10 + error for error in errors], clip=clip, lr=lr)
    run("free", [0.1, 0.1, 0.1], eps=INF)
    told = {row["privacy.clip"]: row for row in view("--x", "privacy.clip")}
    assert set(told) == {"0.1", "1.0", ""}
    assert float(told["0.1"]["mean"]) == pytest.approx(0.31)
    assert float(told["0.1"]["best lr"]) == 0.2
    half = 4.302653 * 0.1 / math.sqrt(3)  # Student's t, two degrees of freedom
    assert float(told["0.1"]["high"]) - float(told["0.1"]["mean"]) == pytest.approx(half, rel=1e-6)
    assert told["1.0"]["n"] == "3"
    for ending in ("pdf", "svg", "png"):
        assert Path(f"out/view.{ending}").stat().st_size > 2_000


def test_over_the_rounds() -> None:
    run("a", [0.1, 0.3])
    told = view("--x", "round", "--line", "algo")
    assert [float(row["round"]) for row in told] == list(range(11))
    assert float(told[-1]["mean"]) == pytest.approx(0.2)


@pytest.mark.usefixtures("hollow_pictures")
def test_another_problem_is_another_picture_or_a_field() -> None:
    for alpha in (1, 9):
        for steps in (1, 5):
            run(f"{alpha}{steps}", [alpha / 10], alpha=alpha, steps=steps)
    assert {row["picture"] for row in view("--line", "algo")} == {"view_1", "view_2"}
    told = view("--x", "partition.alpha", "--line", "local_steps")
    assert {(row["picture"], row["partition.alpha"], row["mean"]) for row in told} == {
        ("view", "1", "0.1"),
        ("view", "9", "0.9"),
    }


def test_words_on_an_axis_are_bars() -> None:
    for bound in ("clip", "normalise"):
        run(bound, [0.2], bound=bound)
    assert [row["privacy.bound"] for row in view("--x", "privacy.bound")] == ["clip", "normalise"]


@pytest.mark.usefixtures("hollow_pictures")
def test_runs_of_one_asked_eps_are_one_group_whatever_the_last_bits() -> None:
    stated = {"calibration": "fixed", "nominal_eps": 13.0, "nominal_how": "Theorem 3"}
    for name, steps, real in (("a", 1, 0.86), ("b", 5, 0.8600000001)):
        run(name, [0.1 * steps], steps=steps, eps_target=2.0, **{**stated, "eps": 2.0}, valid_eps=real)
    (row,) = rows()
    assert (row["budget"], row["tried"]) == (13.0, [1, 5])
    said = call("collect", "runs", "--to", "out")
    assert "| nominal eps | eps |" in said.out
    assert "| 13 | 0.86 |" in said.out
    assert "no guarantee" in said.out
    run("b", [0.5], steps=5, eps_target=2.0, **{**stated, "eps": 2.0}, valid_eps=1.7)
    assert "between 0.86 and 1.7" in call("collect", "runs", "--to", "out").out


def test_given_noise_is_grouped_by_the_eps_that_tables_print() -> None:
    for name, steps, real in (("a", 1, 0.8612341), ("b", 5, 0.8612342), ("c", 5, 0.87)):
        finish(name, local_steps=steps, calibration="fixed", eps=real, eps_target=2.0)
    assert [(row["budget"], row["tried"]) for row in rows()] == [(0.87, [5]), (0.8612, [1, 5])]


@pytest.mark.parametrize(
    ("words", "key", "remedy"),
    table("""
--by nope | nope | test_error, psi, client_test_metric
--by psi | psi | left this column blank
--last 11 | last=11 | at most the 10 rounds
--last 0 | last=0 | 5, or a share
--last some | last=some | 10%
--where eps=3 | --where eps=3 | 2
--where foo=3 | --where foo=3 | no run has such a key
--where eps | --where eps | key=value
--x foo | foo | a setting of these runs
--x clip --line foo | foo | a setting
--facet a --facet b --facet c | --facet c | two at most
"""),
)
def test_what_cannot_be_shown_is_refused(words: list[str], key: str, remedy: str) -> None:
    run("a", [0.1, 0.2])
    check(call("collect", "runs", "--to", "out", *words), key, remedy)
    assert not Path("out/view.csv").exists()


def test_a_mean_of_rounds_that_were_not_evaluated_is_refused() -> None:
    folder = run("a", [0.1])
    lines = (folder / "metrics.csv").read_text().splitlines()
    (folder / "metrics.csv").write_text("\n".join([*lines[:7], lines[-1]]) + "\n")
    check(call("collect", "runs", "--last", "5"), "last=5", "eval_last=5")
    assert len(rows("--last", "1")) == 1
