"""The optimal-(E, T) table: what is pooled, what is compared, what is best; as Markdown, LaTeX and
CSV.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.collected import BASE, finish, free, table_of
from helpers.command import call
from helpers.tables import INF, odd_table

from dpfl_bench.results.collect import points as points_of
from dpfl_bench.results.collect import tables
from dpfl_bench.results.collect.gather import collect
from dpfl_bench.results.collect.points import Row

pytestmark = pytest.mark.usefixtures("hollow_pictures")


def row(name: str, **more: Any) -> Row:
    return {
        "run_id": name,
        **BASE,
        "algo": "dp_fedavg",
        "setting": "",
        "guarantee": "",
        "budget": 2.0,
        **more,
    }


def test_the_table_takes_the_least_error_and_the_gap_to_no_privacy() -> None:
    finish("a", local_steps=1, rounds=100, test_error_mean=0.30)
    finish("b", local_steps=5, rounds=20, test_error_mean=0.25, test_error_std=0.01, seeds=[0, 1, 2])
    finish("c", local_steps=10, rounds=10, test_error_mean=0.28)
    free("d", local_steps=1, rounds=100, test_error_mean=0.10)
    free("e", local_steps=5, test_error_mean=0.12)
    finish("f", algo="dp_scaffnew", local_steps=2, rounds=50, test_error_mean=0.24)
    finish("g", local_steps=20, rounds=5, status="diverged", test_error_mean=None)
    table = collect(["runs"], "out").table
    assert [(r["algo"], r["eps_target"], r["local_steps"], r["rounds"], r["points"]) for r in table.rows] == [
        ("dp_fedavg", INF, 1, 100, 2),
        ("dp_fedavg", 2.0, 5, 20, 3),
        ("dp_scaffnew", 2.0, 2, 50, 1),
    ]
    assert [r["gap"] for r in table.rows[:2]] == pytest.approx([0, 0.15])
    assert math.isnan(table.rows[2]["gap"])
    lines = tables.markdown(table).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[0] == (
        "| data set | algorithm | eps | eps of all n | best local steps | as good | rounds | total steps "
        "| test error | n seeds | gap to no privacy |"
    )
    assert (
        lines[3] == "| digits | dp_fedavg | 2 | no bound | 5 | ? | 20 | 100 | 0.2500 ± 0.0100 | 3 | +0.1500 |"
    )
    assert lines[4].endswith("| 0.2400 | 1 |  |")
    assert len(table_of("out/results.csv")) == 7


def test_a_part_of_a_data_set_is_another_data_set() -> None:
    """Nobody takes one for the other, and they are not compared."""
    part = {"dataset": "mnist", "subset": "subset 2000 of 70000"}
    for steps in (1, 5):
        finish(f"part{steps}", **part, local_steps=steps, test_error_mean=0.3)
        finish(f"whole{steps}", dataset="mnist", subset=None, local_steps=steps, test_error_mean=0.2)
    free("free", **part, test_error_mean=0.1)
    table = collect(["runs"], "out").table
    assert [(r["dataset"], r["budget"], r["points"]) for r in table.rows] == [
        ("mnist", 2.0, 2),
        ("mnist (subset 2000 of 70000)", INF, 1),
        ("mnist (subset 2000 of 70000)", 2.0, 2),
    ]
    assert math.isnan(table.rows[0]["gap"])
    assert "| mnist (subset 2000 of 70000) |" in tables.markdown(table)
    assert [r["subset"] for r in table_of("out/results.csv")].count("subset 2000 of 70000") == 3
    assert sorted(path.name for path in Path("out").glob("*.png")) == [
        "u_curves_mnist_1.png",
        "u_curves_mnist_2.png",
    ]


def test_what_the_seeds_cannot_tell_apart_is_as_good() -> None:
    """The standard error of the difference of two means over 4 seeds with deviation .02 is .02 /
    sqrt(2) = .0141.
    """
    errors = {1: 0.2645, 2: 0.2635, 4: 0.25, 5: 0.2641, 10: 0.2642, 20: 0.2643}
    for steps, error in errors.items():
        finish(f"r{steps}", local_steps=steps, test_error_mean=error, test_error_std=0.02, seeds=[0, 1, 2, 3])
    finish("worse", local_steps=1, clip=3.0, test_error_mean=0.4, test_error_std=0.5, seeds=[0, 1, 2, 3])
    (row,) = collect(["runs"], "out").table.rows
    assert row["local_steps"] == 4
    assert (row["tried"], row["as_good"]) == ([1, 2, 4, 5, 10, 20], [2, 4, 5])
    assert table_of("out/table.csv")[0]["as_good"] == "2 4 5"
    assert "| 4 | 2-5 | 20 |" in Path("out/table.md").read_text()


@pytest.mark.parametrize(
    ("chosen", "said"),
    [([4], "4"), ([1, 2], "1-2"), ([1, 4, 9], "1, 4, 9"), ([1, 2, 5, 9], "1-2, 5-9"), ([], "")],
)
def test_ranges(chosen: list[int], said: str) -> None:
    assert tables._ranges(chosen, [1, 2, 4, 5, 9]) == said


def test_one_seed_tells_nothing_of_what_is_as_good() -> None:
    """Neither of the best nor of what it is compared with."""
    for steps, error in ((1, 0.2), (2, 0.2), (5, 0.2001)):
        finish(f"r{steps}", local_steps=steps, test_error_mean=error)
    (row,) = collect(["runs"], "out").table.rows
    assert (row["local_steps"], row["as_good"]) == (1, None)
    assert "| 1 | ? | 20 |" in Path("out/table.md").read_text()
    assert table_of("out/table.csv")[0]["as_good"] == ""
    finish("r1", local_steps=1, test_error_mean=0.2, seeds=[0, 1])
    assert collect(["runs"], "out").table.rows[0]["as_good"] is None
    for steps in (2, 5):
        finish(
            f"r{steps}",
            local_steps=steps,
            test_error_mean=0.2 + steps / 100,
            test_error_std=0.01,
            seeds=[0, 1],
        )
    assert collect(["runs"], "out").table.rows[0]["as_good"] == [1]


def test_no_privacy_goes_by_two_names() -> None:
    """dp_fedavg at eps=inf is fedavg; its own name counts first."""
    for name, algo, error in (("a", "dp_fedavg", 0.3), ("b", "dp_scaffnew", 0.4)):
        finish(name, algo=algo, test_error_mean=error)
    free("c", algo="fedavg", test_error_mean=0.1)
    free("d", algo="scaffnew", test_error_mean=0.2)
    free("e", algo="dp_scaffnew", test_error_mean=0.15)
    free("f", algo="fedavg", dataset="mnist", test_error_mean=0.01)
    table = collect(["runs"], "out").table
    gaps = {(r["dataset"], r["algo"], r["budget"]): r["gap"] for r in table.rows}
    assert gaps["digits", "dp_fedavg", 2.0] == pytest.approx(0.2)
    assert gaps["digits", "dp_scaffnew", 2.0] == pytest.approx(0.25)
    assert gaps["digits", "scaffnew", INF] == 0


def test_of_equals_the_fewest_local_steps() -> None:
    for name, steps in (("a", 20), ("b", 5), ("c", 10)):
        finish(name, local_steps=steps)
    (found,) = collect(["runs"], "out").table.rows
    assert found["local_steps"] == 5


def test_runs_that_differ_in_seeds_alone_are_pooled() -> None:
    """Mean and standard deviation over all seeds, of runs of one and of several: those of the
    single errors.
    """
    errors = {0: 0.31, 1: 0.24, 2: 0.29, 7: 0.22, 8: 0.27, 9: 0.2512345}
    for name, seeds in (("a", [0, 1, 2]), ("b", [7]), ("c", [8, 9])):
        own = np.array([errors[s] for s in seeds])
        std = float(own.std(ddof=1)) if len(own) > 1 else 0.0
        finish(name, point_id="p", seeds=seeds, test_error_mean=float(own.mean()), test_error_std=std)
    finish("d", point_id="q", test_error_mean=0.27, local_steps=1)
    (found,) = collect(["runs"], "out").table.rows
    every = np.array(list(errors.values()))
    assert found["test_error_mean"] == pytest.approx(every.mean(), rel=1e-14)
    assert found["test_error_std"] == pytest.approx(every.std(ddof=1), rel=1e-14)
    assert (found["n_seeds"], found["points"], found["local_steps"]) == (6, 2, 5)
    assert sorted(found["run_ids"]) == ["a", "b", "c"]


def split(dataset: int, partition: int = 0) -> dict[str, str]:
    """What `finish` takes for a run on that split of the data."""
    seeds = f"dataset:\n  seed: {dataset}\npartition:\n  seed: {partition}\n"
    return {
        "config": f"eps: 2.0\n{seeds}",
        "overrides": f"- dataset.seed={dataset}\n- partition.seed={partition}\n",
    }


def test_splits_are_repeats_too() -> None:
    """A seed counts once on each split of the data and each partition; the table has one row."""
    errors = {(0, 0): 0.3, (1, 0): 0.1, (1, 1): 0.26}
    for (dataset, partition), error in errors.items():
        name = f"{dataset}{partition}"
        finish(
            name,
            point_id="p",
            seeds=[0, 1],
            test_error_mean=error,
            test_error_std=0.01,
            **split(dataset, partition),
        )
    finish("again", point_id="p", seeds=[1], test_error_mean=0.9, **split(1, 1))
    (found,) = collect(["runs"], "out").table.rows
    assert (found["n_seeds"], found["points"], found["run_ids"]) == (6, 1, ["00", "10", "11"])
    every = [error + sign * 0.01 / 2**0.5 for error in errors.values() for sign in (-1, 1)]
    assert found["test_error_mean"] == pytest.approx(np.mean(every), rel=1e-14)
    assert found["test_error_std"] == pytest.approx(np.std(every, ddof=1), rel=1e-12)
    assert "seed" not in found["setting"]


def test_splits_that_share_their_noise_are_pointed_out() -> None:
    """The seeds' luck is then common to all splits, which no spread over them shows."""
    for dataset in (0, 1, 2):
        free(f"free{dataset}", point_id="free", seeds=[0, 1], local_steps=1, **split(dataset))
        finish(
            f"own{dataset}",
            point_id="own",
            seeds=[2 * dataset, 2 * dataset + 1],
            local_steps=1,
            **split(dataset),
        )
    assert "share seeds" not in call("collect", "runs").out, "no noise, or each split its own"
    for dataset in (0, 1, 2):
        finish(f"same{dataset}", point_id="same", seeds=[0, 1], local_steps=2, **split(dataset))
    said = "Splits of the data share seeds, and so noise (dp_fedavg on digits at eps 2: 6 repeats, 2 draws)"
    assert said in call("collect", "runs").out
    assert said in Path("table.md").read_text()


