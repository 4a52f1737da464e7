"""`collect` says where a table would mislead: one plain line each, and typed under --json."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.collected import finish, free
from helpers.command import QUICK, call

from dpfl_bench.results.collect import best
from dpfl_bench.results.collect import points as points_of
from dpfl_bench.results.collect.gather import collect

pytestmark = pytest.mark.usefixtures("hollow_pictures")

INF = float("inf")
SEEDS: dict[str, Any] = {"seeds": [0, 1], "test_error_std": 0.01}


def said(*flags: str) -> dict[str, dict[str, Any]]:
    """Kind -> warning; each stands under the table as one line, and in the files."""
    made = call("collect", "runs", "--to", "out", "--json", *flags).json
    text = call("collect", "runs", "--to", "out", *flags).out.splitlines()
    tex = Path("out/table.tex").read_text()
    for warning in made["warnings"]:
        assert {"kind", "says"} <= set(warning)
        assert text.count(warning["says"]) == 1
        assert tex.count("raggedright") == len(made["notes"]) + len(made["warnings"])
    assert len({w["kind"] for w in made["warnings"]}) == len(made["warnings"])
    return {w["kind"]: w for w in made["warnings"] if w["kind"] not in ("no_origin", "no_eps_of_all")}


def grid(steps: tuple[int, ...] = (1, 5, 20), best_at: int = 5, **more: Any) -> None:
    """Without anything to say: several seeds, the best inside, and the baseline."""
    for number in steps:
        error = 0.2 if number == best_at else 0.4
        given = {"local_steps": number, "rounds": 100 // number, "test_error_mean": error, **SEEDS, **more}
        free(f"free{number}", **{**given, "clip": None})
        finish(f"own{number}", **given)


def test_a_table_that_does_not_mislead_has_nothing_under_it() -> None:
    grid()
    assert said() == {}


def test_one_seed() -> None:
    grid()
    finish("own20", local_steps=20, rounds=5, test_error_mean=0.4, seeds=[0])
    found = said()
    assert set(found) == {"one_seed", "uneven_seeds"}
    assert "One seed at points of 1 of 2 rows (dp_fedavg on digits at eps 2)" in found["one_seed"]["says"]
    assert [row["budget"] for row in found["one_seed"]["rows"]] == [2.0]
    assert "| 5 | ? | 20 | 100 | 0.2000 ± 0.0100 |" in Path("out/table.md").read_text()


def test_a_single_point_is_no_optimum() -> None:
    finish("a", **SEEDS)
    free("b", **SEEDS)
    found = said()
    assert set(found) == {"single_point"}
    assert (
        found["single_point"]["says"]
        == "One point only in all 2 rows: nothing was swept, so it is no optimum."
    )
    finish("c", local_steps=20, rounds=5, status="diverged", test_error_mean=None, eps=0.3)
    assert len(said()["single_point"]["rows"]) == 1, "a point that diverged was tried"


def test_local_steps_that_were_not_swept() -> None:
    for name, clip, error in (("a", 0.1, 0.3), ("b", 1.0, 0.2), ("c", 3.0, 0.4)):
        finish(name, clip=clip, test_error_mean=error, **SEEDS)
    free("d", **SEEDS)
    assert set(said()) == {"steps_not_swept", "single_point"}


@pytest.mark.parametrize(
    ("steps", "best_at", "edge"),
    [
        ((1, 5, 20), 20, "local_steps 20 of 1 to 20"),
        ((2, 5, 20), 2, "local_steps 2 of 2 to 20"),
        ((1, 5, 20), 1, None),  # nothing is below one local step
        ((1, 5, 100), 100, None),  # nor above one round
        ((1, 5, 20), 5, None),
    ],
)
def test_the_edge_of_the_local_steps(steps: tuple[int, ...], best_at: int, edge: str | None) -> None:
    grid(steps, best_at)
    found = said()
    assert set(found) == ({"edge"} if edge else set())
    if edge:
        assert (
            f"in 2 of 2 rows (dp_fedavg on digits at eps inf: {edge}; ...): a better one may lie beyond."
            in found["edge"]["says"]
        )
        assert found["edge"]["rows"][1]["edges"] == [edge]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "values"), [("clip", (0.1, 0.3, 1.0)), ("lr", (0.5, 1.0, 2.0))])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_edge_of_what_else_was_swept(key: str, values: tuple[float, ...], place: int) -> None:
    grid(**{key: values[0]})
    for number, value in enumerate(values):
        error = 0.1 if number == place else 0.15
        finish(f"swept{number}", **{"local_steps": 5, key: value, "test_error_mean": error, **SEEDS})
    found = said()
    if place == 1:
        assert "edge" not in found
    else:
        assert found["edge"]["rows"][0]["edges"] == [
            f"{key} {values[place]:g} of {values[0]:g} to {values[2]:g}"
        ]
    for name, beyond in (("less", values[0] / 2), ("more", 2 * values[2])):
        finish(
            name, **{"local_steps": 5, key: beyond, "status": "diverged", "test_error_mean": None, "eps": 0.5}
        )
    assert "edge" not in said(), "beyond the best was tried, and diverged"


def test_a_clip_that_is_a_word_has_no_edge() -> None:
    grid()
    finish("median", local_steps=5, clip="median", test_error_mean=0.1, **SEEDS)
    assert "edge" not in said()


def test_the_edge_is_that_beside_the_best() -> None:
    """Of the lr tried with as many local steps: another's grid says nothing here."""
    grid(lr=1.0)
    finish("a", local_steps=1, rounds=100, lr=0.1, test_error_mean=0.4, **SEEDS)
    finish("b", local_steps=5, lr=4.0, test_error_mean=0.4, **SEEDS)
    assert said()["edge"]["rows"][0]["edges"] == ["lr 1 of 1 to 4"]


