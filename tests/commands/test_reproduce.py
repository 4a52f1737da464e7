"""`reproduce` end to end, on an artefact of one's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.artefacts import content, verdict_of, write
from helpers.command import Said, call
from oracles import rederived

from dpfl_bench.algorithms.fedavg import FedAvg
from dpfl_bench.papers import overview


def reproduce(*words: str, which: str = "own/fig9") -> Said:
    return call("reproduce", which, "-cd", "mine", *words)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, calibrations: Path) -> Path:
    """A folder with the artefact, reproduced once."""
    home = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPFL_CACHE_DIR", str(calibrations))
        patch.chdir(home)
        write(content())
        said = reproduce()
        assert said.code == 0, said.err
        assert said.out == "outputs/papers/own/fig9\n"
    return home


@pytest.fixture
def again(done: Path, tmp_path: Path) -> Path:
    """The same once more, for a test to change. Returns the artefact's folder."""
    shutil.copytree(done, tmp_path, dirs_exist_ok=True)
    return Path("outputs/papers/own/fig9")


@pytest.mark.slow
def test_folder_files_and_the_verdicts_keys(again: Path) -> None:
    pictures = {f"{name}.{kind}" for name in ("curve", "tuned") for kind in ("pdf", "svg", "png")}
    files = pictures | {"table.csv", "table.md", "table.tex", "data.csv", "claims.csv", "verdict.json"}
    assert {file.name for file in again.iterdir() if file.is_file()} == files
    assert bytes_of(again / "smoke-paper") == {name: (again / name).read_bytes() for name in files}
    record = verdict_of(again)
    assert record.keys() >= {
        "artefact",
        "scale",
        "reading",
        "claims",
        "printed",
        "eps",
        "reduced",
        "commands",
    }
    for claim in record["claims"]:
        assert claim.keys() >= {"id", "says", "verdict", "evidence", "test", "cells"}
    text, tests = (again / "claims.csv").read_text(), {each["id"]: each["test"] for each in record["claims"]}
    derived = {each["id"]: (each["verdict"], each["cells"]) for each in record["claims"] if each["cells"]}
    assert rederived.verdicts(text, tests) == derived
    assert derived.keys() == {"falls", "plans"}
    assert [made["machine"]["threads"] for made in record["made"]] == [1, None], "the runs, and the plans"
    assert record["unfinished"] == 0
    for printed in record["printed"]:
        assert printed.keys() >= {"what", "place", "printed", "ours", "interval", "match"}
    assert {claim["id"]: claim["verdict"] for claim in record["claims"]} | {"falls": ""} == {
        "falls": "",
        "plans": "holds",
        "later": "cannot be tested at this scale",
    }
    assert [printed["match"] for printed in record["printed"]] == ["exact", "exact", "differs"]
    assert record["eps"]["nominal"] == 3
    assert record["eps"]["valid"] == pytest.approx([1, 4], rel=1e-3)
    assert len(record["runs"]) == len(set(record["runs"])) == 8
    assert len((again / "data.csv").read_text().splitlines()) == 1 + 4 * 4 + 2 * 2 + 4  # with the table
    stage = record["commands"][-1]
    assert "points=[{algo:dp_fedavg,local_steps:" in stage
    assert stage.endswith("-cd mine")


@pytest.mark.slow
def test_the_commands_are_those_that_ran(again: Path) -> None:
    """Typed by a user, they find every run finished."""
    import shlex

    for line in verdict_of(again)["commands"]:
        words = shlex.split(line)[1:]
        said = call(*words, *(["--dry-run"] if words[0] in ("run", "reproduce") else ["--json"]))
        assert said.code == 0, said.err
        if words[0] == "run":
            assert "4 jobs, 4 finished, 0 to run" in said.out