def test_points_are_told_apart_split_by_split() -> None:
    """Splits are hard or easy for all points alike: a difference counts that each of them shows,
    however far apart they are.
    """
    rough, close = (0.11, -0.03, 0.13, -0.05), (0.021, 0.019, 0.02, 0.02)
    for dataset, base in enumerate((0.1, 0.5, 0.3, 0.7)):
        for name, steps, extra in (
            ("best", 1, 0.0),
            ("worse", 2, close[dataset]),
            ("unclear", 4, rough[dataset]),
        ):
            finish(
                f"{name}{dataset}",
                point_id=name,
                local_steps=steps,
                test_error_mean=base + extra,
                **split(dataset),
            )
    (found,) = collect(["runs"], "out").table.rows
    assert (found["local_steps"], found["as_good"]) == (1, [1, 4])


def test_points_with_more_or_fewer_seeds_are_pointed_out() -> None:
    finish("a", point_id="a", seeds=[0, 1, 2], local_steps=1)
    finish("b", point_id="b", seeds=[0, 1, 2], local_steps=2)
    finish("other", seeds=[0], algo="fedavg", local_steps=1)
    assert "more seeds" not in call("collect", "runs").out, "algorithms are other rows"
    finish("c", point_id="c", seeds=[0], local_steps=5)
    text = call("collect", "runs").out
    assert "Some points have more seeds than others (dp_fedavg on digits at eps 2: 1 to 3)" in text
    assert "have more seeds than others" in Path("table.md").read_text()


