"""`collect` refuses runs of different code or data in one table, unless --mixed says so."""

from __future__ import annotations

import inspect
import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.collected import finish, free, table_of
from helpers.command import Said, call
from helpers.federations import CONF

from dpfl_bench.results.collect import columns, pictures
from dpfl_bench.results.collect.gather import collect

pytestmark = pytest.mark.usefixtures("hollow_pictures")

ONE, OTHER = "1" * 16, "2" * 16
TARGETS = {
    "algo": "m.Algo",
    "model": "m.model",
    "dataset": "dpfl_bench.data.digits.load",
    "partition": "m.deal",
}


def origin(**parts: str) -> dict[str, Any]:
    return {"origin": {"targets": ONE, "package": ONE, "data": ONE, **parts}}


def config(names: dict[str, Any] | None = None, **changes: Any) -> dict[str, str]:
    """changes: KEY_OF_GROUP=value, like dataset_seed=1."""
    given: dict[str, dict[str, Any]] = {group: {"_target_": target} for group, target in TARGETS.items()}
    for key, value in changes.items():
        group, _, inner = key.partition("_")
        given[group][inner] = value
    return {"config": yaml.safe_dump({"eps": 2.0, **given})}


def refused(*flags: str) -> str:
    said = call("collect", "runs", "--to", "out", *flags)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert not Path("out/table.md").exists(), "nothing is written"
    return said.err


def mixed() -> tuple[Said, list[dict[str, Any]]]:
    """With --mixed: what is said, and the typed warnings of runs that differ."""
    told = call("collect", "runs", "--to", "out", "--mixed", "--json").json["warnings"]
    return call("collect", "runs", "--to", "out", "--mixed"), [
        w for w in told if w["kind"].startswith("mixed")
    ]


def test_seeds_of_an_edited_algorithm_are_not_pooled() -> None:
    """Repeats of one point: the mean would be of two algorithms."""
    finish("a", point_id="p", seeds=[0], test_error_mean=0.1, **origin())
    finish("b", point_id="p", seeds=[1], test_error_mean=0.3, **origin(targets=OTHER))
    err = refused()
    assert (
        "algo dp_fedavg, model logreg, dataset digits, partition None: different code of their own"
        " (origin.targets)" in err
    )
    assert f"{ONE}: runs/a; {OTHER}: runs/b" in err
    assert "--force" in err
    assert "--mixed" in err
    said, (warning,) = mixed()
    assert f"{ONE}: runs/a; {OTHER}: runs/b" in said.out
    assert (warning["kind"], warning["runs"]) == ("mixed_targets", {ONE: ["a"], OTHER: ["b"]})
    (row,) = table_of("out/table.csv")
    assert (row["n_seeds"], row["mixed"]) == ("2", "targets")
    assert "| mixed |" in Path("out/table.md").read_text()
    assert "mixed" in Path("out/table.tex").read_text()
    assert {r["run_id"]: r["origin.targets"] for r in table_of("out/results.csv")} == {"a": ONE, "b": OTHER}


@pytest.mark.parametrize(
    "apart", [{"local_steps": 1}, {"eps_target": 1.0, "eps": 1.0}, {"clients": 4}, {"status": "diverged"}]
)
def test_nor_compared_in_one_table(apart: dict[str, Any]) -> None:
    finish("a", **origin())
    finish("b", **origin(targets=OTHER), **apart)
    assert "origin.targets" in refused()


def test_pictures_of_mixed_runs_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    titles: dict[str, str] = {}
    monkeypatch.setattr(
        pictures, "u_curves", lambda points, target, title, note, *_: titles.update({target.name: note})
    )
    for steps in (1, 2):
        finish(f"a{steps}", local_steps=steps, **origin(targets=str(steps) * 16))
        finish(f"b{steps}", local_steps=steps, dataset="mnist", **origin(package=str(steps) * 16))
    assert call("collect", "runs", "--mixed").code == 0
    assert titles["u_curves_digits"].endswith("Runs of different code or data.")
    assert "Runs of different" not in titles["u_curves_mnist"]


