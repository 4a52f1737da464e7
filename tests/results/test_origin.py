"""A finished or interrupted run is taken for the answer only where the code and the data that made
it are those of now.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.command import QUICK, Said, call, read
from helpers.forks import Forks

from dpfl_bench.results import code_hashes

pytestmark = pytest.mark.one_in(3)


ALGO = """
from dataclasses import dataclass
from typing import ClassVar
from mine.util import FACTOR
from dpfl_bench.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class Mine(FedAvg):
    remembers: ClassVar[bool] = False

    def client(self, server, memory, local):
        return FACTOR * super().client(server, memory, local)
"""
LOADER = """
import numpy as np
from dpfl_bench.data.records import Records


def load(root, extra=1.0):
    rows = np.loadtxt(root)
    x, y = rows[:, :-1].astype(np.float32) * extra, rows[:, -1].astype(np.int64)
    return Records(x, y, x[:0], y[:0], None, 2, f"mine: {root}", None)
"""
DATASET = """
_target_: mine.loader.load
name: mine
shape: [3]
classes: 2
holds: {tokens: false, natural: none}
records: null
clients: 4
lr: 0.5
test_fraction: 0.2
split: global
standardise: none
unit_norm: true
transform: null
seed: 0
root: null
extra: 1.0
max_row_norm: 1.0
gram: null
"""
SMALL = ("total_steps=4", "local_steps=2", *QUICK)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own package, and a folder of YAML files that name it."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "algo.py").write_text(ALGO)
    (package / "util.py").write_text("FACTOR = 1.0\n")
    (package / "loader.py").write_text(LOADER)
    (package / "unrelated.py").write_text("A = 1\n")
    for group, name, text in (
        (
            "algo",
            "mine",
            (
                "# @package _global_\neps: .inf\nalgo:\n  _target_: mine.algo.Mine\n  name: mine\n  private:"
                " false\n"
            ),
        ),
        ("dataset", "mine", DATASET),
    ):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return package


Run = Callable[..., Said]


@pytest.fixture
def run(server: Forks) -> Run:
    """In a process of its own, as code is read once a process."""
    return lambda *given: server.say("run", "-cd", "conf", *given, *SMALL)


def records(count: int, seed: int = 0, name: str = "records.txt") -> None:
    lines = [f"{(7 * r + seed) % 11} {(3 * r) % 5} {r % 3} {r % 2}" for r in range(count)]
    Path(name).write_text("\n".join(lines) + "\n")


# --- the code ---


@pytest.mark.slow
def test_an_algorithm_that_was_edited_is_asked_about(mine: Path, run: Run) -> None:
    first = run("algo=mine")
    before = {file.name: file.read_bytes() for file in first.folder.iterdir() if file.is_file()}
    assert run("algo=mine").err.startswith("dpfl-bench: already done: ")
    (mine / "unrelated.py").write_text("A = 2\n")
    assert run("algo=mine").code == 0, "nobody imports it"
    (mine / "util.py").write_text("FACTOR = 0.5\n")
    asked = run("algo=mine")
    assert (asked.code, asked.out, asked.err.count("\n")) == (2, "", 1)
    assert (
        asked.err
        == f"dpfl-bench: {first.folder}: computed with other code (mine.util) than are there now; expected"
        f" the same; say --force to compute it anew (this folder is kept as {first.folder.name}.old-N), or"
        " --accept to take the old result\n"
    )
    accepted = run("algo=mine", "--accept")
    assert accepted.out == first.out
    assert "noted in origin.json" in accepted.err
    assert [note["targets"] for note in read(first.folder, "origin.json")["accepted"]] != [
        read(first.folder, "result.json")["origin"]["targets"]
    ]
    taken = run("algo=mine")
    assert taken.code == 0, "under this code it was taken"
    assert taken.err.startswith(f"dpfl-bench: {first.folder}: made with other code or data, accepted at 20")
    (mine / "util.py").write_text("FACTOR = 0.25\n")
    assert run("algo=mine").code == 2, "under this one it was not"
    anew = run("algo=mine", "--force")
    assert anew.folder == first.folder
    kept = first.folder.with_name(f"{first.folder.name}.old-1")
    after = {file.name: file.read_bytes() for file in kept.iterdir() if file.is_file()}
    assert {name: content for name, content in after.items() if name != "origin.json"} == {
        name: content for name, content in before.items() if name != "origin.json"
    }
    assert (anew.folder / "metrics.csv").read_bytes() != before["metrics.csv"]
    assert run("algo=mine").err.startswith("dpfl-bench: already done: ")
    assert run("algo=mine", "--force").code == 0, "who forces a finished run wants it again"
    assert first.folder.with_name(f"{first.folder.name}.old-2").is_dir()


@pytest.mark.slow
def test_a_run_of_ones_own_code_is_replayed(mine: Path, tmp_path: Path, run: Run, server: Forks) -> None:
    records(60)
    folder = run("algo=mine", "dataset=mine", "partition=iid", "dataset.root=records.txt").folder.absolute()
    (tmp_path / "elsewhere").mkdir()
    said = server.say("replay", str(folder), "--check", cwd=tmp_path / "elsewhere")
    assert said.code == 0, said.err
    assert "every number is the same" in said.err
    (mine / "util.py").write_text("FACTOR = 0.5\n")
    said = server.say("replay", str(folder), "--check")
    assert said.code == 1
    assert "the code that it names is other than it was (mine.util)" in said.err


@pytest.mark.slow
def test_folders_that_were_kept_are_no_runs(mine: Path, run: Run) -> None:
    folder = run("algo=mine").folder
    assert run("algo=mine", "--force").code == 0
    assert [run["folder"] for run in call("status", "outputs", "--json").json["runs"]] == [str(folder)]
    collected = call("collect", "outputs/runs", "--json").json
    assert sum(collected["states"].values()) == 1


@pytest.mark.slow
def test_an_edited_algorithm_of_ours_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the rest of the package is not, but it is said."""
    given = ("run", "algo=dp_fedavg", *SMALL)
    first = call(*given)
    fedavg = code_hashes.code(["dpfl_bench.algorithms.fedavg.FedAvg"])["dpfl_bench.algorithms.fedavg"][1]
    read_file = code_hashes._read
    with monkeypatch.context() as edited:
        edited.setattr(
            code_hashes, "_read", lambda file: ("0" * 16, ()) if str(file) == fedavg else read_file(file)
        )
        said = call(*given)
    assert said.code == 2
    assert f"{first.folder}: computed with other code (dpfl_bench.algorithms.fedavg) than" in said.err
    with monkeypatch.context() as edited:
        edited.setattr(code_hashes, "_package", lambda: ("0" * 16, 0))
        said = call(*given)
        sweep = call("run", "-m", *given[1:], "seed=0")
    commit = read(first.folder, "env.json")["commit"]
    assert said.out == first.out
    by = f"computed by commit {commit[:10]}" if commit else "computed by version"
    assert by in said.err.splitlines()[0]
    assert "the rest of dpfl-bench is not: taken" in said.err.splitlines()[0]
    assert "already done" in said.err.splitlines()[1]
    assert by in sweep.err