def test_one_lucky_seed_does_not_win_over_the_mean() -> None:
    for seed, error in enumerate((0.05, 0.5, 0.5)):
        finish(f"a{seed}", point_id="a", seeds=[seed], test_error_mean=error, local_steps=1)
        finish(f"b{seed}", point_id="b", seeds=[seed], test_error_mean=0.2, local_steps=2)
    (found,) = collect(["runs"], "out").table.rows
    assert (found["local_steps"], found["test_error_mean"], found["n_seeds"]) == (2, pytest.approx(0.2), 3)


def test_a_seed_counts_once() -> None:
    """Of runs that share seeds the one with more of them; one run alone keeps its very bits."""
    shared = [
        row("a", point_id="p", seeds=[0], test_error_mean=0.9),
        row("b", point_id="p", seeds=[0, 1, 2], test_error_mean=0.1 + 0.2, test_error_std=0.7 / 3),
        row("c", point_id="p", seeds=[2, 3], test_error_mean=0.9),
    ]
    ((point,), _) = points_of.pooled(shared)
    assert (point["test_error_mean"], point["test_error_std"], point["n_seeds"], point["run_ids"]) == (
        0.1 + 0.2,
        0.7 / 3,
        3,
        ["b"],
    )


def test_a_point_with_a_diverged_run_is_no_point() -> None:
    """As with repeats, where one diverged seed is the run's end."""
    runs = [
        row("a", point_id="p", seeds=[0]),
        row("b", point_id="p", seeds=[1], status="diverged", test_error_mean=None),
        row("c"),
    ]
    assert [[point["run_ids"] for point in points] for points in points_of.pooled(runs)] == [
        [["c"]],
        [["a", "b"]],
    ]


