"""conf/experiment: packaged sweeps. They are the same runs as the command that is typed by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.command import Said, call
from helpers.federations import CONF

from dpfl_bench.config.compose import Composer

NAMES = sorted(file.stem for file in (CONF / "experiment").glob("*.yaml"))
# what a user would type
TYPED = {
    "bounds": (
        "algo=dp_normfedavg dataset=quadratics privacy=central privacy.neighbours=add_remove_one eps=5"
        " delta=1e-6 local_steps=20 rounds=500 model.init=near_optimum model.init_scale=1.0 repeats=6"
        " eval_every=50 privacy.bound=clip,normalise privacy.clip=2.5,5,10,20,40,80 lr=0.001,0.003,0.01,0.03"
        " plot=false"
    ),
    "breast_cancer": (
        "algo=dp_fedavg,dp_scaffnew eps=inf,8,2,0.5 total_steps=100 local_steps=divisors"
        " privacy.clip=0.1,0.3,1,3 repeats=10 seed=range(0,100,10) dataset.seed=${seed} plot=false"
    ),
    "demo": (
        "algo=dp_fedavg,dp_scaffnew eps=inf,8,2,0.5 total_steps=100 local_steps=divisors"
        " privacy.clip=0.1,0.3,1,3 repeats=2 seed=range(0,10,2) dataset.seed=${seed} plot=false"
    ),
    "digits": (
        "algo=dp_fedavg dataset=digits partition=iid clients=200 eps=inf,8,2,0.5 total_steps=240"
        " local_steps=divisors privacy.clip=0.1,0.3,1,3 repeats=3 seed=range(0,30,3) dataset.seed=${seed}"
        " plot=false"
    ),
    "drift": "algo=dp_fedavg,dp_scaffnew eps=8 rounds=20,200,500 repeats=30 plot=false",
    "extrapolation": (
        "dataset=synthetic_linear eps=15.258 local_steps=20 rounds=50 average_last=2 repeats=5 plot=false"
        " points=["
        "{algo:dp_fedexp,privacy:central},"
        "{algo:dp_fedavg,privacy:central,server_lr:1},{algo:dp_fedavg,privacy:central,server_lr:2},"
        "{algo:dp_fedavg,privacy:central,server_lr:4},{algo:dp_fedavg,privacy:central,server_lr:8},"
        "{algo:dp_fedavg,privacy:central,server_lr:16},{algo:dp_fedavg,privacy:central,server_lr:32},"
        "{algo:dp_fedavg,privacy:central,server_lr:64},{algo:dp_fedavg,privacy:central,server_lr:128},"
        "{algo:dp_fedexp,privacy:local,dataset.dimension:100},"
        "{algo:dp_fedavg,privacy:local,dataset.dimension:100,server_lr:1},"
        "{algo:dp_fedavg,privacy:local,dataset.dimension:100,server_lr:2},"
        "{algo:dp_fedavg,privacy:local,dataset.dimension:100,server_lr:4},"
        "{algo:dp_fedavg,privacy:local,dataset.dimension:100,server_lr:8}]"
        " lr=0.0003,0.001,0.003,0.01 privacy.clip=0.1,0.3,1,3"
    ),
    "quick": "algo=dp_fedavg,dp_scaffnew eps=0.5,2,inf total_steps=100 local_steps=divisors:5 plot=false",
    "scaffold": (
        "algo=dp_fedavg,dp_scaffold_warm dataset=synthetic_logistic model=logreg model.l2=1e-5 privacy=record"
        " privacy.observer=third_party privacy.neighbours=add_remove_one clients=100 sampled_clients=20 eps=3"
        " delta=2.5e-5 sample_rate=0.2 rounds=100 dataset.records_per_client=500 dataset.alpha=0"
        " dataset.beta=5 local_steps=5,50 lr=0.15,0.5,1.5,5 privacy.clip=0.03,0.1,0.3,1,3 repeats=3"
        " plot=false"
    ),
    "trust": (
        "algo=dp_fedavg dataset=mushrooms model=logreg partition=shards privacy=secagg,local"
        " clients=50,200,1000 eps=8,2,0.5 total_steps=120 local_steps=1,2,4,8,15,30,60,120"
        " privacy.clip=0.03,0.1,0.3,1 lr=1.0 repeats=5 plot=false"
    ),
    "tuning": "algo=dp_fedavg eps=2 total_steps=100 local_steps=1,2,5,10,20,50 plot=false",
    "variates": (
        "algo=dp_fedavg,dp_scaffnew dataset=mushrooms model=logreg partition=shards clients=200 eps=2"
        " privacy=local,secagg,central privacy.memory=own_update total_steps=120"
        " local_steps=1,4,8,15,30,60,120 privacy.clip=0.03,0.1,0.3,1 lr=1.0 repeats=5 plot=false"
    ),
}
LARGE = {  # one split, not all budgets
    "breast_cancer": ("seed=10",),
    "demo": ("seed=2",),
    "digits": ("seed=3",),
    "extrapolation": ("lr=0.001", "privacy.clip=1"),
    "trust": ("eps=2", "local_steps=1,120"),
}


def dry(*arguments: str) -> Said:
    said = call("run", "-m", "--dry-run", *arguments)
    assert said.code == 0, said.err
    return said


def ids(said: Said) -> list[str]:
    return sorted(line.split()[0] for line in said.out.splitlines()[:-1])


def test_every_experiment_is_compared() -> None:
    assert list(TYPED) == NAMES


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in NAMES]
)
def test_the_same_runs_as_typed_by_hand(name: str) -> None:
    """The experiment itself is in no run's id."""
    fewer = LARGE.get(name, ())
    typed = ids(dry(*TYPED[name].split(), *fewer))
    assert len(typed) > 1
    assert ids(dry(f"+experiment={name}", *fewer)) == typed