def test_what_does_not_say_by_what_it_was_computed_is_asked_about() -> None:
    folder = call("run", *SMALL).folder
    result = read(folder, "result.json")
    del result["origin"]
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "origin.json").unlink()
    said = call("run", *SMALL)
    assert said.code == 2
    assert "other code (it is not known by which) and other data (it is not known by which)" in said.err


@pytest.mark.slow
def test_a_sweep_asks_before_its_first_job(mine: Path, run: Run) -> None:
    sweep = ("-m", "algo=mine,fedavg", "seed=0,1")
    assert run(*sweep).code == 0
    (mine / "util.py").write_text("FACTOR = 0.5\n")
    asked = run(*sweep, "lr=1,2")  # new points, which would begin at once
    assert asked.code == 0, "those are other runs"
    asked = run("-m", "algo=mine,fedavg", "seed=0,1,2")
    assert (asked.code, asked.out) == (2, "")
    assert [line.split(" (")[1].split(")")[0] for line in asked.err.splitlines()] == ["mine.util"] * 2
    assert len(list(Path("outputs/runs").iterdir())) == 12, "nothing was begun"
    dry = run("-m", "algo=mine,fedavg", "seed=0,1,2", "--force", "--dry-run")
    assert [line.split()[1] for line in dry.out.splitlines()[:-1]] == [
        "new",
        "new",
        "new",
        "done",
        "done",
        "new",
    ]
    forced = run(
        "-m", "algo=mine,fedavg", "seed=0,1,2", "--force", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"
    )
    assert forced.code == 0, forced.err
    assert "6 of 6 jobs done" in forced.err
    assert len(list(Path("outputs/runs").glob("*.old-1"))) == 2, "what is as it was is left alone"
    (mine / "util.py").write_text("FACTOR = 0.25\n")
    assert run("-m", "algo=mine", "seed=0,1", "--accept").code == 0
    assert run("-m", "algo=mine", "seed=0,1").code == 0
    (sweeps,) = {
        file.parent
        for file in Path("outputs/sweeps").glob("*/sweep.json")
        if len(read(file.parent, "sweep.json")["points"]) == 6
    }
    assert "--force" not in read(sweeps, "sweep.json")["command"], (
        "finishing it forces nothing that changes later"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    ["[]", "{", '{"accepted": 3, "code": [], "contents": {"a": []}}', '{"accepted": [7], "code": {"a": 1}}'],
)
def test_a_rotten_origin_spoils_nothing(content: str) -> None:
    """What counts stands in result.json; this one only names what differs."""
    folder = call("run", *SMALL).folder
    (folder / "origin.json").write_text(content)
    assert call("run", *SMALL).code == 0
    result = read(folder, "result.json")
    (folder / "result.json").write_text(
        json.dumps({**result, "origin": {**result["origin"], "targets": "0" * 16}})
    )
    assert call("run", *SMALL).code == 2
    assert call("run", *SMALL, "--accept").code == 0
    assert call("run", *SMALL).code == 0