def test_diverged_points_are_told() -> None:
    finish("a", local_steps=1)
    assert "Diverged" not in call("collect", "runs").out
    for name, point, seed in (("b", "p", 0), ("c", "p", 1), ("d", "q", 0)):
        finish(
            name,
            point_id=point,
            seeds=[seed],
            status="diverged" if name != "c" else "done",
            test_error_mean=None if name != "c" else 0.1,
        )
    told_so = "Diverged: 2 of 4 runs; the 2 points they belong to have no error and cannot be best."
    assert told_so in call("collect", "runs").out
    assert told_so in Path("table.md").read_text()
    (found,) = collect(["runs"], "out").table.rows
    assert (found["run_ids"], found["points"]) == (["a"], 1)


def test_a_sweep_between_null_and_a_value_is_told() -> None:
    """Of what privacy sets, runs without it have nothing, which is no value that was swept."""
    for name, size, quantile, error in (
        ("a", "null", "null", 0.2),
        ("b", "10", "null", 0.4),
        ("c", "10", "0.5", 0.3),
    ):
        given = f"eps: 2.0\nbatch_size: {size}\nweight_decay: 0.0\nprivacy:\n  quantile: {quantile}\n"
        finish(
            name,
            test_error_mean=error,
            config=given,
            overrides=f"- batch_size={size}\n- privacy.quantile={quantile}\n",
        )
    free(
        "free",
        test_error_mean=0.1,
        config="eps: .inf\nbatch_size: 10\nweight_decay: 0.0\n",
        overrides="- batch_size=10\n",
    )
    table = collect(["runs"], "out").table
    assert table.swept == ["batch_size", "privacy.quantile"]
    lines = tables.markdown(table).splitlines()
    assert "| batch_size | privacy.quantile | test error |" in lines[0]
    assert "| 100 | 10 |  | 0.1000" in lines[2]
    assert "| 100 | null | null | 0.2000" in lines[3]


def test_a_point_has_the_largest_eps_of_its_runs() -> None:
    runs = [
        row("a", point_id="p", seeds=[0], eps=3.1, budget=3.1),
        row("b", point_id="p", seeds=[1], eps=3.3, budget=3.3),
    ]
    ((point,), _) = points_of.pooled(runs)
    assert (point["eps"], point["budget"]) == (3.3, 3.3)


def test_different_guarantees_share_no_row() -> None:
    """A run with a fixed noise stands under the eps that it really has, and central trust is not
    compared with secagg.
    """
    finish("calibrated", trust="secagg", eps=1.9999, test_error_mean=0.3)
    finish("fixed", trust="secagg", eps=46.2, test_error_mean=0.1)
    finish("trusting", trust="central", eps=2.0, test_error_mean=0.2)
    finish("leaking", trust="central", eps=2.0, test_error_mean=0.1, fully_accounted=False)
    finish("papers", trust="central", eps=2.0, test_error_mean=0.1, accountant="paper", fully_accounted=False)
    text = call("collect", "runs").out
    assert "| client, secagg, replace_one, server, delta 1e-05 | 2 | 5 | ? | 20 | 100 | 0.3000" in text
    assert "| client, secagg, replace_one, server, delta 1e-05 | 46.2 | 5 | ? | 20 | 100 | 0.1000" in text
    assert "| client, central, replace_one, server, delta 1e-05 | 2 | 5 | ? | 20 | 100 | 0.2000" in text
    assert "delta 1e-05, not fully accounted |" in text
    assert "delta 1e-05, the paper's own accountant, no guarantee, not fully accounted |" in text


def config(**changes: Any) -> str:
    given = {
        "partition": "iid",
        "alpha": 1,
        "l2": 0,
        "seed": 0,
        "server_lr": 1.0,
        "dataset": "digits",
        **changes,
    }
    return (
        "eps: 2.0\nserver_lr: {server_lr}\nseed: {seed}\nmodel:\n  name: logreg\n  l2: {l2}\n"
        "partition:\n  name: {partition}\n  alpha: {alpha}\ndataset:\n  name: {dataset}\n"
    ).format(**given)