@pytest.mark.slow
@pytest.mark.parametrize("flag", [(), ("--plot-only",)])
def test_a_second_time_is_the_same_to_the_byte(again: Path, flag: tuple[str, ...]) -> None:
    before, runs = bytes_of(again), bytes_of(Path("outputs/papers/runs"))
    shutil.rmtree(again)
    said = reproduce(*flag)
    assert said.code == 0, said.err
    after = bytes_of(again)
    for record in (before, after):  # it says how it was called last
        record["verdict.json"] = record["smoke-paper/verdict.json"] = b""
    assert after == before
    assert bytes_of(Path("outputs/papers/runs")) == runs


def test_a_dry_run_writes_nothing() -> None:
    write(content())
    said = reproduce("--dry-run")
    assert said.code == 0
    assert said.err == ""
    assert "own/fig9 scale=smoke reading=paper: 4 jobs, 0 finished" in said.out
    assert "then second at the best of these" in said.out
    assert not Path("outputs").exists()


def test_a_dry_run_of_several_counts_a_shared_run_once() -> None:
    """Its time, too: 4 min and 4 min of the same runs are 4 min."""
    for name in ("fig9", "fig10"):
        write(content(cost={"smoke": "4 min"}), name=name)
    said = reproduce("--dry-run", which="own")
    assert said.code == 0, said.err
    assert said.out.count(": 4 jobs, 0 finished") == 2
    assert said.out.splitlines()[-1] == "in all 4 jobs, 0 finished: about 4 min on 2 cores, by their files"


def test_plot_only_runs_nothing_and_decides_nothing() -> None:
    write(content())
    said = reproduce("--plot-only")
    assert said.code == 1
    record = verdict_of(Path("outputs/papers/own/fig9"))
    found = {claim["id"]: claim["verdict"] for claim in record["claims"]}
    assert found == {"falls": "undecided", "plans": "holds", "later": "cannot be tested at this scale"}
    assert "4 of 4 runs are not finished" in record["claims"][0]["evidence"]
    assert not Path("outputs/papers/runs").exists()


@pytest.mark.slow
def test_a_later_sweep_waits_for_the_whole_of_the_earlier_one(again: Path) -> None:
    """The best of what happens to be there is not the best."""
    shutil.rmtree(verdict_of(again)["runs"][0])
    said = reproduce("--plot-only")
    assert said.code == 1
    record = verdict_of(again)
    assert record["claims"][0]["verdict"] == "undecided"
    assert record["lacks"]["second"] == "1 of 4 runs are not finished"
    assert len(record["runs"]) == 3
    assert not list(again.glob("tuned.*"))


@pytest.mark.slow
def test_it_goes_on_where_it_was_cut_off(again: Path) -> None:
    """One run is gone, one has no result yet, and the last picture was never drawn."""
    before, (gone, cut, *_) = bytes_of(again), verdict_of(again)["runs"]
    shutil.rmtree(gone)
    Path(cut, "result.json").unlink()
    Path(cut, "status.json").unlink()
    shutil.rmtree(again)
    said = reproduce()
    assert said.code == 0, said.err
    after = bytes_of(again)
    for name in ("data.csv", "table.csv", "curve.pdf", "tuned.svg", "tuned.png"):
        assert after[name] == before[name]


@pytest.mark.slow
def test_a_flipped_print_is_seen(again: Path) -> None:
    record = content()
    record["printed"][0]["cells"] = {1: 8, 4: 7.4}
    ours = verdict_of(again)["printed"][2]["ours"]
    record["printed"][1]["cells"] = {"dp_fedavg": {1: round(ours), 4: 1e6}}
    write(record)
    said = reproduce("--plot-only")
    assert said.code == 0, said.err
    found = [(each["match"], each["why"]) for each in verdict_of(again)["printed"]]
    assert [match for match, _ in found] == ["differs", "exact", "within", "differs"]
    assert found[0][1] == "by -1"
    assert "printed 1e+06: differs" in (again / "table.md").read_text()


# --- a broken algorithm ---

