"""A user's own data set with files: its module has a SOURCE beside its `load`, and a YAML file
names it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.command import QUICK, call, read

from dpfl_bench.data import contents
from dpfl_bench.data.source import OK, Presence, Source, source_of, verdicts_of

CONTENT = "".join(f"{i % 2},{i},{i * i % 7}\n" for i in range(40))
SHA256 = hashlib.sha256(CONTENT.encode()).hexdigest()
MODULE = f"""
from pathlib import Path
from typing import Annotated

import numpy as np

from dpfl_bench.checks.ranges import COUNT
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.folder import data_root
from dpfl_bench.data.source import FETCH, Presence, Source

Path({{log!r}}).touch()  # the module was imported

def file_of(dataset):
    return data_root(dataset.get("root")) / "toy" / "toy.csv"

def presence(dataset):
    file = file_of(dataset)
    there = (file,) if file.is_file() else ()
    return Presence(file.parent, there, () if there else ("toy.csv",))

SOURCE = Source(FETCH, presence, checksums=lambda dataset: {{{{file_of(dataset): "{SHA256}"}}}})

def load(root: str | None, download: bool, copies: Annotated[int, COUNT]) -> Records:
    file = file_of({{{{"root": root}}}})
    if not file.is_file():
        if not download:
            raise DataError(f"toy: {{{{file}}}} is not there: dpfl-bench data fetch toy")
        file.parent.mkdir(parents=True)
        file.write_text({CONTENT!r})
    table = np.loadtxt(file, delimiter=",")
    x, y = table[:, 1:].astype(np.float32), table[:, 0].astype(np.int64)
    return Records(x, y, x[:0], y[:0], None, 2, "toy", 40)
"""
YAML = """\
# Toy
_target_: toy_data.load
name: toy
licence: mine
address: https://example.org
shape: [2]
classes: 2
holds: {tokens: false, natural: none}
records: 32
clients: 2
lr: 1.0
test_fraction: 0.2
split: global
standardise: none
unit_norm: true
transform: null
seed: 0
root: null
max_row_norm: null
gram: null
download: false
copies: 1
"""
CHOSEN = ("dataset=toy", "clients=2", "partition=iid", "model=logreg", "local_steps=1", "total_steps=2")


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that appears when the user's module is imported."""
    monkeypatch.setenv("DPFL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delitem(sys.modules, "toy_data", raising=False)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "toy_data.py").write_text(MODULE.format(log=str(tmp_path / "imported")))
    (tmp_path / "own" / "dataset").mkdir(parents=True)
    (tmp_path / "own" / "dataset" / "toy.yaml").write_text(YAML)
    return tmp_path / "imported"


def listed(tmp_path: Path, *flags: str) -> dict[str, Any]:
    entries = call("data", "list", "--json", "-cd", str(tmp_path / "own"), *flags).json
    return next(entry for entry in entries if entry["name"] == "toy")


def test_list_fetch_verify_and_run(tmp_path: Path, imported: Path) -> None:
    folder = ("-cd", str(tmp_path / "own"))
    file = tmp_path / "data" / "toy" / "toy.csv"
    entry = listed(tmp_path, "--own-code")
    assert (entry["state"], entry["missing"], entry["folder"]) == ("missing", ["toy.csv"], str(file.parent))
    assert (entry["get"], entry["licence"], entry["source"]) == ("data fetch", "mine", "https://example.org")
    lacking = call("data", "verify", "toy", *folder)
    assert lacking.code == 2
    assert f"  {file}: missing\n" in lacking.out
    assert lacking.err == f"dpfl-bench: toy: {file} is not there: dpfl-bench data fetch toy\n"
    fetched = call("data", "fetch", "toy", *folder)
    assert fetched.code == 0, fetched.err
    assert fetched.out.startswith("toy: fetched, whole, checksums ok\n")
    assert call("data", "fetch", "toy", *folder).out.startswith("toy: already there, whole, checksums ok\n")
    assert listed(tmp_path, "--own-code")["state"] == "ready"
    assert call("data", "verify", "toy", *folder).code == 0
    run = call("run", *folder, *CHOSEN, *QUICK)
    assert run.code == 0, run.err
    origin = read(run.folder, "result.json")["origin"]
    assert origin["data"] == contents.Contents({"toy.csv": contents._hex(CONTENT.encode())}).hash
    assert call("run", *folder, *CHOSEN, *QUICK).err.startswith("dpfl-bench: already done: ")
    file.write_text(CONTENT.replace("0,0,0", "1,0,0"))
    changed = call("data", "verify", "toy", *folder)
    assert changed.code == 1
    assert f"  {file}: checksum mismatch\n" in changed.out
    other = call("run", *folder, *CHOSEN, *QUICK)
    assert other.code == 2
    assert "other data" in other.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("data", "list"),
        ("list",),
        ("plan", *CHOSEN),
        ("run", "-m", "--dry-run", *CHOSEN, "eps=1,2"),
        ("run", "--cfg", "job", *CHOSEN),
        ("data", "show", *CHOSEN),
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_what_only_looks_does_not_import_it(
    arguments: tuple[str, ...], tmp_path: Path, imported: Path
) -> None:
    said = call(*arguments, "-cd", str(tmp_path / "own"))
    assert "Traceback" not in said.err
    assert not imported.exists()
    assert listed(tmp_path)["state"] == "unknown"
    assert not imported.exists()
    listed(tmp_path, "--own-code")
    assert imported.exists(), "the negative control"


def test_a_range_that_the_loader_declares_is_checked_by_a_run(tmp_path: Path, imported: Path) -> None:
    said = call(
        "run", "-cd", str(tmp_path / "own"), *CHOSEN, *QUICK, "dataset.copies=0", "dataset.download=true"
    )
    assert (said.code, said.err) == (2, "dpfl-bench: dataset.copies=0: expected at least 1\n")


def test_a_module_that_cannot_be_imported_has_no_source(tmp_path: Path, imported: Path) -> None:
    (tmp_path / "code" / "toy_data.py").write_text("raise RuntimeError('broken')")
    assert listed(tmp_path, "--own-code")["state"] == "unknown"
    assert source_of({"_target_": "nosuch.module.load"}, own=True) is None
    assert source_of({"_target_": "os.system"}, own=True) is None


def test_verdicts(tmp_path: Path) -> None:
    """By checksums where there are some, else of what is there and what is missing."""
    (tmp_path / "a").write_text("a")
    presence = Presence(tmp_path, (tmp_path / "a",), ("b",))
    plain = Source("by hand", lambda dataset: presence)
    assert verdicts_of({}, plain, loaded=True) == {str(tmp_path / "a"): "not verified"}
    assert verdicts_of({}, plain, loaded=False) == {str(tmp_path / "a"): "not verified", "b": "missing"}
    sums = {tmp_path / "a": hashlib.sha256(b"a").hexdigest(), tmp_path / "b": None}
    summed = Source("by hand", lambda dataset: presence, checksums=lambda dataset: sums)
    assert list(verdicts_of({}, summed, loaded=True).values()) == [OK, "missing"]
    assert verdicts_of({}, None, loaded=True) == {}


def test_the_report_of_a_verified_set_is_json(tmp_path: Path, imported: Path) -> None:
    folder = ("-cd", str(tmp_path / "own"))
    call("data", "fetch", "toy", *folder)
    report = json.loads(call("data", "verify", "toy", *folder, "--json").out)
    assert (report["whole"], report["verified"], report["expected"]) == (True, True, 40)
