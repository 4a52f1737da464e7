"""Nobody is fooled by other data: a run that is done, resumed or collected is of the records that
it says.
"""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.command import QUICK, call
from helpers.federations import settings_of

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.data import contents, libsvm
from dpfl_bench.experiment import book, run
from dpfl_bench.results.collect import points as points_of

GIVEN = (
    "algo=fedavg",
    "dataset=libsvm",
    "dataset.path=records",
    "partition=iid",
    "clients=3",
    "rounds=4",
    "local_steps=2",
    *QUICK,
)
OTHER = (
    "computed with other data (training file) than are there now; expected the same; say --force to compute"
    " it anew"
)


def write(records: int, seed: int = 0) -> None:
    draw = np.random.default_rng(seed)
    lines = [
        f"{1 + r % 2} 1:{draw.random():.6f} 2:{draw.random():.6f} 3:{draw.random():.6f}"
        for r in range(records)
    ]
    Path("records").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("others", [(90, 0), (60, 1)], ids=["more records", "the same name and size"])
def test_a_finished_run_of_other_files_is_not_taken_for_this_one(others: tuple[int, int]) -> None:
    write(60)
    size = Path("records").stat().st_size
    first = call("run", *GIVEN)
    assert call("run", *GIVEN).err.startswith("dpfl-bench: already done: ")
    write(*others)
    assert (Path("records").stat().st_size == size) == (others[0] == 60)
    said = call("run", *GIVEN)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"dpfl-bench: {first.folder}: {OTHER}")
    sweep = call("run", "-m", *GIVEN, "lr=.1,.2", "--dry-run")
    assert sweep.code == 0, "those are not computed"
    sweep = call("run", "-m", *GIVEN, "seed=0,1")
    assert (sweep.code, len(sweep.err.splitlines())) == (2, 1)
    assert OTHER in sweep.err
    write(60)
    assert call("run", "-m", *GIVEN, "seed=0,1").code == 0


def test_bytes_that_are_changed_behind_the_clock_are_seen() -> None:
    """Whoever writes to a file and sets its times back changes its ctime."""
    write(60)
    assert call("run", *GIVEN).code == 0
    before = Path("records").stat()
    write(60, seed=1)
    os.utime("records", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert call("run", *GIVEN).code == 2


def test_what_a_data_set_holds(tmp_path: Path) -> None:
    """By the bytes of the files, wherever they lie; what is generated has none."""
    (tmp_path / "here" / "libsvm").mkdir(parents=True)
    write(60)
    (tmp_path / "here" / "libsvm" / "mushrooms").write_bytes(Path("records").read_bytes())
    shutil.copytree(tmp_path / "here", tmp_path / "there")

    def of(*given: str) -> contents.Contents | None:
        return contents.of_files(settings_of(*given).dataset)

    here, there = (of("dataset=mushrooms", f"dataset.root={tmp_path / where}") for where in ("here", "there"))
    assert here is not None
    assert here == there
    (tmp_path / "there" / "libsvm" / "mushrooms").write_bytes(b"1 1:1\n")
    assert of("dataset=mushrooms", f"dataset.root={tmp_path / 'there'}") not in (None, here)
    assert of("dataset=phishing", f"dataset.root={tmp_path / 'here'}") is None, "there are no files"
    bundled, generated = of(), of("dataset=synthetic_logistic")
    assert bundled is not None
    assert list(bundled.parts) == ["breast_cancer.csv"]
    assert generated == of("dataset=synthetic_logistic", "dataset.seed=1")


@pytest.mark.skipif("DPFL_DATA_DIR" not in os.environ, reason="no real data")
@pytest.mark.parametrize(
    "name",
    ["mnist", "cifar10", "emnist_balanced", "a9a", "femnist", "shakespeare", "reddit", "ixi", "messidor"],
)
def test_what_real_data_sets_hold(name: str, tmp_path: Path) -> None:
    """Every byte of every file that is read counts."""
    dataset = settings_of(
        f"dataset={name}",
        *(["dataset.verify=false"] if name in ("mnist", "cifar10", "emnist_balanced") else []),
    ).dataset
    files = contents._files(dataset)
    before = contents.of_files(dataset)
    if files is None or before is None:
        pytest.skip("not on this machine")
    assert set(before.parts) == set(files)
    root = Path(os.environ["DPFL_DATA_DIR"])
    moved = {**dataset, "root": str(tmp_path)}
    for file in files.values():
        copy = tmp_path / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    assert contents.of_files(moved) == before
    last = tmp_path / sorted(files.values())[-1].relative_to(root)
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    assert contents.of_files(moved) != before


def test_files_that_are_written_to_while_they_are_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    write(60)
    real = libsvm.load

    def load(**given: object) -> object:
        made = real(**given)
        write(60, seed=1)
        return made

    monkeypatch.setattr(libsvm, "load", functools.wraps(real)(load))
    said = call("run", *GIVEN)
    assert said.code == 2
    assert "its files changed while they were read" in said.err


@pytest.mark.slow
def test_a_checkpoint_goes_on_with_its_own_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even of the same size."""
    write(60)
    settings = settings_of(*GIVEN)

    def gone(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as cut:
        cut.setattr(book.Book, "finish", gone)
        with pytest.raises(OSError, match="the disk is gone"):
            run.run(settings, (), "")
    folder = Path("outputs/runs", settings.run_id)
    before = (folder / "metrics.csv").read_bytes()
    write(60, seed=1)
    with pytest.raises(
        ConfigError,
        match=(
            r"begun with other data \(training file\) than are there now; expected the same; bring them back"
        ),
    ):
        run.run(settings, (), "")
    for answer in ((), ("--accept",)):
        asked = call("run", *GIVEN, *answer)
        assert (asked.code, asked.err.count("\n")) == (2, 1), "half of it would be of other records"
        assert "bring them back, or say --force" in asked.err
        assert call("run", "-m", *GIVEN, "seed=0,1", *answer).code == 2
    assert (folder / "metrics.csv").read_bytes() == before, "nothing is lost"
    write(60)
    assert run.run(settings, (), "").finished


def test_a_part_of_the_data_is_no_repeat_of_the_whole() -> None:
    common = {"point_id": "p", "status": "done", "test_error_std": 0.0, "seeds": [0]}
    rows = [
        {**common, "run_id": "a", "test_error_mean": 0.1},
        {**common, "run_id": "b", "test_error_mean": 0.4, "subset": "subset 3 of 9"},
    ]
    points, _ = points_of.pooled(rows)
    assert [point["run_ids"] for point in points] == [["a"], ["b"]]