def test_both_ways_at_once() -> None:
    said = call("run", "--force", "--accept", *SMALL)
    assert (said.code, said.err.count("\n")) == (2, 1)


# --- a user's own data ---


@pytest.mark.slow
def test_a_users_own_data_that_changed_are_asked_about(mine: Path, run: Run) -> None:
    records(60)
    given = ("dataset=mine", "partition=iid", "algo=fedavg", "dataset.root=records.txt")
    first = run(*given)
    assert read(first.folder, "result.json")["origin"]["data"]
    assert run(*given).err.startswith("dpfl-bench: already done: ")
    records(45)
    asked = run(*given)
    assert asked.code == 2
    assert "other data (train_x, train_y)" in asked.err
    records(60, seed=1)
    assert "other data (train_x)" in run(*given).err
    assert run("-m", *given, "seed=0,1").code == 2
    records(60)
    assert run(*given).code == 0
    Path("records.txt").unlink()
    gone = run(*given)
    assert gone.out == first.out
    assert "the data are not here, so that nobody compared them: taken" in gone.err


@pytest.mark.slow
def test_a_dry_run_calls_no_loader_of_the_users(mine: Path, run: Run) -> None:
    records(60)
    given = ("dataset=mine", "partition=iid", "algo=fedavg", "dataset.root=records.txt")
    assert run(*given).code == 0
    (mine / "loader.py").write_text(LOADER.replace("    rows =", "    open('called', 'w')\n    rows ="))
    assert run("-m", *given, "--dry-run").code == 2, "the code has changed"
    assert not Path("called").exists()


@pytest.mark.parametrize(
    "key",
    [
        "root=other.txt",
        "extra=2.0",
        "gram=1.0",
        "max_row_norm=2.0",
        "lr=2.0",
        "records=9",
        "holds={tokens:false,natural:files}",
    ],
)
def test_every_key_of_a_users_own_loader_is_in_the_id(
    mine: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(mine.parent))
    ids = [
        _settings("dataset=mine", "algo=fedavg", "partition=iid", "lr=1", "clients=4", *more).run_id
        for more in ([], [f"dataset.{key}"])
    ]
    assert ids[0] != ids[1]


def _settings(*given: str) -> Any:
    from dpfl_bench.config import compose, validate

    return validate.settings(compose.composed(given, "conf"))


# --- where our data sets lie ---


@pytest.fixture
def roots() -> None:
    """A and C hold the same, B holds other records."""
    for number, root in enumerate("ABC"):
        folder = Path(root, "libsvm")
        folder.mkdir(parents=True)
        lines = [f"{1 + r % 2} 1:{(r * 7 + number % 2) % 13} 2:{r % 5} 3:{r % 3}" for r in range(60)]
        (folder / "mine").write_text("\n".join(lines) + "\n")


FILES = ("dataset=libsvm", "dataset.name=mine", "partition=iid", "clients=3", "algo=fedavg")


def test_another_root_with_other_records_is_asked_about(roots: None) -> None:
    first = call("run", *FILES, "dataset.root=A", *SMALL)
    said = call("run", *FILES, "dataset.root=B", *SMALL)
    assert (said.code, said.out) == (2, "")
    assert "other data (training file)" in said.err
    assert call("run", *FILES, "dataset.root=C", *SMALL).out == first.out
    alone = call("run", *FILES, "dataset.root=B", "outputs=elsewhere", *SMALL)
    assert (alone.folder / "metrics.csv").read_bytes() != (first.folder / "metrics.csv").read_bytes()


