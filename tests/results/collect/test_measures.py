"""The value of a run by seed: which rounds it is of, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from helpers.collected import finish

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.collect.measures import Last, by_seed


def run(rows: dict[int, dict[int, float | None]], **more: Any) -> Path:
    """seed -> round -> test error; the training loss is ten times that, psi is blank."""
    folder = finish("r", seeds=list(rows), **more)
    lines = ["seed,round,steps,test_error,train_loss,psi"]
    for seed, values in rows.items():
        for number, value in values.items():
            cells = ("", "") if value is None else (repr(value), repr(10 * value))
            lines.append(f"{seed},{number},{number},{cells[0]},{cells[1]},")
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    return folder


def errors(count: int, scale: float = 1.0) -> dict[int, float | None]:
    return {number: scale / (1 + number) for number in range(count + 1)}


def test_the_last_round_the_last_five_and_the_last_share() -> None:
    folder = run({0: errors(20), 3: errors(20, 2.0)})
    assert by_seed(folder, "test_error") == {0: 1 / 21, 3: 2 / 21}
    five = sum(1 / (1 + number) for number in range(16, 21)) / 5
    assert by_seed(folder, "test_error", 5) == pytest.approx({0: five, 3: 2 * five})
    assert by_seed(folder, "test_error", "5") == by_seed(folder, "test_error", "25%")
    assert by_seed(folder, "train_loss", "10%")[0] == pytest.approx(10 * (1 / 20 + 1 / 21) / 2)
    assert by_seed(folder, "test_error", 5)[0] != pytest.approx(by_seed(folder, "test_error", 4)[0], rel=0.01)


def test_each_seed_has_its_own_last_round() -> None:
    """Coins draw how many rounds a seed has."""
    assert by_seed(run({0: errors(4), 1: errors(7)}), "test_error") == {0: 1 / 5, 1: 1 / 8}


def test_a_seed_that_diverged_has_no_value() -> None:
    rows = {0: errors(4), 1: errors(2)}
    folder = run(rows, status="diverged", diverged={"seed": 1, "round": 3}, **{})
    values = by_seed(folder, "test_error")
    assert values[0] == 1 / 5
    assert math.isnan(values[1])
    folder = finish("r", seeds=[0, 1, 2], status="diverged", diverged={"seed": 1, "round": 3})
    assert sorted(by_seed(folder, "test_error")) == [0, 1, 2]
    assert math.isnan(by_seed(folder, "test_error")[2])


@pytest.mark.parametrize(
    ("column", "last", "says"),
    [
        ("nope", 1, "nope: expected a column of metrics.csv of run r: steps, test_error, train_loss, psi"),
        ("seed", 1, "expected a column"),
        ("psi", 1, "psi: run r left this column blank; it measured test_error, train_loss"),
        ("test_error", 21, "last=21: expected at most the 20 rounds of run r"),
        ("test_error", 0, "last=0: expected a number of rounds like 5"),
        ("test_error", "0%", "expected a number of rounds"),
        ("test_error", "101%", "expected a number of rounds"),
        ("test_error", "1.5", "expected a number of rounds"),
        ("test_error", "some", "expected a number of rounds"),
    ],
)
def test_what_has_no_value_is_refused(column: str, last: int | str, says: str) -> None:
    folder = run({0: errors(20)})
    with pytest.raises(ConfigError, match=r"expected|blank") as refusal:
        by_seed(folder, column, last)
    assert says in str(refusal.value)


def test_no_mean_of_fewer_rounds_than_asked_for() -> None:
    folder = run({0: {number: 0.5 for number in (0, 5, 10, 15, 20)}})
    assert by_seed(folder, "test_error") == {0: 0.5}
    for last in (2, 5, "25%"):
        with pytest.raises(ConfigError, match=r"evaluated 1 of its last [25] rounds; run it with eval_last="):
            by_seed(folder, "test_error", last)
    folder = run({0: {**errors(20), 19: None}})
    with pytest.raises(ConfigError, match="left this column blank"):
        by_seed(folder, "test_error", 2)


def test_a_share_is_of_the_rounds() -> None:
    assert [Last.parse("10%").of(rounds) for rounds in (4, 10, 25, 100)] == [1, 1, 2, 10]
    assert str(Last.parse("10%")), str(Last.parse(5)) == ("10%", "5")


def test_files_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match=r"metrics.csv: expected the rows of a run"):
        by_seed(Path("nowhere"), "test_error")
    folder = run({0: errors(2)})
    (folder / "result.json").unlink()
    with pytest.raises(ConfigError, match="expected a run that has ended"):
        by_seed(folder, "test_error")


def test_a_blank_training_loss_says_what_fills_it() -> None:
    folder = run({0: {1: 0.5}})
    text = (folder / "metrics.csv").read_text().replace(",5.0,", ",,")
    (folder / "metrics.csv").write_text(text)
    with pytest.raises(ConfigError, match=r"train_loss: run r left .*\(evaluate=all without train_subset"):
        by_seed(folder, "train_loss")
