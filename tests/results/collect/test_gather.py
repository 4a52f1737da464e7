"""`collect`: which runs count, what is missing, results.csv."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.collected import finish, parsed, table_of, unfinished
from helpers.command import QUICK, call

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results import sweeps
from dpfl_bench.results.collect import folders
from dpfl_bench.results.collect.gather import collect
from dpfl_bench.results.collect.tables import TUNING
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.lock import locked

pytestmark = pytest.mark.usefixtures("hollow_pictures")

INF = float("inf")


def test_everything_is_written_with_the_sentence_on_tuning() -> None:
    finish("a", local_steps=1, rounds=100)
    finish("b", local_steps=5, rounds=20, test_error_mean=0.25)
    said = call("collect", "runs", "--to", "out/of/here")
    assert said.code == 0
    assert TUNING in said.out
    assert (
        said.out.splitlines()[-1]
        == "2 runs; results.csv, times.csv, table.md, table.csv, table.tex, figures.tex and plots in"
        " out/of/here"
    )
    assert sorted(os.listdir("out/of/here")) == [
        "figures.tex",
        "results.csv",
        "table.csv",
        "table.md",
        "table.tex",
        "times.csv",
        "u_curves_digits.pdf",
        "u_curves_digits.png",
        "u_curves_digits.svg",
    ]
    assert TUNING in Path("out/of/here/table.md").read_text()
    assert TUNING in Path("out/of/here/table.tex").read_text()


def test_json_keeps_its_keys() -> None:
    finish("a")
    unfinished("b", "failed")
    finish("c", results_version=-1)
    made = call("collect", "runs", "--json").json
    assert {"table", "runs", "unfinished", "outdated", "note"} < set(made)
    assert (made["runs"], made["unfinished"], made["outdated"], made["note"]) == (3, ["b"], 1, TUNING)
    assert (made["states"], made["missing"]) == ({"done": 1, "failed": 1}, 0)
    assert made["left_out"] == {folders.OUTDATED: 1}
    columns = (
        "dataset setting algo guarantee budget eps_target local_steps rounds clip lr test_error_mean"
        " test_error_std eps gap"
    )
    assert set(columns.split()) < set(made["table"][0])
    assert made["table"][0]["gap"] is None


def test_a_half_finished_sweep_counts_what_there_is() -> None:
    finish("a")
    unfinished("b", "running")  # and its process is gone
    unfinished("c", "failed")
    unfinished("d", "interrupted")
    finish("e", status="diverged", test_error_mean=None)
    Path("runs/empty").mkdir()
    Path("runs/f/.hydra").mkdir(parents=True)
    with locked(Path("runs/g")):
        (Path("runs/g/.hydra")).mkdir()
        made = collect(["runs"], "out")
    assert made.unfinished == ["b", "c", "d", "f", "g"]
    assert made.states == {
        "done": 1,
        "died": 1,
        "failed": 1,
        "interrupted": 1,
        "diverged": 1,
        "missing": 1,
        "running": 1,
    }
    assert (
        "unfinished: 5 (1 died, 1 failed, 1 interrupted, 1 missing, 1 running): b, c, d, f, g\n"
        in made.text()
    )
    assert [row["run_id"] for row in table_of("out/results.csv")] == ["a", "e"]


def test_what_a_sweep_lacks_is_told_with_its_command() -> None:
    points = {Path("outputs/runs") / name: (f"eps={n}",) for n, name in enumerate("abcd")}
    sweep = sweeps.record("outputs", "dpfl-bench run -m eps=0,1,2,3", points)
    finish("a", "outputs/runs")
    unfinished("b", "failed", "outputs/runs")
    finish("other", "outputs/runs", test_error_mean=0.1)
    for folder in ("outputs", "outputs/runs"):
        made = call("collect", folder, "--to", "out")
        line = (
            f"missing: 2 of 4 points of {sweep.path} have no run folder; to finish: dpfl-bench run -m"
            " eps=0,1,2,3"
        )
        assert line in made.out.splitlines()
        assert call("collect", folder, "--to", "out", "--json").json["missing"] == 2
    of_sweep = call("collect", str(sweep.path), "--to", "out", "--json").json
    assert (of_sweep["runs"], of_sweep["missing"]) == (2, 2)
    assert of_sweep["table"][0]["run_ids"] == ["a"], "not what another sweep found"
    (sweep.path / "sweep.json").write_text('{"points": [')
    made = call("collect", "outputs/runs", "--to", "out")
    assert made.code == 0
    assert "left out: 1 folders with a sweep.json that cannot be read" in made.out


def test_nothing_but_a_sweep_that_has_not_begun() -> None:
    sweeps.record("outputs", "dpfl-bench run -m eps=1,2", {Path("outputs/runs/a"): ("eps=1",)})
    made = call("collect", "outputs")
    assert made.code == 0
    assert "missing: 1 of 1 points" in made.out
    assert "0 runs; none is finished, so nothing is written" in made.out


def test_a_run_that_is_finished_somewhere_is_finished() -> None:
    """Also where a copy of it has another name."""
    finish("a", "one/runs")
    unfinished("a", "interrupted", "two/runs")
    shutil.copytree("one/runs/a", "three/backup of a")
    for given in (["one", "two", "three"], ["three", "two", "one"], ["two", "one", "one/runs"]):
        made = collect(given, "out")
        assert (made.runs, made.unfinished) == (1, [])
        assert len(table_of("out/results.csv")) == 1


def test_nothing_finished_and_nothing_but_divergence() -> None:
    unfinished("a", "failed")
    assert collect(["runs"], "out").unfinished == ["a"]
    assert os.listdir("out") == []
    finish("b", status="diverged", test_error_mean=None)
    made = collect(["runs"], "out")
    assert made.table.rows == []
    assert "unfinished: 1 (1 failed): a" in made.text()
    assert "| data set | algorithm |" in Path("out/table.md").read_text()
    assert len(table_of("out/results.csv")) == 1


def test_where_the_files_go() -> None:
    finish("a", "outputs/runs")
    sweep = sweeps.record("outputs", "dpfl-bench run", {Path("outputs/runs/a"): ()})
    assert collect(["outputs/runs"], None).folder == Path("outputs")
    assert collect([str(sweep.path)], None).folder == sweep.path
    assert (sweep.path / "table.md").exists()
    Path("file").touch()
    for way in ("file", "file/deeper"):
        said = call("collect", "outputs/runs", "--to", way)
        assert said.code == 2
        assert said.err.startswith(f"dpfl-bench: {way}: expected a folder that can be written")


def test_folders_that_are_not_there() -> None:
    Path("empty").mkdir()
    for given in (["nowhere"], ["empty"], ["empty", "nowhere"]):
        with pytest.raises(ConfigError, match="expected folders with runs"):
            collect(given, None)


def _write(name: str, content: str | bytes) -> Callable[[Path], object]:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda run: (run / name).write_bytes(data)


def _change(**fields: object) -> Callable[[Path], object]:
    return lambda run: (run / "result.json").write_text(
        json.dumps({**parsed((run / "result.json").read_text()), **fields})
    )


def _no_result(then: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda run: ((run / "result.json").unlink(), then(run))


def _folder(run: Path) -> None:
    (run / "result.json").unlink()
    (run / "result.json").mkdir()


UNREADABLE, FOREIGN = "result.json cannot be read", "result.json is not one of this program's"
SPOILT = {
    "an empty result": (_write("result.json", ""), UNREADABLE),
    "half a result": (_write("result.json", '{"run_id": "x", "eps'), UNREADABLE),
    "a binary result": (_write("result.json", b"\xff\xfe\x00"), UNREADABLE),
    "a folder for a result": (_folder, UNREADABLE),
    "a list for a result": (_write("result.json", "[1, 2]"), FOREIGN),
    "an empty object": (_write("result.json", "{}"), FOREIGN),
    "eps as a word": (_change(eps_target="two"), FOREIGN),
    "an error as a word": (_change(test_error_mean="low"), FOREIGN),
    "eps that is no number": (_change(eps=float("nan")), FOREIGN),
    "a delta that is none": (_change(delta=float("nan")), FOREIGN),
    "before versions were told": (_change(results_version=None), folders.OUTDATED),
    "no local steps": (_change(local_steps=None), FOREIGN),
    "seeds as a number": (_change(seeds=3), FOREIGN),
    "seeds as words": (_change(seeds=["a", 1]), FOREIGN),
    "the future": (_change(results_version=10**6, local_steps=3), folders.OUTDATED),
    "an empty status": (_no_result(_write("status.json", "")), "status.json cannot be read"),
    "a list for a status": (_no_result(_write("status.json", "[]")), "status.json cannot be read"),
    "a status without a word": (_no_result(_write("status.json", "{}")), "status.json cannot be read"),
    "a binary status": (_no_result(_write("status.json", b"\x80")), "status.json cannot be read"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_folder_is_left_out_and_told(how: str) -> None:
    finish("good", test_error_mean=0.3)
    spoil, why = SPOILT[how]
    spoil(finish("spoilt"))
    made = call("collect", "runs", "--to", "out")
    assert made.code == 0, made.err
    assert f"left out: 1 ({why})" in made.out.splitlines()
    assert [row["run_id"] for row in table_of("out/results.csv")] == ["good"]
    assert call("collect", "runs", "--to", "out", "--json").json["left_out"] == {why: 1}


@pytest.mark.parametrize("name", [".hydra/config.yaml", ".hydra/overrides.yaml"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\x00\n\x80",
        b"a\nb: {\n  - c: [",
        b"- \n  : \n\t- =\n",
        b"x: &a *b\ny: !!python/object:os.system\n",
    ],
)
def test_spoilt_settings_leave_the_result(name: str, content: bytes) -> None:
    (finish("a") / name).write_bytes(content)
    finish("b", eps_target=1.0, eps=1.0)
    made = call("collect", "runs", "--to", "out", "--tuning-eps")
    assert made.code == 0, made.err
    assert [row["run_id"] for row in table_of("out/results.csv")] == ["a", "b"]


def test_a_folder_of_another_program_is_no_run() -> None:
    finish("a")
    for name in ("runs/notes/x.txt", "runs/more/deep/metrics.json", "runs/a/checkpoint/status.json"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("{}")
    Path("runs/loop").symlink_to(Path.cwd())
    assert collect(["runs"], "out").runs == 1


def test_numbers_come_back_bit_for_bit() -> None:
    numbers = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, 0.30000000000000004, 1e22, 123456789.12345679]
    for n, number in enumerate(numbers):
        finish(f"r{n}", test_error_mean=number, test_error_std=number, lr=number)
    collect(["runs"], "out")
    found = {row["run_id"]: row for row in table_of("out/results.csv")}
    for n, number in enumerate(numbers):
        for key in ("test_error_mean", "test_error_std", "lr"):
            assert struct.pack("d", float(found[f"r{n}"][key])) == struct.pack("d", number)
    assert {row["rounds"] for row in found.values()} == {"20"}, "whole numbers stay whole"


def test_equal_runs_give_equal_files_whatever_the_order_and_the_time() -> None:
    for where, names in (("one", "abc"), ("two", "cba")):
        for name in names:
            finish(name, f"{where}/runs", local_steps=ord(name) - 96, seconds=float(len(where)) / ord(name))
            finish(f"{name}1", f"{where}/runs", local_steps=ord(name) - 96, eps_target=1.0, eps=1.0)
        collect([where], f"{where}/out")
    for name in ("results.csv", "table.csv", "table.md", "table.tex"):
        assert (Path("one/out") / name).read_bytes() == (Path("two/out") / name).read_bytes()


@pytest.mark.slow
def test_a_real_sweep_over_seeds_is_that_with_repeats() -> None:
    """Seeds as runs of their own, or repeats of one run: the same point, mean and standard
    deviation; a column for what was swept.
    """
    sweep = (
        "run",
        "-m",
        "algo=dp_fedavg",
        "privacy.clip=0.1,1",
        "total_steps=8",
        "local_steps=2,4",
        "eps=2",
        *QUICK,
    )
    assert call(*sweep, "repeats=3", "seed=5", "outputs=repeats").code == 0
    assert call(*sweep, "seed=5,6,7", "outputs=seeds").code == 0
    repeats, seeds = (call("collect", f"{way}/runs", "--json").json for way in ("repeats", "seeds"))
    (one,), (other,) = repeats["table"], seeds["table"]
    assert (repeats["runs"], seeds["runs"]) == (4, 12)
    assert (one["n_seeds"], other["n_seeds"], one["points"], other["points"]) == (3, 3, 4, 4)
    assert (len(one["run_ids"]), len(other["run_ids"])) == (1, 3)
    for key in ("local_steps", "rounds", "total_steps", "clip", "lr"):
        assert one[key] == other[key]
    for key in ("test_error_mean", "test_error_std"):
        assert other[key] == pytest.approx(one[key], rel=1e-12)
    rows = table_of("seeds/results.csv")
    assert {(row["seed"], row["privacy.clip"], row["local_steps"]) for row in rows} == {
        (seed, clip, steps) for seed in "567" for clip in ("0.1", "1") for steps in "24"
    }
    assert "seconds" not in rows[0]
    for folder in Path(
        "seeds/runs"
    ).iterdir():  # the table is of the files: one run taken away is one seed less
        if parsed((folder / "result.json").read_text())["run_id"] in other["run_ids"]:
            shutil.rmtree(folder)
            break
    assert RunFolder(folder).finished is None
    assert call("collect", "seeds/runs", "--json").json["missing"] == 1