def test_other_algorithms_models_data_sets_and_partitions_have_other_hashes() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"algo": "dp_scaffnew"},
        {"model": "mlp"},
        {"dataset": "mnist"},
        {"partition": {"name": "iid"}},
    ]
    changes.append({"dataset": "mnist", "subset": "subset 10 of 20"})
    for number, change in enumerate(changes):
        finish(f"r{number}", **origin(targets=str(number) * 16, data=str(number) * 16), **change)
    assert call("collect", "runs").code == 0


def test_one_algorithm_under_two_names_is_one_code() -> None:
    """dp_fedavg's gap is to fedavg, of the same module: an edit between the two is a difference
    that privacy did not make.
    """
    finish("a", **origin(), **config(algo_name="dp_fedavg"))
    free("b", algo="fedavg", **origin(targets=OTHER), **config(algo_name="fedavg"))
    assert "runs of the same targets: different code" in refused()
    finish("b", algo="other", **origin(targets=OTHER), **config(algo__target_="m.Other"))
    assert call("collect", "runs").code == 0


def test_an_algorithm_that_another_is_put_over_is_a_target_too() -> None:
    work = {"_target_": "m.A", "name": "x"}
    finish("a", **origin(), **config(algo_work=work))
    finish("b", algo="other", **origin(targets=OTHER), **config(algo_work={**work, "_target_": "m.B"}))
    assert call("collect", "runs").code == 0
    finish("c", algo="third", **origin(targets="3" * 16), **config(algo_work=work))
    assert "runs of the same targets" in refused()


def test_other_records_under_the_same_settings() -> None:
    """A file that changed, or root=A and root=B: the run id is the same for both roots."""
    finish("a", point_id="p", seeds=[0], **origin(), **config(dataset_root="A"))
    finish("b", point_id="p", seeds=[1], **origin(data=OTHER), **config(dataset_root="B"))
    assert "dataset digits, same settings: different data (origin.data), " in refused()
    said, (warning,) = mixed()
    assert warning["kind"] == "mixed_data"
    assert table_of("out/table.csv")[0]["mixed"] == "data"
    assert "different data (origin.data)" in said.out


@pytest.mark.parametrize(
    ("loader", "change", "code"),
    [
        (
            "dpfl_bench.data.digits.load",
            {"dataset_seed": 1},
            2,
        ),  # the seed only splits what the loader returns
        ("dpfl_bench.data.digits.load", {"dataset_test_fraction": 0.5}, 2),
        ("dpfl_bench.data.digits.load", {"dataset_unit_norm": False}, 2),
        ("dpfl_bench.data.synthetic.linear", {"dataset_seed": 1}, 0),  # the seed makes the records
        ("dpfl_bench.data.synthetic.linear", {"dataset_dimension": 9}, 0),
        ("dpfl_bench.data.synthetic.linear", {"dataset_test_fraction": 0.5}, 2),
        ("dpfl_bench.data.femnist.load", {"dataset_seed": 1}, 2),  # draws some of the same files' records
        ("mine.load", {"dataset_seed": 1}, 0),  # nobody knows
        ("mine.load", {"dataset_test_fraction": 0.5}, 0),
        ("mine.load", {}, 2),
    ],
)
def test_like_data_are_compared_with_like(loader: str, change: dict[str, Any], code: int) -> None:
    finish(
        "a",
        **origin(),
        **config(dataset__target_=loader, dataset_seed=0, dataset_test_fraction=0.2, dataset_unit_norm=True),
    )
    more = {"dataset_seed": 0, "dataset_test_fraction": 0.2, "dataset_unit_norm": True, **change}
    finish("b", **origin(data=OTHER), **config(dataset__target_=loader, **more))
    assert call("collect", "runs").code == code


@pytest.mark.parametrize("path", sorted((CONF / "dataset").glob("[!_]*.yaml")), ids=lambda path: path.stem)
def test_what_our_loaders_look_at(path: Path) -> None:
    """None of the keys that prepare; and what is made of the seed alone has no files."""
    target = yaml.safe_load(path.read_text())["_target_"]
    module, _, function = target.rpartition(".")
    asked = set(inspect.signature(getattr(import_module(module), function)).parameters)
    generated = import_module(module).SOURCE.generated
    assert not {f"dataset.{key}" for key in asked} & columns.PREPARING
    assert ("seed" in asked and "root" not in asked) == generated


