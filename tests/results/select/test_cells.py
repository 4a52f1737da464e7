"""Sources grouped by fields: what is pooled, what is tuned, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.sources import facts, grid, lost, run

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.select.cells import Cell, Question, cells

INF = math.inf


def values_of(cell: Cell) -> list[float]:
    return sorted(cell.values.values())


def by_field(found: list[Cell], name: str) -> dict[object, list[float]]:
    return {cell.at[name]: values_of(cell) for cell in found}


def test_groups_in_the_order_of_their_first_source() -> None:
    runs = [run({"eps": eps, "lr": lr}, 10 * eps + lr) for eps in (2.0, 0.5) for lr in (1.0, 3.0)]
    found = cells(runs, Question("y", ("lr", "eps")))
    assert [(c.at["lr"], c.at["eps"], c.mean) for c in found] == [
        *((1.0, 2.0, 21.0), (3.0, 2.0, 23.0)),
        *((1.0, 0.5, 6.0), (3.0, 0.5, 8.0)),
    ]


def test_where_with_values_and_lists() -> None:
    runs = grid({1: [1.0], 2: [2.0], 5: [5.0], INF: [9.0]}, "eps")
    asked = {"eps": [1, 5.0, INF]}
    assert by_field(cells(runs, Question("y", ("eps",), asked)), "eps") == {1: [1.0], 5: [5.0], INF: [9.0]}
    assert by_field(cells(runs, Question("y", ("eps",), {"eps": 2.0})), "eps") == {2: [2.0]}
    assert cells(runs, Question("y", (), {"eps": 3})) == []


def test_a_field_named_as_a_group_is_the_choices_name() -> None:
    (cell,) = cells([run({"algo.name": "pfl"}, 1.0)], Question("y", ("algo", "sweep")))
    assert cell.at == {"algo": "pfl", "sweep": "main"}


def test_seeds_in_several_runs_are_pooled() -> None:
    runs = [run({"seed": 0}, 1.0, 2.0), run({"seed": 5}, 6.0)]
    (cell,) = cells(runs, Question("y"))
    assert {key[1]: value for key, value in cell.values.items()} == {0: 1.0, 1: 2.0, 5: 6.0}
    assert cell.interval.count == 3


def test_splits_are_kept_apart() -> None:
    runs = [run({"partition.seed": split}, split, split + 1) for split in range(3)]
    (cell,) = cells(runs, Question("y"))
    assert len(cell.values) == 6
    assert cell.interval.count == 3


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("split", [None, 4])
def test_a_setting_that_nobody_named_is_refused_never_averaged(seed: int, split: int | None) -> None:
    """Also where no two of the values share a seed and a split."""
    other = {"lr": 0.2, "seed": seed, "partition.seed": split}
    with pytest.raises(ConfigError, match=r"^y: runs differ in lr; ") as error:
        cells([run({}, 1.0), run(other, 2.0)], Question("y", ("eps",)))
    assert "\n" not in str(error.value)


def test_every_differing_setting_is_told_and_no_idle_one() -> None:
    other = {"lr": 0.2, "algo.mu": 3, "eval_every": 1, "device": "cuda", "engine.chunk": 7, "plot": "false"}
    with pytest.raises(ConfigError, match=r"runs differ in lr, algo\.mu;"):
        cells([run({}, 1.0), run(other, 2.0)], Question("y"))
    idle = {key: value for key, value in other.items() if key not in ("lr", "algo.mu")} | {"seed": 3}
    (cell,) = cells([run({}, 1.0), run(idle, 2.0)], Question("y"))
    assert values_of(cell) == [1.0, 2.0]


def test_where_with_several_values_does_not_name_a_field() -> None:
    with pytest.raises(ConfigError, match="runs differ in lr;"):
        cells(grid({0.1: [1.0], 0.2: [2.0]}, "lr"), Question("y", where={"lr": [0.1, 0.2]}))


def test_a_seed_that_two_runs_share_is_refused() -> None:
    with pytest.raises(ConfigError, match="two runs with the same settings share a seed"):
        cells([run({}, 1.0, 2.0), run({"seed": 1}, 2.0)], Question("y"))


def test_a_run_that_two_sweeps_share_counts_once() -> None:
    one = run({}, 1.0, 2.0)
    other = type(one)("second", one.path, one.result)
    other.__dict__.update(text=one.text, rounds=one.rounds)
    (cell,) = cells([one, other], Question("y"))
    assert values_of(cell) == [1.0, 2.0]
    assert len(cell.sources) == 1
    assert len(cells([one, other], Question("y", ("sweep",)))) == 2


def test_tuned_against_a_plain_loop() -> None:
    rng = np.random.default_rng(5)
    lrs, epses = [0.1, 0.2, 0.4, 0.8], [1.0, 2.0]
    table = {(eps, lr): rng.normal(0, 1, 3) for eps in epses for lr in lrs}
    runs = [run({"eps": eps, "lr": lr}, *seeds) for (eps, lr), seeds in table.items()]
    for better, pick in (("least", min), ("most", max)):
        asked = Question("y", ("eps",), best_over=("lr",), better=better)  # type: ignore[arg-type]
        for cell in cells(runs, asked):
            eps = cell.at["eps"]
            best = pick(lrs, key=lambda lr: table[eps, lr].mean())
            assert cell.tuned == {"lr": best}
            assert values_of(cell) == sorted(table[eps, best])
        where = Question("best lr", ("eps",), by="y", better=better)  # type: ignore[arg-type]
        chosen = {cell.at["eps"]: cell.mean for cell in cells(runs, where)}
        assert chosen == {eps: pick(lrs, key=lambda lr: table[eps, lr].mean()) for eps in epses}


def test_best_by_another_quantity_with_its_own_direction() -> None:
    def made(lr: float, loss: float, score: float) -> object:
        return run({"lr": lr}, rows={"seed": [0], "round": [1], "loss": [loss], "score": [score]})

    runs = [made(0.1, 5.0, 0.3), made(0.2, 7.0, 0.9), made(0.3, 1.0, 0.1)]
    asked = Question("loss", best_over=("lr",), by="score", by_better="most")
    (cell,) = cells(runs, asked)  # type: ignore[arg-type]
    assert (cell.mean, cell.tuned) == (7.0, {"lr": 0.2})


def test_of_equal_ones_the_first_is_best() -> None:
    runs = grid({0.3: [1.0, 3.0], 0.1: [2.0, 2.0], 0.2: [3.0, 1.0]}, "lr")
    (cell,) = cells(runs, Question("y", best_over=("lr",)))
    assert cell.tuned == {"lr": 0.3}


def test_spread_counts_like_seeds_and_is_tuned_for_each_value() -> None:
    runs = [
        run({"eps": eps, "lr": lr}, value, value + 1)
        for (eps, lr), value in {(1.0, 0.1): 0, (1.0, 0.2): 9, (2.0, 0.1): 9, (2.0, 0.2): 4}.items()
    ]
    (cell,) = cells(runs, Question("y", best_over=("lr",), spread=("eps",)))
    assert values_of(cell) == [0, 1, 4, 5]
    assert cell.tuned == {}  # .1 for one of them and .2 for the other
    assert cell.std == pytest.approx(np.std([0, 1, 4, 5], ddof=1))


@pytest.mark.parametrize(("better", "worst"), [("least", INF), ("most", -INF)])
def test_a_run_that_diverged_is_the_worst(better: str, worst: float) -> None:
    runs = [lost({"lr": 0.1}), *grid({0.2: [5.0, 5.0, 5.0], 0.3: [6.0, 6.0, 6.0]}, "lr")]
    (cell,) = cells(runs, Question("y", best_over=("lr",), better=better))  # type: ignore[arg-type]
    assert cell.tuned == {"lr": 0.2 if better == "least" else 0.3}
    (alone,) = cells(runs[:1], Question("y", better=better))  # type: ignore[arg-type]
    assert values_of(alone) == [worst] * 3
    assert alone.mean == worst
    (all_lost,) = cells([lost({"lr": lr}) for lr in (1, 2)], Question("y", best_over=("lr",)))
    assert all_lost.tuned == {"lr": 1}


def curve(settings: dict[str, object], of: dict[int, dict[int, float]], **more: object) -> object:
    flat = [(s, r, 2 * r, v) for s, each in of.items() for r, v in each.items()]
    names = ("seed", "round", "steps", "y")
    return run(settings, rows=dict(zip(names, zip(*flat, strict=True), strict=True)), **more)  # type: ignore[arg-type]


def test_over_rounds() -> None:
    one = curve({}, {0: {1: 1.0, 5: 2.0}, 1: {1: 3.0, 5: 4.0}})
    two = curve({"seed": 7}, {7: {1: 8.0, 5: 9.0}})
    found = cells([one, two], Question("y + 0 * round", ("eps", "round")))  # type: ignore[list-item]
    assert by_field(found, "round") == {1: [1.0, 3.0, 8.0], 5: [2.0, 4.0, 9.0]}
    assert {cell.at["eps"] for cell in found} == {2.0}
    assert list(by_field(cells([one], Question("y", ("steps",))), "steps")) == [2.0, 10.0]  # type: ignore[list-item]


def test_over_rounds_a_spread_field_counts_like_seeds() -> None:
    runs = [curve({"eps": eps}, {0: {1: eps, 2: 10 * eps}}) for eps in (1.0, 2.0, 4.0)]
    found = cells(runs, Question("y", ("round",), spread=("eps",)))  # type: ignore[arg-type]
    assert by_field(found, "round") == {1: [1.0, 2.0, 4.0], 2: [10.0, 20.0, 40.0]}


def test_over_rounds_the_survivors_do_not_stand_for_all() -> None:
    """A seed that diverged is not left out of the mean of later rounds."""
    fine = curve({}, {0: {1: 1.0, 2: 1.0, 3: 1.0}})
    broken = curve({"seed": 5}, {5: {1: 2.0, 2: 50.0}}, seeds=[5, 6], diverged={"seed": 5, "round": 3})
    found = by_field(cells([fine, broken], Question("y", ("round",))), "round")  # type: ignore[list-item]
    assert found == {1: [1.0, 2.0], 2: [1.0, 50.0], 3: [1.0, INF, INF]}
    (most, *_) = cells([fine, broken], Question("y", ("round",), better="most"))[::-1]  # type: ignore[list-item]
    assert values_of(most) == [-INF, -INF, 1.0]


def test_over_rounds_with_the_tuned_choice_of_the_end() -> None:
    slow = curve({"lr": 0.1}, {0: {1: 9.0, 2: 1.0}})
    fast = curve({"lr": 0.9}, {0: {1: 2.0, 2: 2.0}})
    found = cells([slow, fast], Question("y", ("round",), best_over=("lr",)))  # type: ignore[list-item]
    assert by_field(found, "round") == {1: [9.0], 2: [1.0]}
    with pytest.raises(ConfigError, match="best lr: expected a quantity; over rounds there is no best"):
        cells([slow, fast], Question("best lr", ("round",), by="y"))  # type: ignore[list-item]


def test_plans_are_exact_and_equal_ones_count_once() -> None:
    plans = [facts({"rounds": 49}), facts({"rounds": 49}, sweep="second")]
    (cell,) = cells(plans, Question("plan.rounds + 1"))
    assert cell.exact
    assert (cell.mean, cell.interval.low, cell.interval.high) == (50.0, 50.0, 50.0)
    (nothing,) = cells([facts({})], Question("plan.theory.T_star"))
    assert math.isnan(nothing.mean)
    with pytest.raises(ConfigError, match="runs differ in eps;"):
        cells([facts({"rounds": 1}, eps=1), facts({"rounds": 2}, eps=2)], Question("plan.rounds"))


def test_a_word_is_no_number() -> None:
    with pytest.raises(ConfigError, match="algo=dp_fedavg: expected a number"):
        cells([run({}, 1.0)], Question("y * algo"))
    with pytest.raises(ConfigError, match="best dp_fedavg: expected a field with numbers"):
        cells([run({}, 1.0)], Question("best algo", by="y"))


def test_rounds_are_chosen_among_those_that_were_evaluated() -> None:
    rows = {"seed": [0] * 4, "round": [1, 2, 3, 4], "y": [8.0, 4.0, 2.0, 1.0]}
    runs = [run({"lr": 1.0}, rows=rows)]
    for chosen, expected in (([1, 4], [8.0, 1.0]), (2, [4.0]), ([3, 9], [2.0])):
        found = cells(runs, Question("y", ("round",), {"round": chosen, "lr": 1.0}))
        assert [cell.mean for cell in found] == expected
    assert len(cells(runs, Question("y", ("round",)))) == 4


def test_one_round_or_some_of_them() -> None:
    runs = [curve({"eps": eps}, {0: {1: eps, 2: 10 * eps, 3: 100 * eps}}) for eps in (1.0, 2.0)]
    asked = Question("y", ("eps",), {"round": 2})
    assert by_field(cells(runs, asked), "eps") == {1: [10.0], 2: [20.0]}  # type: ignore[arg-type]
    assert cells(runs, Question("y", ("eps",), {"round": 9})) == []  # type: ignore[arg-type]
    some = Question("y", ("round",), {"round": [1, 3, 9], "eps": 2})
    assert by_field(cells(runs, some), "round") == {1: [2.0], 3: [200.0]}  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="round: expected it among the fields, or one value of it"):
        cells(runs, Question("y", ("eps",), {"round": [1, 2]}))  # type: ignore[arg-type]


def test_a_file_without_a_seed_of_its_run_is_refused() -> None:
    broken = run(rows={"seed": [0, 1], "round": [10, 10], "y": [1.0, 2.0]}, seeds=[0, 1, 2])
    with pytest.raises(ConfigError, match="has no row of seed 2"):
        cells([broken], Question("y"))


def test_a_blank_at_the_end_is_refused() -> None:
    blank = run(rows={"seed": [0, 0], "round": [5, 10], "y": [1.0, float("nan")]})
    with pytest.raises(ConfigError, match="left it blank at its end"):
        cells([blank], Question("y"))