@pytest.mark.slow
def test_the_best_by_another_measure() -> None:
    """Errors of a hundred test records are coarse; a loss tells points apart that have the same
    error.
    """
    for name, steps, error, loss in (("a", 1, 0.2, 0.9), ("b", 5, 0.21, 0.4), ("c", 10, 0.25, 0.5)):
        finish(name, local_steps=steps, test_error_mean=error, test_loss_mean=loss, test_loss_std=0.0)
    free("d", local_steps=1, test_error_mean=0.1, test_loss_mean=0.3)
    text = call("collect", "runs", "--by", "test_loss", "--to", "out").out
    assert "| total steps | test loss | n seeds |" in text
    private = table_of("out/table.csv")[1]
    assert [private[key] for key in ("local_steps", "test_loss_mean", "as_good", "tried")] == [
        "5",
        "0.4",
        "",
        "1 5 10",
    ]
    assert float(private["gap"]) == pytest.approx(0.1)
    assert Path("out/u_curves_digits.png").exists()
    finish("e", local_steps=20, test_error_mean=0.1, test_loss_mean=None)
    assert [row["local_steps"] for row in collect(["runs"], "out", by="test_loss").table.rows] == [1, 5], (
        "one without a loss is none"
    )
    assert [row["local_steps"] for row in collect(["runs"], "out").table.rows] == [1, 20]


def test_other_problems_are_other_rows_and_other_hyper_parameters_are_columns() -> None:
    """A partition is not chosen for its error; a server's learning rate is."""
    finish("a", test_error_mean=0.1, config=config(partition="iid"))
    finish("b", test_error_mean=0.2, config=config(partition="dirichlet", alpha=0.3))
    finish("c", test_error_mean=0.3, config=config(partition="dirichlet", alpha=0.1))
    finish(
        "d",
        test_error_mean=0.25,
        config=config(partition="dirichlet", alpha=0.1, server_lr=0.5),
        overrides="- server_lr=0.5\n",
    )
    finish("e", test_error_mean=0.4, dataset="mnist", config=config(dataset="mnist"))
    table = collect(["runs"], "out").table
    common = "model logreg, clients 9"
    assert [(r["dataset"], r["setting"], r["test_error_mean"]) for r in table.rows] == [
        ("digits", f"{common}, partition dirichlet, partition.alpha 0.1", 0.25),
        ("digits", f"{common}, partition dirichlet, partition.alpha 0.3", 0.2),
        ("digits", f"{common}, partition iid", 0.1),
        ("mnist", common, 0.4),
    ]
    assert [r["server_lr"] for r in table.rows] == [0.5, 1.0, 1.0, 1.0]
    assert table.swept == ["server_lr"]
    assert "| total steps | server_lr | test error |" in tables.markdown(table)


def test_cohorts_are_told_where_some_clients_are_left_out() -> None:
    finish("a", test_error_mean=0.1)
    finish("b", test_error_mean=0.2, sampled_clients=3)
    settings = {row["setting"] for row in collect(["runs"], "out").table.rows}
    assert settings == {"model logreg, clients 9", "model logreg, clients 9, sampled_clients 3"}


def test_clip_and_lr_are_told_where_they_were_swept() -> None:
    for name, clip, lr in (("a", 0.1, 0.5), ("b", 1.0, 0.5), ("c", "median", 0.5)):
        finish(name, clip=clip, lr=lr, test_error_mean=0.1 if name == "a" else 0.3)
    table = collect(["runs"], "out").table
    assert table.swept == ["clip"]
    assert "| 100 | 0.1 | 0.1000 | 1 |" in tables.markdown(table)
    assert table_of("out/table.csv")[0]["lr"] == "0.5", "machines get it all the same"
    finish("d", lr=0.7)
    assert collect(["runs"], "out").table.swept == ["clip", "lr"]


def test_markdown_keeps_its_columns() -> None:
    lines = tables.markdown(odd_table()).splitlines()
    assert len(lines) == 11
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_the_csv_of_the_table_has_every_bit() -> None:
    finish("a", test_error_mean=1 / 3, eps=1.9999999999956317)
    free("b", test_error_mean=0.1)
    collect(["runs"], "out")
    first, second = table_of("out/table.csv")
    assert float(second["test_error_mean"]) == 1 / 3
    assert float(second["eps"]) == 1.9999999999956317
    assert float(first["budget"]) == INF
    assert second["run_ids"] == "a"
