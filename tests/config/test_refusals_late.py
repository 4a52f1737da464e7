"""Refusals that come later or elsewhere: after the records are dealt, from `plan`, from a sweep,
from the installed command.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command import call, command
from helpers.refusals import check, table

from dpfl_bench.experiment import job

pytestmark = pytest.mark.one_in(4)


# of a file whose shape and number of records no YAML file knows: 10 records of 3 numbers, 8 of them
# for training
TINY = "dataset=libsvm dataset.path=tiny.txt clients=2"
AFTER_LOADING = f"""
dataset=libsvm dataset.path=nowhere.txt clients=2 | nowhere.txt | dataset.path
{TINY} batch_size=5                       | batch_size=5       | smallest client's records, 4
{TINY} clients=9 partition=iid            | clients=9          | use fewer clients
{TINY} partition=overlap partition.percent=1 | partition.percent=1 | at least one of the 8 records
{TINY} model=cnn                          | dataset.shape=[3]  | model=mlp or model=logreg
{TINY} dataset.test_fraction=.01          | dataset.test_fraction=0.01 | choose a larger fraction
"""
PLAN = """
eps=-1                                    | eps=-1             | eps=inf
+foo=1                                    | foo=1              | unknown key
theory.L=.001                             | theory.L=0.001     | mu=0.01
theory.psi0=-1                            | theory.psi0=-1     | a number > 0
algo=dp_fedavg privacy=central privacy.observer=server | privacy.observer=server | third_party
records=0                                 | records=0          | at least 1
algo=dp_fedavg privacy=record partition=overlap partition.percent=0 clients=5 | partition.percent=0
    | percent <= 100
records=3 batch_size=4                    | batch_size=4       | lower it
"""
REAL = """
+foo=1                                    | foo=1              | unknown key
eps=-1                                    | eps=-1             | eps=inf
dataset=mnist model=cnn model.norm=batch eps=1 | BatchNorm     | model.norm=group
"""


@pytest.mark.parametrize(("overrides", "key", "word"), table(AFTER_LOADING))
def test_run_refuses_what_only_the_records_show(
    overrides: list[str], key: str, word: str, tmp_path: Path
) -> None:
    (tmp_path / "tiny.txt").write_text("".join(f"{1 if i % 2 else -1} 1:{i} 3:{i % 5}\n" for i in range(10)))
    check(call("run", *overrides), key, word)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.txt"]


@pytest.mark.parametrize(("overrides", "key", "word"), table(PLAN))
def test_plan_refuses_the_same(overrides: list[str], key: str, word: str) -> None:
    check(call("plan", *overrides), key, word)


@pytest.mark.parametrize(("overrides", "key", "word"), table(REAL))
def test_the_installed_command_refuses(overrides: list[str], key: str, word: str, tmp_path: Path) -> None:
    check(command("run", *overrides, cwd=tmp_path), key, word)
    assert not list(tmp_path.iterdir())


def test_batch_norm_is_fine_without_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal is of the pair, not of the layer; loading is where it would go on."""

    class Reached(Exception):
        pass

    def load(*_: object) -> None:
        raise Reached

    monkeypatch.setattr(job, "load_data", load)
    with pytest.raises(Reached):
        call("run", "dataset=mnist", "model=cnn", "model.norm=batch", "algo=fedavg")


def test_a_sweep_validates_every_job_before_the_first_one_runs(tmp_path: Path) -> None:
    said = call("run", "-m", "eps=1,-1", "local_steps=1,2")
    assert said.code == 2
    starts = [f"dpfl-bench: job {number} of 4 (eps=-1 local_steps={number - 2}): eps=-1" for number in (3, 4)]
    for line, start in zip(said.err.splitlines(), starts, strict=True):
        assert line.startswith(start)
        assert "eps=inf" in line
    assert not list(tmp_path.iterdir())


def test_a_sweep_refuses_bad_syntax() -> None:
    check(call("run", "-m", "eps=[1"), "[1", "quote")


def test_unknown_verbs_and_flags_exit_with_2() -> None:
    check(call("train"), "train", "run, plan")
    said = call("run", "--frob")
    assert said.code == 2
    assert "--frob" in said.err.splitlines()[-1]


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ValueError that is not ours is not a bad setting."""

    def load(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(job, "load_data", load)
    with pytest.raises(ValueError, match="a bug"):
        call("run")
