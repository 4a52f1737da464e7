"""Which jobs a sweep has: divisors, validation of all before the first one, the dry run and its
estimate.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.command import QUICK, Said, call
from helpers.federations import settings_of

from dpfl_bench.config.rounds import divisors
from dpfl_bench.machine.say import duration
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.sweep.estimate import Measured
from dpfl_bench.sweep.points import spread

pytestmark = pytest.mark.one_in(3)


SMALL = ("total_steps=10", *QUICK)


def jobs(said: Said) -> list[dict[str, str]]:
    """The overrides of a dry run's jobs."""
    assert said.code == 0, said.err
    return [dict(word.split("=") for word in line.split()[2:]) for line in said.out.splitlines()[:-1]]


def dry(*overrides: str) -> list[dict[str, str]]:
    return jobs(call("run", "-m", "--dry-run", *overrides))


# --- divisors ---


def test_divisors() -> None:
    assert divisors(1) == [1]
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    for number in (97, 1000, 5040):
        assert divisors(number) == [k for k in range(1, number + 1) if number % k == 0]


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [
        (1000, 2, [1, 1000]),
        (1000, 8, [1, 2, 8, 20, 50, 125, 500, 1000]),
        (240, 4, [1, 6, 40, 240]),
        (97, 5, [1, 97]),
        (16, 5, [1, 2, 4, 8, 16]),
        (2**9 * 3, 3, [1, 32, 1536]),
    ],
)
def test_spread_divisors(total: int, count: int, expected: list[int]) -> None:
    found = spread(divisors(total), count)
    assert found[0] == 1
    assert found[-1] == total
    assert len(found) == min(count, len(divisors(total)))
    assert found == expected


def test_all_divisors_of_the_total() -> None:
    found = dry("local_steps=divisors", "total_steps=12")
    assert [job["local_steps"] for job in found] == ["1", "2", "3", "4", "6", "12"]
    assert {job["total_steps"] for job in found} == {"12"}


def test_divisors_of_each_total() -> None:
    found = dry("total_steps=4,9", "local_steps=divisors", "eps=1,2")
    assert [(j["eps"], j["total_steps"], j["local_steps"]) for j in found if j["eps"] == "2"] == [
        *(("2", "4", k) for k in "124"),
        *(("2", "9", k) for k in "139"),
    ]
    assert len(found) == 12


def test_divisors_of_the_default_total_and_of_epochs() -> None:
    assert [job["local_steps"] for job in dry("local_steps=divisors")] == [str(k) for k in divisors(100)]
    of_epochs = dry(
        "local_steps=divisors", "total_epochs=3", "sample_rate=.5", "privacy.neighbours=add_remove_one"
    )
    assert [job["local_steps"] for job in of_epochs] == ["1", "2", "3", "6"]


def test_divisors_beside_numbers_are_each_run_once() -> None:
    found = dry("local_steps=2,divisors:3,divisors", "total_steps=8")
    assert [job["local_steps"] for job in found] == ["2", "1", "8", "4"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["local_steps=divisors"],
            (
                "local_steps=divisors: expected a whole number; a sweep over divisors needs -m (dpfl-bench"
                " run -m local_steps=divisors ...)"
            ),
        ),
        (
            ["-m", "local_steps=divisors", "rounds=3"],
            (
                "local_steps=divisors, rounds=3: expected total_steps, whose divisors are meant; the rounds"
                " follow"
            ),
        ),
        (
            ["-m", "local_steps=divisors:1"],
            (
                "local_steps=divisors:1: expected at least 2 of them (the first and the last), or divisors"
                " for all"
            ),
        ),
        (
            ["-m", "local_steps=divisors:some"],
            (
                "local_steps=divisors:some: expected at least 2 of them (the first and the last), or divisors"
                " for all"
            ),
        ),
        (["-m", "total_steps=0", "local_steps=divisors"], "total_steps=0: expected at least 1"),
        (["--dry-run"], "--dry-run: expected a sweep; say -m too"),
        (["eps=1", "--no-retry"], "--no-retry: expected a sweep; say -m too"),
        (["--detach"], "--detach: expected a sweep; say -m too"),
        (
            ["-m", "--cancel"],
            "--cancel: expected hydra/launcher=slurm; the jobs of the other launchers end with them",
        ),
        (
            ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=0"],
            "hydra.launcher.n_jobs=0: expected at least 1, or -1 for all cores",
        ),
        (
            ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=two"],
            "hydra.launcher.n_jobs=two: expected at least 1, or -1 for all cores",
        ),
    ],
)
def test_refusals(arguments: list[str], said: str) -> None:
    found = call("run", *arguments)
    assert found.code == 2
    assert found.err.endswith(f"{said}\n"), found.err
    assert found.err.count("\n") == 1
    assert not Path("outputs").exists()


# --- every job is validated before the first one starts ---


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_all_wrong_jobs_are_told_before_the_first_one_starts(flags: tuple[str, ...]) -> None:
    said = call("run", "-m", *flags, "local_steps=1,3,5,7", "eps=2,-1", *SMALL)
    assert said.code == 2
    assert said.out == ""
    lines = said.err.splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        f"dpfl-bench: job {number} of 8" for number in (2, 3, 4, 6, 7, 8)
    ]
    assert lines[0].endswith(
        "(local_steps=1 eps=-1 total_steps=10 plot=False device=cpu): eps=-1: expected eps > 0 (use eps=inf"
        " for no privacy)"
    )
    assert "(local_steps=3 eps=2 " in lines[1]
    assert "local_steps=3: expected a divisor of total_steps=10; the nearest are local_steps=1 or" in lines[1]
    assert not Path("outputs").exists()