def test_where_only_the_rest_of_the_package_differs_it_is_said() -> None:
    for name, package in (("a", ONE), ("b", ONE), ("c", OTHER)):
        finish(name, local_steps=ord(name), **origin(package=package))
    said = call("collect", "runs", "--to", "out")
    assert said.code == 0
    line = (
        f"these runs: different states of dpfl-bench's code (origin.package), {ONE}: runs/a, runs/b; {OTHER}:"
        " runs/c"
    )
    assert line in said.out.splitlines()
    assert line.replace("_", "\\_").split("(")[0] in Path("out/table.md").read_text()
    assert "| mixed |" not in said.out, "a column is for what is not to be mixed"
    assert "different states" in Path("out/table.tex").read_text()


def test_runs_of_before_that_tell_no_origin_are_said() -> None:
    finish("a", **origin())
    assert "do not tell by which code" not in call("collect", "runs").out
    finish("b", local_steps=1)
    finish("c", local_steps=2, origin={"targets": ONE, "package": None})
    finish("d", local_steps=3, origin="nonsense")
    said = call("collect", "runs", "--json").json["warnings"]
    assert [(w["runs"], w["says"]) for w in said if w["kind"] == "no_origin"] == [
        (
            ["b", "c", "d"],
            "3 of 4 runs do not tell by which code and on which data they were computed (b, ...).",
        )
    ]


def test_many_folders_are_not_all_named() -> None:
    for number in range(9):
        finish(f"r{number}", local_steps=number + 1, **origin(targets=ONE if number else OTHER))
    err = refused()
    assert f"{ONE}: runs/r1, runs/r2, runs/r3 and 5 more" in err
    assert len(err) < 400


def test_what_force_kept_aside_is_not_the_answer() -> None:
    """It has the new run's id, and its name comes later."""
    finish("a", test_error_mean=0.1, **origin())
    shutil.copytree("runs/a", "runs/a.old-1")
    shutil.copytree("runs/a", "runs/a.old-12")
    finish("a", test_error_mean=0.4, **origin(targets=OTHER))
    made = collect(["runs"], "out")
    assert [(row["run_ids"], row["test_error_mean"]) for row in made.table.rows] == [(["a"], 0.4)]
    assert made.runs == 1
    shutil.rmtree("runs/a")
    finish("b", "runs/a.old-house", test_error_mean=0.5)
    assert [row["run_ids"] for row in collect(["runs"], "out").table.rows] == [["b"]]
    assert collect(["runs/a.old-1"], "out").table.rows[0]["test_error_mean"] == 0.1


def test_a_run_that_was_cut_off_is_not_answered_by_what_it_replaces() -> None:
    finish("a", **origin())
    Path("runs/a").rename("runs/a.old-1")
    Path("runs/a/.hydra").mkdir(parents=True)
    made = collect(["runs"], "out")
    assert (made.unfinished, made.table.rows) == (["a"], [])


def test_two_folders_of_one_run_that_differ_are_told() -> None:
    finish("a", "one", test_error_mean=0.1, seconds=1.0, **origin())
    finish("a", "two", test_error_mean=0.1, seconds=9.0, **origin())
    assert "two folders" not in call("collect", "one", "two", "--to", "out").out
    finish("a", "two", test_error_mean=0.2, **origin())
    said = call("collect", "one", "two", "--to", "out").out
    assert "Run a has two folders that tell different results, one/a and two/a, which was taken." in said
    finish("a", "two", test_error_mean=0.2, **origin(targets=OTHER))
    assert call("collect", "one", "two", "--to", "out").code == 2, "which of the two is the answer?"
    assert call("collect", "one", "two", "--to", "out", "--mixed").code == 0


@pytest.mark.slow
def test_hashes_in_a_result_are_not_trusted_to_be_hashes() -> None:
    finish("a", **origin(), origin_is="fine")
    for strange in ([], {"targets": []}, {"targets": 5, "data": {"x": 1}}, None):
        path = finish("b", local_steps=1)
        result = json.loads((path / "result.json").read_text())
        (path / "result.json").write_text(json.dumps({**result, "origin": strange}))
        assert call("collect", "runs").code == 0