@pytest.mark.parametrize("name", NAMES)
def test_its_head_says_how_to_run_it_and_what_to_expect(name: str) -> None:
    text = (CONF / "experiment" / f"{name}.yaml").read_text()
    head = text.partition("\ndefaults:")[0]
    assert head.startswith("# @package _global_\n# ")
    assert all(line.startswith("#") for line in head.splitlines())
    assert f"dpfl-bench run -m +experiment={name}\n" in head
    assert f"dpfl-bench collect outputs/{name}/runs" in head
    assert f"\noutputs: outputs/{name}\n" in text
    assert "Expected" in head
    assert re.search(r"\d+ runs.* (minute|second|hour)s?", head.replace("\n# ", " ")), "how long it takes"
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.slow
def test_the_head_counts_the_runs() -> None:
    for name in ("tuning", "quick", "drift"):
        head = (CONF / "experiment" / f"{name}.yaml").read_text()
        (count,) = re.findall(r"^# (\d+) runs", head, re.MULTILINE)
        assert len(ids(dry(f"+experiment={name}"))) == int(count)


def test_the_command_line_goes_first() -> None:
    said = dry("+experiment=quick", "eps=3", "local_steps=1,2", "seed=7", "hydra/launcher=basic")
    lines = said.out.splitlines()[:-1]
    assert len(lines) == 4
    assert all(" eps=3 " in line and " seed=7" in line for line in lines)
    assert ids(said) == ids(
        dry(
            "algo=dp_fedavg,dp_scaffnew",
            "eps=3",
            "total_steps=100",
            "local_steps=1,2",
            "seed=7",
            "plot=false",
        )
    )
    assert len(ids(dry("+experiment=tuning", "algo=dp_scaffnew", "dataset=digits"))) == 6
    cluster = call("run", "+experiment=quick", "hydra/launcher=slurm", "--cfg", "hydra").out
    assert "dpfl_bench.sweep.launchers.slurm.launcher.Slurm" in cluster


def test_without_m_it_is_one_run_of_its_settings() -> None:
    shown = call("run", "+experiment=drift", "--cfg", "job").out
    assert "eps: 8\n" in shown
    assert "repeats: 30\n" in shown


def test_one_of_a_users_own(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\n# My sweep\ntotal_steps: 10\nhydra:\n  sweeper:\n    params:\n      lr: 1,2\n"
    )
    said = dry("-cd", str(tmp_path), "+experiment=mine")
    assert ids(said) == ids(dry("total_steps=10", "lr=1,2"))
    entries = call("list", "--json", "-cd", str(tmp_path)).json
    assert {"name": "mine", "group": "experiment", "line": "My sweep", "module": None} in entries
    assert "mine" in call("run", "-m", "-cd", str(tmp_path), "+experiment=nosuch").err


def test_the_demo_runs_one() -> None:
    demo = (Path(__file__).parents[2] / "scripts" / "demo").read_text()
    assert "dpfl-bench run -m --quiet +experiment=demo" in demo
    runs = re.search(r"^runs=(\d+)", demo, re.MULTILINE)
    assert runs is not None
    jobs = Composer(None, "config").sweep(["+experiment=demo"]).jobs
    splits = {word for job in jobs for word in job if word.startswith("seed=")}
    assert len(splits) * len(ids(dry("+experiment=demo", "seed=0"))) == int(runs[1])
    head = (CONF / "experiment" / "demo.yaml").read_text()
    assert re.findall(r"^# (\d+) runs", head, re.MULTILINE) == [runs[1]]
    said = demo.index("about $minutes min")
    assert said < demo.index("dpfl-bench run"), "how long it takes is said before it starts"