@pytest.mark.slow
def test_a_sweep_over_roots_leaves_none_out_as_the_same(roots: None) -> None:
    said = call("run", "-m", *FILES, "dataset.root=A,B", *SMALL)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert (
        "dataset.root=A and dataset.root=B hold other records under one run id; expected the same; say"
        " outputs= for one of them" in said.err
    )
    assert not Path("outputs").exists()
    same = call("run", "-m", *FILES, "dataset.root=A,C", *SMALL)
    assert same.code == 0
    assert "1 of 2 jobs are the same run as another one and are left out" in same.err
    unseen = call("run", "-m", *FILES, "dataset.root=A,nowhere", *SMALL)
    assert unseen.code == 2
    assert "which cannot be seen here" in unseen.err


# --- an interrupted run ---


@pytest.fixture
def cut(mine: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """A run that was stopped after its first checkpoint."""
    stopped = mine / "stop"
    stopped.touch()
    (mine / "algo.py").write_text(
        ALGO.replace(
            "        return FACTOR",
            "        from pathlib import Path\n        if Path(__file__).with_name('stop').exists():\n"
            "            raise OSError('stopped')\n        return FACTOR",
        )
    )
    said = run("algo=mine")
    assert said.code == 1, said.err
    stopped.unlink()
    (folder,) = Path("outputs/runs").iterdir()
    assert (folder / "checkpoint" / "latest.pt").exists()
    return folder


@pytest.mark.slow
def test_an_interrupted_run_of_other_code_does_not_go_on_unasked(mine: Path, cut: Path, run: Run) -> None:
    shutil.copytree("outputs", "again")
    (mine / "util.py").write_text("FACTOR = 0.5\n")
    before = (cut / "checkpoint" / "latest.pt").read_bytes()
    asked = run("algo=mine")
    assert asked.code == 2
    assert f"{cut}: begun with other code (mine.util) than are there now" in asked.err
    assert "--accept to go on with the code of now" in asked.err
    assert (cut / "checkpoint" / "latest.pt").read_bytes() == before
    assert run("-m", "algo=mine", "seed=0,1").code == 2
    accepted = run("algo=mine", "--accept")
    assert accepted.code == 0, accepted.err
    assert len(read(cut, "origin.json")["accepted"]) == 1
    forced = run("-m", "algo=mine", "outputs=again", "--force")
    assert forced.code == 0, forced.err
    assert Path("again/runs", f"{cut.name}.old-1", "checkpoint", "latest.pt").read_bytes() == before


# --- what the hashes are of ---


def test_modules_are_found_and_read_without_being_executed(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(mine.parent))
    (mine / "__init__.py").write_text("raise RuntimeError('executed')\n")
    (mine / "util.py").write_text(
        "from . import deep\nfrom .deep import far\nimport numpy, json\nimport importlib\nX ="
        " importlib.import_module('mine.late')\n"
    )
    (mine / "deep").mkdir()
    (mine / "deep" / "__init__.py").write_text("")
    (mine / "deep" / "far.py").write_text("from ..near import *\nfrom .. import beside\n")
    for name in ("near", "beside", "late"):
        (mine / f"{name}.py").write_text("")
    code_hashes._read.cache_clear()
    code_hashes._files.cache_clear()
    found = code_hashes.code(["mine.algo.Mine"])
    assert set(found) == {
        *(
            "mine",
            "mine.algo",
            "mine.util",
            "mine.deep",
            "mine.deep.far",
            "mine.near",
            "mine.beside",
            "mine.late",
        ),
    }


def test_line_ends_do_not_matter_and_nested_targets_count() -> None:
    assert code_hashes.hash_of(b"a\r\nb\n") == code_hashes.hash_of(b"a\nb\n")
    assert code_hashes.hash_of(b"a\n") != code_hashes.hash_of(b"b\n")
    assert code_hashes.named(
        {"_target_": "a.B", "work": {"_target_": "c.D", "deep": [{"_target_": "e.F"}]}}, {}
    ) == ["a.B", "c.D", "e.F"]


def test_the_package_is_all_its_code_and_settings() -> None:
    root = Path(code_hashes.PACKAGE).parent
    counted = [*(root / "dpfl_bench").rglob("*.py"), *(root / "conf").rglob("*.yaml")]
    assert code_hashes._package()[1] == len(counted)