@pytest.mark.slow
def test_no_baseline_and_the_command_that_adds_it() -> None:
    sweep = (
        "run",
        "-m",
        "algo=dp_fedavg",
        "eps=2",
        "local_steps=1,2,4",
        "total_steps=4",
        "repeats=2",
        "model.l2=0.1",
        "privacy.clip=0.2",
    )
    assert call(*sweep, *QUICK, "outputs=.", "delta=1e-6").code == 0
    found = said()
    says = found["no_baseline"]["says"]
    assert says.startswith(
        "No run with eps=inf beside the row (dp_fedavg on breast_cancer at eps 2), so the gap is not known;"
        " to add it: "
    )
    command = says.partition("to add it: ")[2]
    assert command == found["no_baseline"]["rows"][0]["command"]
    words = shlex.split(command)
    assert words[:3] == ["dpfl-bench", "run", "-m"]
    assert call(*words[1:]).code == 0
    assert "no_baseline" not in said()
    row, private = collect(["runs"], "out").table.rows
    assert (row["budget"], row["tried"], private["gap"]) == (
        INF,
        [1, 2, 4],
        private["test_error_mean"] - row["test_error_mean"],
    )
    for folder in Path("runs").glob("*/.hydra"):
        shutil.rmtree(folder)
    free_ones = [
        p for p in Path("runs").iterdir() if '"eps_target": Infinity' in (p / "result.json").read_text()
    ]
    for folder in free_ones:
        shutil.rmtree(folder)
    assert said()["no_baseline"]["says"].endswith(
        "so the gap is not known; run the same with eps=inf to add it"
    )


def test_words_with_spaces_and_seeds_of_their_own_are_in_the_command() -> None:
    for seed in (0, 1):
        words = f"- algo=dp_fedavg\n- seed={seed}\n- dataset.seed=$\\{{seed\\}}\n- eps=2\n- privacy=local\n"
        words += "- '+note=a: b c'\n- ~x\n- stop_at_eps=1\n"
        finish(f"a{seed}", point_id="p", seeds=[seed], overrides=words)
    command = said()["no_baseline"]["rows"][0]["command"]
    assert shlex.split(command) == [
        *(
            "dpfl-bench",
            "run",
            "-m",
            "algo=dp_fedavg",
            "seed=0,1",
            "dataset.seed=${seed}",
            "+note=a: b c",
            "~x",
            "eps=inf",
        )
    ]


@pytest.mark.parametrize(
    ("env", "flags"),
    [
        (
            {"command": "dpfl-bench run -cd 'my files' algo=mine -cn other"},
            ["-cd", "my files", "-cn", "other"],
        ),
        ({"command": "dpfl-bench run algo=mine"}, []),
        ({"command": "'half"}, []),
        ({"command": None}, []),
        ({}, []),
    ],
)
def test_configs_of_ones_own_are_in_the_command(env: dict[str, Any], flags: list[str]) -> None:
    path = finish("a", overrides="- algo=mine\n")
    (path / "env.json").write_text(json.dumps(env))
    command = said()["no_baseline"]["rows"][0]["command"]
    assert shlex.split(command) == ["dpfl-bench", "run", *flags, "algo=mine", "eps=inf"]