def test_a_mistake_in_many_jobs_is_told_quickly() -> None:
    start = time.process_time()
    said = call("run", "-m", "algo=nosuch,dp_fedavg", "seed=range(300)")
    assert said.code == 2
    assert said.err.count("algo=nosuch: no such choice") == 300
    assert time.process_time() - start < 6, "it costs once, not 300 times"


# --- the dry run ---


@pytest.mark.slow
def test_dry_run_tells_what_is_there() -> None:
    call("run", "lr=1", *SMALL)
    for word, lr in (("failed", 3), ("interrupted", 4), ("running", 5)):
        RunFolder.at("outputs", settings_of(f"lr={lr}", *SMALL).run_id).tell(word)
    call("run", "lr=1e30", *SMALL)
    before = sorted(Path("outputs").rglob("*"))
    said = call("run", "-m", "--dry-run", "lr=1,2,3,4,5,1e30", *SMALL)
    assert said.err == ""
    *lines, last = said.out.splitlines()
    assert [line.split()[1] for line in lines] == ["done", "new", "failed", "interrupted", "died", "diverged"]
    assert lines[1].split() == [
        settings_of("lr=2", *SMALL).run_id,
        "new",
        "lr=2",
        "total_steps=10",
        "plot=False",
        "device=cpu",
    ]
    assert last.startswith("6 jobs, 2 finished, 4 to run: about ")
    assert last.endswith(" of computing")
    assert sorted(Path("outputs").rglob("*")) == before


@pytest.mark.slow
def test_dry_run_without_a_measurement() -> None:
    said = call("run", "-m", "--dry-run", "eps=1,2", *SMALL)
    assert (
        said.out.splitlines()[-1]
        == "2 jobs, 0 finished, 2 to run: no finished run of these algorithms, data sets and models to"
        " measure by"
    )
    call("run", "algo=dp_fedavg", *SMALL)
    said = call("run", "-m", "--dry-run", "algo=dp_fedavg,dp_scaffnew", "eps=1", *SMALL)
    assert said.out.splitlines()[-1].endswith(" of computing; no measurement for 1 of them")
    said = call("run", "-m", "--dry-run", "algo=dp_fedavg", *SMALL)
    assert said.out.splitlines()[-1] == "1 jobs, 1 finished, 0 to run: nothing to compute"


def finished(name: str, **changed: Any) -> None:
    told = {
        "status": "done",
        "algo": "dp_fedavg",
        "dataset": "breast_cancer",
        "model": "logreg",
        "seeds": [0],
    }
    folder = Path("outputs/runs", name)
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({**told, **changed}))


def test_the_estimate_scales_the_runs_that_are_most_alike() -> None:
    finished("a", rounds=10, local_steps=1, seconds=10.0)  # 1 s for each step
    finished("b", rounds=10, local_steps=1, seconds=30.0)  # 3 s
    finished("c", rounds=5, local_steps=100, seeds=[0, 1], seconds=100.0)  # .1 s
    finished("d", rounds=5, local_steps=100, seconds=1e6, status="diverged")
    finished("e", rounds=5, local_steps=100, seconds=1e6, algo="dp_scaffnew", dataset="digits")
    measured = Measured(["outputs", "nowhere"])
    assert measured.seconds(settings_of("algo=dp_fedavg", "rounds=20", "local_steps=2")) == pytest.approx(
        2.0 * 40
    )
    assert measured.seconds(
        settings_of("algo=dp_fedavg", "rounds=20", "local_steps=50", "repeats=3")
    ) == pytest.approx(0.1 * 3000)
    assert measured.seconds(settings_of("algo=dp_scaffnew")) is None
    said = call(
        "run",
        "-m",
        "--dry-run",
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
        "algo=dp_fedavg",
        "seed=1,2,3",
        "rounds=50",
        "local_steps=1",
    )
    assert (
        said.out.splitlines()[-1]
        == "3 jobs, 0 finished, 3 to run: about 5 min of computing, 2 min with 2 at a time"
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "1 s"),
        (89, "89 s"),
        (150, "2 min"),
        (3600 * 3 + 1200, "3 h 20 min"),
        (86400 * 2 + 4 * 3600, "2 d 4 h"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_dry_run_imports_no_torch() -> None:
    script = (
        "import sys\nfrom dpfl_bench.cli import main\ntry:\n main(sys.argv[1:])\nexcept SystemExit as stop:\n"
        " assert not stop.code\nassert 'dpfl_bench.sweep.whole_sweep' in sys.modules\nfor name in ('torch',"
        " 'pandas', 'sklearn', 'scipy'):\n assert name not in sys.modules, name\n"
    )
    given = (
        "run",
        "-m",
        "--dry-run",
        "algo=dp_fedavg,dp_fedexp",
        "privacy=central,secagg",
        "local_steps=divisors",
        "hydra/launcher=joblib",
    )
    done = subprocess.run([sys.executable, "-c", script, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" new ") == 36