SMALL: dict[str, Any] = {
    "sweeps": {
        "main": {
            "set": {"dataset": "breast_cancer", "algo": "dp_fedavg", "eps": "inf", "clients": 4},
            "over": {"rounds": [1, 4, 8]},
            "points": [{"local_steps": 2, "repeats": 3, "device": "cpu"}],
        }
    },
    "figures": {"figure": {"x": "rounds", "y": "train_loss"}},
    "claims": [
        {
            **{"id": "falls", "says": "it learns", "kind": "falls", "y": "train_loss"},
            **{"along": "rounds", "scales": ["smoke"]},
        }
    ],
}
OWN = """
from dataclasses import dataclass
from dpfl_bench.algorithms.fedavg import FedAvg
from dpfl_bench.papers import overview

@dataclass(frozen=True)
class Uphill(FedAvg):
    def client(self, server, memory, local):
        return -super().client(server, memory, local)
"""


def figure_and_verdict(outputs: str, *words: str) -> tuple[str, str]:
    said = reproduce(f"outputs={outputs}", *words, which="own/small")
    assert said.code == 0, said.err
    folder = Path(outputs, "papers/own/small")
    return (folder / "data.csv").read_text(), verdict_of(folder)["claims"][0]["verdict"]


def an_algorithm_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("code").mkdir()
    Path("code/uphill_algorithm.py").write_text(OWN)
    monkeypatch.syspath_prepend("code")
    Path("mine/algo").mkdir()
    keys = "{_target_: uphill_algorithm.Uphill, name: dp_fedavg, private: true}"
    Path("mine/algo/dp_fedavg.yaml").write_text(f"# @package _global_\nalgo: {keys}\n")


def a_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    right = FedAvg.client
    monkeypatch.setattr(FedAvg, "client", lambda *arguments: -right(*arguments))


@pytest.mark.slow
@pytest.mark.parametrize("broken", [an_algorithm_of_ones_own, a_patch])
def test_a_broken_algorithm_changes_figure_and_verdict(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(SMALL, name="small")
    right = figure_and_verdict("right")
    assert right[1] == "holds"
    broken(monkeypatch)
    wrong = figure_and_verdict("wrong")
    assert wrong[1] == "does not hold"
    assert wrong[0] != right[0]


@pytest.mark.slow
def test_what_the_runs_do_not_have_stops_no_other_artefact(again: Path) -> None:
    bad = content()
    bad["claims"][0]["y"] = "no_such_column"
    write(bad, name="bad")
    said = call("reproduce", "own", "-cd", "mine", "--plot-only")
    assert said.code == 2
    assert "bad.yaml: no_such_column: expected a column of metrics.csv" in said.err
    assert "Traceback" not in said.err
    assert said.out == f"{again}\n"


@pytest.mark.slow
def test_list_papers(again: Path) -> None:
    shown = call("list", "papers", "-cd", "mine")
    assert shown.code == 0
    assert "own/fig9" in shown.out
    assert "smoke-paper: claims: " in shown.out
    (row,) = [
        row for row in call("list", "papers", "-cd", "mine", "--json").json if row["name"] == "own/fig9"
    ]
    assert (row["line"], row["place"]) == ("Loss against local steps, small", "Figure 9")
    assert "2 exact, 1 differs" in row["reproduced"]["smoke-paper"]
    assert row["committed"] == {}
    assert row["claims"]["smoke-paper"]["plans"]["verdict"] == "holds"


@pytest.mark.slow
def test_list_papers_has_what_is_committed_and_not_made_here(
    again: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(again.parent, "reports/own")
    shutil.move("reports/own/fig9/smoke-paper", "reports/own/fig9/cpu-paper")
    monkeypatch.setattr(overview, "COMMITTED", Path("reports"))
    shown = call("list", "papers", "-cd", "mine")
    assert "    smoke-paper: claims: " in shown.out
    assert "    cpu-paper, committed: claims: " in shown.out
    shutil.copytree("reports/own/fig9/cpu-paper", again / "cpu-paper")
    assert "committed" not in call("list", "papers", "-cd", "mine").out, "one's own comes first"