def test_diverged_points() -> None:
    grid()
    finish("bad", local_steps=50, rounds=2, status="diverged", test_error_mean=None, eps=0.2)
    found = said()
    assert set(found) == {"diverged"}
    assert (
        found["diverged"]["says"]
        == "Diverged: 1 of 7 runs; the 1 points they belong to have no error and cannot be best."
    )
    assert found["diverged"]["runs"] == ["bad"]


def test_points_without_the_measure_did_not_diverge() -> None:
    grid(test_loss_mean=0.5, test_loss_std=0.1)
    finish("silent", local_steps=50, rounds=2, **SEEDS)
    found = said("--by", "test_loss")
    assert "diverged" not in found
    assert (
        found["no_error"]["says"] == "No test loss in 1 points (silent): they cannot be best."
        " Without a test set use --by train_loss."
    )


def test_a_run_of_several_seeds_that_tells_no_spread_has_none() -> None:
    """It is not ± 0."""
    grid()
    finish("own5", local_steps=5, test_error_mean=0.2, test_error_std=None, seeds=[0, 1])
    said()
    assert "| 0.2000 | 2 |" in Path("out/table.md").read_text()


@pytest.mark.slow
def test_a_gap_between_splits() -> None:
    """The baseline ran on a hard split, the private runs on three: their difference is of the
    splits.
    """
    free("free", seeds=[0, 1], local_steps=1)
    for seed in (0, 1, 2):
        given = {"config": f"eps: 2.0\ndataset:\n  seed: {seed}\n", "overrides": f"- dataset.seed={seed}\n"}
        finish(f"own{seed}", point_id="p", seeds=[2 * seed, 2 * seed + 1], **given)
    assert said()["gap_across_splits"]["says"].startswith(
        "The gap of 1 of 2 rows (dp_fedavg on digits at eps 2) is to runs on other splits"
    )
    for seed in (0, 1, 2):
        given = {"config": f"eps: .inf\ndataset:\n  seed: {seed}\n", "overrides": f"- dataset.seed={seed}\n"}
        free(f"free{seed}", algo="fedavg", point_id="q", seeds=[2 * seed, 2 * seed + 1], **given)
    assert "gap_across_splits" in said(), "its own name counts first"
    shutil.rmtree("runs/free")
    assert "gap_across_splits" not in said()


def test_a_setting_that_no_command_named_is_told_where_points_differ_in_it() -> None:
    """A user's own YAML file that was edited: one name, two settings."""
    for name, eta, error in (("a", 1, 0.3), ("b", 2, 0.2)):
        finish(
            name,
            test_error_mean=error,
            config=f"eps: 2.0\nalgo:\n  name: dp_fedavg\n  eta: {eta}\n",
            overrides="- algo=mine\n",
        )
    table = collect(["runs"], "out").table
    assert (table.swept, table.rows[0]["algo.eta"]) == (["algo.eta"], 2)
    assert "| algo.eta |" in Path("out/table.md").read_text()


def test_what_diverged_counts_where_it_would_have_stood() -> None:
    """Its eps is of the rounds it played, less than its point was to cost."""

    def point(**more: Any) -> dict[str, Any]:
        return {
            **dict.fromkeys(points_of.KEYS, "x"),
            "eps_target": 2.0,
            "budget": 2.0,
            "local_steps": 1,
            **more,
        }

    points = [
        point(),
        point(algo="other"),
        point(budget=30.0),
        point(budget=40.0, eps_target=5.0),
        point(budget=0.1),
    ]
    for early, where in (
        (point(budget=0.3), [2.0, 30.0]),
        (point(budget=2.0), [2.0]),
        (point(budget=3.0), [30.0]),
        (point(budget=0.3, eps_target=5.0), [40.0]),
        (point(budget=0.3, eps_target=7.0), [0.3]),
        (point(budget=0.3, guarantee="y"), [0.3]),
    ):
        assert sorted(placed["budget"] for placed in best.placed([early], points)) == where
