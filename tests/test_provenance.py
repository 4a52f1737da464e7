"""Nobody is fooled by other data: a run that is done, resumed or collected is of the records that it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import QUICK, call
from conftest import settings_of

from dpfl_bench import run
from dpfl_bench.data.presence import fingerprint
from dpfl_bench.results import best
from dpfl_bench.settings import ConfigError

GIVEN = ("algo=fedavg", "dataset=libsvm", "dataset.path=records", "partition=iid", "clients=3", "rounds=4", "local_steps=2", *QUICK)
OTHER = "computed on other data files than are there now (LIBSVM text: records); expected the same names and sizes"


def write(records: int, seed: int = 0) -> None:
    draw = np.random.default_rng(seed)
    lines = [f"{1 + r % 2} 1:{draw.random():.6f} 2:{draw.random():.6f} 3:{draw.random():.6f}" for r in range(records)]
    Path("records").write_text("\n".join(lines) + "\n")


def test_a_finished_run_of_other_files_is_not_taken_for_this_one() -> None:
    write(60)
    first = call("run", *GIVEN)
    assert call("run", *GIVEN).err.startswith("dpfl-bench: already done: ")
    write(90)
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


def test_what_is_held_by_a_checksum_or_made_here_has_no_need(tmp_path: Path) -> None:
    write(60)
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "mushrooms").write_bytes(Path("records").read_bytes())

    def of(*given: str) -> str | None:
        return fingerprint(settings_of(*given, f"dataset.root={tmp_path}").dataset)

    assert of("dataset=mushrooms") is None
    loose = of("dataset=mushrooms", "dataset.verify=false")
    assert loose is not None
    (tmp_path / "libsvm" / "mushrooms").write_bytes(b"1 1:1\n")
    assert of("dataset=mushrooms", "dataset.verify=false") not in (None, loose)
    assert of("dataset=phishing", "dataset.verify=false") is None, "there are no files"
    assert fingerprint(settings_of().dataset) is None


def test_a_checkpoint_goes_on_with_its_own_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even of the same size."""
    write(60)
    settings = settings_of(*GIVEN)

    def gone(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as cut:
        cut.setattr(run._Runner, "_finish", gone)
        with pytest.raises(OSError, match="the disk is gone"):
            run.run(settings, (), "")
    folder = Path("outputs/runs", settings.run_id)
    before = (folder / "metrics.csv").read_bytes()
    write(60, seed=1)
    with pytest.raises(ConfigError, match="begun on other data than LIBSVM text: records; expected the same records; bring them back"):
        run.run(settings, (), "")
    assert (folder / "metrics.csv").read_bytes() == before, "nothing is lost"
    write(60)
    assert run.run(settings, (), "").finished


def test_a_part_of_the_data_is_no_repeat_of_the_whole() -> None:
    common = {"point_id": "p", "status": "done", "test_error_std": 0.0, "seeds": [0]}
    rows = [{**common, "run_id": "a", "test_error_mean": 0.1}, {**common, "run_id": "b", "test_error_mean": 0.4, "subset": "subset 3 of 9"}]
    points, _ = best.pooled(rows)
    assert [point["run_ids"] for point in points] == [["a"], ["b"]]
