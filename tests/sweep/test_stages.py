"""`key=best:FOLDER`: what a second sweep takes of a first one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.compose import composed, composer
from dpfl_bench.sweep import stages

ERRORS = {  # (algo, eps, local_steps, lr) -> test errors of two seeds
    ("dp_fedavg", "2", 1, 0.5): (0.5, 0.5),
    ("dp_fedavg", "2", 5, 0.5): (0.1, 0.4),
    ("dp_fedavg", "2", 1, 1.0): (0.2, 0.2),
    ("dp_fedavg", "2", 5, 1.0): (0.4, 0.4),
    ("dp_scaffnew", "2", 1, 0.5): (0.4, 0.4),
    ("dp_scaffnew", "2", 5, 0.5): (0.3, 0.3),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep that is done, with the errors above; training losses have the opposite order."""
    for number, ((algo, eps, steps, lr), errors) in enumerate(ERRORS.items()):
        words = [f"algo={algo}", f"eps={eps}", f"local_steps={steps}", f"lr={lr}", "rounds=2", "repeats=2"]
        run = tmp_path / "tune" / "runs" / f"{number:010x}"
        (run / ".hydra").mkdir(parents=True)
        (run / ".hydra" / "config.yaml").write_text(composed(words).yaml())
        (run / ".hydra" / "overrides.yaml").write_text("".join(f"- {word}\n" for word in words))
        rows = [f"{seed},2,{error},{1 - error}" for seed, error in enumerate(errors)]
        (run / "metrics.csv").write_text("\n".join(["seed,round,test_error,train_loss", *rows]) + "\n")
        keys = {"run_id": run.name, "status": "done", "algo": algo, "dataset": "breast_cancer"}
        more = {"eps_target": 2.0, "local_steps": steps, "rounds": 2, "seeds": [0, 1]}
        from dpfl_bench import RESULTS_VERSION

        (run / "result.json").write_text(json.dumps(keys | more | {"results_version": RESULTS_VERSION}))
        (run / "status.json").write_text(json.dumps({"status": "done"}))
    stages._runs.cache_clear()
    return tmp_path / "tune"


def best(*words: str) -> tuple[str, ...]:
    return stages.with_best(composer(None, "config"), words)


def test_each_job_takes_the_best_of_the_runs_that_are_like_it(folder: Path) -> None:
    asked = (f"local_steps=best:{folder}", f"lr=best:{folder}", "rounds=7")
    assert best("algo=dp_fedavg", "eps=2", *asked)[2:4] == ("local_steps=1", "lr=1.0")
    assert best("algo=dp_scaffnew", "eps=2", *asked)[2:4] == ("local_steps=5", "lr=0.5")


def test_a_value_that_the_job_says_is_kept(folder: Path) -> None:
    assert best("algo=dp_fedavg", "eps=2", "lr=0.5", f"local_steps=best:{folder}")[3] == "local_steps=5"
    assert best("algo=dp_fedavg", "eps=2", "lr=1.0", f"local_steps=best:{folder}")[3] == "local_steps=1"


def test_another_measure(folder: Path) -> None:
    asked = (f"local_steps=best:{folder}:train_loss", f"lr=best:{folder}:train_loss")
    assert best("algo=dp_fedavg", "eps=2", *asked)[2:] == ("local_steps=1", "lr=0.5")


def test_a_key_that_was_swept_there_and_is_not_said_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected finished runs there with this job's .*lr="):
        best("algo=dp_fedavg", "eps=2", f"local_steps=best:{folder}")


def test_an_algorithm_that_was_not_swept_there_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"algo\.name=dp_scaffold"):
        best("algo=dp_scaffold", "eps=2", f"local_steps=best:{folder}", f"lr=best:{folder}")


def test_an_unfinished_sweep_is_refused(folder: Path) -> None:
    (folder / "runs" / f"{1:010x}" / "result.json").unlink()
    with pytest.raises(ConfigError, match="1 of its runs are not"):
        best("algo=dp_fedavg", "eps=2", f"local_steps=best:{folder}", f"lr=best:{folder}")


def test_other_jobs_stay_as_they_are() -> None:
    assert best("algo=dp_fedavg", "local_steps=5") == ("algo=dp_fedavg", "local_steps=5")
