"""The Slurm launcher without a Slurm: what it asks for, how it reads the answers, what it makes of
jobs that end.

On a real one: test_slurm_real.py.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.federations import CONF

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.machine import signals
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.sweep.launchers.base import Detached, Point
from dpfl_bench.sweep.launchers.slurm import interrupt, outcome, queue, submission, task, watch
from dpfl_bench.sweep.launchers.slurm.launcher import Slurm
from dpfl_bench.sweep.launchers.slurm.queue import Full, Seen, Unanswered
from dpfl_bench.sweep.launchers.slurm.submission import Record
from dpfl_bench.sweep.progress import Progress

pytest.importorskip("submitit")
Fake = Callable[[str, str], None]
DONE = {"status": "done", "diverged": None}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Executables of Slurm's names on an otherwise normal PATH; `calls` tells what they were called
    with.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(queue.time, "sleep", lambda seconds: None)

    def make(name: str, script: str) -> None:
        path = folder / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >> {tmp_path}/calls\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    for name in ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol"):
        make(name, "exit 0")
    return make


def calls() -> list[str]:
    return Path("calls").read_text().splitlines()


def slurm(**changes: Any) -> Slurm:
    """As in the YAML but for the changes."""
    defaults = yaml.safe_load((CONF / "hydra/launcher/slurm.yaml").read_text())
    return Slurm(**{key: value for key, value in {**defaults, **changes}.items() if key != "_target_"})


def points(number: int) -> list[Point]:
    return [Point((f"seed={i}",), None, "config", "outputs", f"run{i}") for i in range(number)]


def submitted(fake: Fake, launcher: Slurm, number: int) -> tuple[Record, str]:
    """The record, and the script that sbatch was given."""
    fake("sbatch", 'cp "$1" script; echo "Submitted batch job 12"')
    record = launcher.submit(Path("outputs/slurm"), launcher.tasks(points(number)))
    return record, Path("script").read_text()


def test_defaults_name_no_site() -> None:
    assert {key for key, value in slurm().__dict__.items() if value is None} >= {
        "partition",
        "account",
        "qos",
        "gpus",
    }


def test_an_array(fake: Fake) -> None:
    record, script = submitted(fake, slurm(array_parallelism=2), 3)
    assert record.ids == ("12_0", "12_1", "12_2")
    assert record.tasks == (("run0",), ("run1",), ("run2",))
    lines = script.splitlines()
    for option in (
        "array=0-2%2",
        "cpus-per-task=1",
        f"job-name={record.name}",
        "mem=4G",
        "requeue",
        "signal=USR2@90",
        "time=60",
    ):
        assert f"#SBATCH --{option}" in lines
    assert not any(word in script for word in ("partition", "account", "qos", "gpus", "wckey", "chdir"))
    (command,) = [line for line in lines if line.startswith("srun")]
    assert "--cpus-per-task=1" in command
    assert f"{sys.executable} -u -m submitit.core._submit" in command


def test_what_the_user_asks_for(fake: Fake) -> None:
    asked = {
        "partition": "long",
        "account": "me",
        "qos": "low",
        "gpus": "a100:1",
        "mem": "16G",
        "cpus_per_task": 4,
        "time": "1-12:00:00",
    }
    setup = ["module load cuda", "export A='b c'"]
    _, script = submitted(
        fake, slurm(**asked, setup=setup, signal_delay=30, sbatch={"exclude": "n7", "mail-type": "END"}), 2
    )
    options = [
        "account=me",
        "cpus-per-task=4",
        "exclude=n7",
        "gpus-per-node=a100:1",
        "mail-type=END",
        "mem=16G",
        "partition=long",
        "qos=low",
    ]
    for option in [*options, "signal=USR2@30", "time=1-12:00:00"]:
        assert f"#SBATCH --{option}" in script.splitlines()
    assert "\n".join(setup) in script
    assert script.index("module load") < script.index("srun")


def test_one_task_is_a_job_of_its_own(fake: Fake) -> None:
    record, script = submitted(fake, slurm(), 1)
    assert record.ids == ("12",)
    assert "--array" not in script


@pytest.mark.parametrize(
    ("changes", "lengths"),
    [
        ({}, [4, 4, 2]),
        ({"array_size": 3}, [3, 3, 3, 1]),
        ({"array_size": 9}, [4, 4, 2]),
        ({"points_per_task": 3}, [4]),
        ({"points_per_task": 2, "array_size": 3}, [3, 2]),
    ],
)
def test_arrays_are_no_longer_than_the_cluster_takes(
    fake: Fake, changes: dict[str, int], lengths: list[int]
) -> None:
    fake(
        "scontrol", 'echo "Configuration data"; echo "MaxArraySize            = 4"; echo "MaxArrayTasks = 9"'
    )
    launcher = slurm(**changes)
    arrays = launcher.arrays(launcher.tasks(points(10)))
    assert [len(array) for array in arrays] == lengths
    assert [point for array in arrays for task in array for point in task.points] == points(10)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("points_per_task", 0, "hydra.launcher.points_per_task=0: expected a whole number, at least 1"),
        ("requeues", -1, "hydra.launcher.requeues=-1: expected a whole number, at least 0"),
        (
            "setup",
            "ls",
            (
                "hydra.launcher.setup=ls: expected lines of shell in brackets, hydra.launcher.setup='[module"
                " load a]'"
            ),
        ),
        (
            "on_interrupt",
            "ask",
            "hydra.launcher.on_interrupt=ask: expected cancel, detach or null (asks on a terminal)",
        ),
    ],
)
def test_bad_options(key: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        slurm(**{key: value})
    assert str(caught.value) == said


def test_a_machine_without_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        ConfigError,
        match="expected sbatch and srun on this machine; run on the cluster, or take hydra/launcher=cores",
    ):
        slurm().launch(points(1), Silent())


def test_a_launcher_inside_a_job_keeps_its_allocation_to_itself(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("SLURM_JOB_ID", "SLURM_MEM_PER_CPU", "SLURM_CONF", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(key, "1")
    fake("sbatch", 'env | grep -E "^(SLURM|SBATCH)_" | sort > seen; echo "Submitted batch job 12"')
    slurm().submit(Path("outputs/slurm"), slurm().tasks(points(2)))
    assert Path("seen").read_text().split() == ["SBATCH_ACCOUNT=1", "SLURM_CONF=1"]
    assert os.environ["SLURM_MEM_PER_CPU"] == "1"


# submitting where the controller does not answer


def test_a_submission_that_was_not_answered_is_cancelled_and_made_again(fake: Fake) -> None:
    """sbatch may time out after the controller has taken the job."""
    fake(
        "sbatch",
        '[ $(grep -c sbatch calls) -gt 2 ] && echo "Submitted batch job 12" || { echo "sbatch: error: Socket'
        ' timed out" >&2; exit 1; }',
    )
    record = slurm().submit(Path("outputs/slurm"), slurm().tasks(points(2)))
    assert record.ids == ("12_0", "12_1")
    assert [line.split()[0] for line in calls()] == ["sbatch", "scancel", "sbatch", "scancel", "sbatch"]
    assert [known.name for known in submission.known(Path("outputs/slurm"))] == [record.name]


def test_a_submission_that_is_refused(fake: Fake) -> None:
    fake("sbatch", 'echo "sbatch: error: invalid partition specified: nope" >&2; exit 1')
    with pytest.raises(
        ConfigError, match=r"^sbatch: .*invalid partition specified: nope.*; see hydra.launcher"
    ) as caught:
        slurm().submit(Path("outputs/slurm"), slurm().tasks(points(2)))
    assert "\n" not in str(caught.value)
    assert len([line for line in calls() if line.startswith("sbatch")]) == 1
    assert submission.known(Path("outputs/slurm")) == []


def test_a_full_queue(fake: Fake) -> None:
    fake("sbatch", 'echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1')
    with pytest.raises(Full, match="QOSMaxSubmitJobPerUserLimit"):
        slurm().submit(Path("outputs/slurm"), slurm().tasks(points(2)))


# reading squeue and sacct

SQUEUE = """\
12_0|RUNNING|None|mine
12_1|PENDING|JobHeldUser|mine
12_2|CANCELLED|None|mine
13|COMPLETED|None|another's, with the id | of ours
"""


def test_squeue_and_sacct(fake: Fake) -> None:
    fake("squeue", f"cat <<'END'\n{SQUEUE}END")
    fake(
        "sacct",
        "echo '12_3|CANCELLED by 1000|None|mine'; echo '13|FAILED|NonZeroExitCode|mine'; echo"
        " '14|TIMEOUT|None|not mine'",
    )
    seen = queue.look(dict.fromkeys(["12_0", "12_1", "12_2", "12_3", "13", "14"], "mine"))
    assert {job: str(word) for job, word in seen.items()} == {
        "12_0": "RUNNING",
        "12_1": "PENDING (JobHeldUser)",
        "12_2": "CANCELLED",
        "12_3": "CANCELLED",
        "13": "FAILED (NonZeroExitCode)",
        "14": "UNKNOWN",
    }
    assert [job for job, word in seen.items() if word.ended] == ["12_2", "12_3", "13", "14"]
    squeue, sacct = calls()
    assert "--array" in squeue
    assert "--jobs=12,13,14 " in squeue
    assert "--jobs=12,13,14 " in sacct


def test_all_forgotten_and_no_accounting(fake: Fake) -> None:
    fake("squeue", 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1')
    fake("sacct", 'echo "Slurm accounting storage is disabled" >&2; exit 1')
    assert queue.look({"12_0": "mine"}) == {"12_0": Seen("UNKNOWN")}


def test_no_answer_is_not_an_empty_queue(fake: Fake) -> None:
    fake(
        "squeue",
        'echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1',
    )
    with pytest.raises(Unanswered, match="squeue: slurm_load_jobs error: Unable to contact slurm controller"):
        queue.look({"12_0": "mine"})


def test_the_users_own_squeue_settings_change_nothing(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_PARTITION", "debug")
    fake("squeue", '[ -z "$SQUEUE_PARTITION" ] && echo "12|RUNNING|None|mine"')
    assert queue.look({"12": "mine"})["12"].state == "RUNNING"


def test_insists_on_what_has_to_succeed(fake: Fake) -> None:
    fake("scancel", "[ $(grep -c scancel calls) -gt 3 ]")
    queue.cancel(["12_0"])
    assert len(calls()) == 4
    fake("scancel", "exit 1")
    with pytest.raises(Unanswered, match="scancel: exit code 1"):
        queue.cancel(["12_0"])


def test_many_jobs_are_cancelled_in_several_commands(fake: Fake) -> None:
    queue.cancel([f"12_{i}" for i in range(1200)])
    assert [len(line.split()) - 2 for line in calls()] == [500, 500, 200]


# what became of a point


@pytest.mark.parametrize(
    ("word", "state", "wanted"),
    [
        ("done", "FAILED", "leave"),
        ("failed", "FAILED", "leave"),
        ("running", "FAILED", "wait"),
        ("died", "FAILED", "fail"),
        ("died", "OUT_OF_MEMORY", "fail"),
        ("died", "CANCELLED", "fail"),
        ("died", "NODE_FAIL", "again"),
        ("died", "TIMEOUT", "again"),
        ("died", "UNKNOWN", "fail"),
        ("interrupted", "CANCELLED", "leave"),
        ("interrupted", "FAILED", "again"),
        ("interrupted", "PREEMPTED", "again"),
        ("missing", "CANCELLED", "leave"),
        ("missing", "UNKNOWN", "leave"),
        ("missing", "FAILED", "fail"),
        ("missing", "NODE_FAIL", "again"),
    ],
)
def test_verdict(word: Any, state: str, wanted: str) -> None:
    assert outcome.verdict(word, Seen(state), at_work=True) == wanted


def test_a_point_that_takes_the_process_down_takes_no_other_with_it() -> None:
    given = points(4)
    since = time.time() - 1
    RunFolder(given[0].folder).write("result.json", DONE)
    RunFolder(given[1].folder).tell("running")
    wanted = outcome.verdicts(given, since, Seen("OUT_OF_MEMORY"))
    assert list(wanted.values()) == ["leave", "fail", "again", "again"]


def test_what_was_said_before_the_submission_does_not_count() -> None:
    (point,) = points(1)
    RunFolder(point.folder).tell("failed", error="yesterday")
    assert outcome.word(point, time.time() - 1) == "failed"
    assert outcome.word(point, time.time() + 1) == "missing"


# the watch


class Silent:
    def update(self, now: bool = False) -> None: ...

    def failures(self) -> list[Any]:
        return []


class Cluster:
    """Ends jobs as a test says: the states of each job, in the order in which they are asked for;
    the last one stays.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: Sequence[str]) -> None:
        self.states, self.submissions, self.cancelled = [list(found) for found in states], 0, []
        self.jobs: dict[str, list[str]] = {}
        self.on_look: Callable[[], None] = lambda: None
        monkeypatch.setattr(Slurm, "submit", self.submit)
        monkeypatch.setattr(queue, "largest_array", lambda: 1000)
        monkeypatch.setattr(queue, "look", self.look)
        monkeypatch.setattr(queue, "cancel", self.cancel)
        monkeypatch.setattr(watch.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(watch.Watch, "_pause", lambda watch, stop: None)

    def submit(self, root: Path, tasks: Sequence[Any]) -> Record:
        record = submission.opened(root, [[point.run_id for point in task.points] for task in tasks])
        self.submissions += 1
        ids = [f"{self.submissions}_{i}" for i in range(len(tasks))]
        record.submitted(ids)
        for job in ids:
            self.jobs[job] = self.states.pop(0) if self.states else ["RUNNING"]
        return record

    def look(self, jobs: dict[str, str]) -> dict[str, Seen]:
        self.on_look()
        return {
            job: Seen(self.jobs[job].pop(0) if len(self.jobs[job]) > 1 else self.jobs[job][0]) for job in jobs
        }

    def cancel(self, ids: Iterable[str]) -> None:
        self.cancelled += list(ids)
        self.jobs.update({job: ["COMPLETING", "CANCELLED"] for job in ids})


def launch(number: int, **changes: Any) -> None:
    slurm(**{"settle_seconds": 0, **changes}).launch(points(number), Silent())


def status(point: Point) -> dict[str, Any] | None:
    return RunFolder(point.folder).read("status.json")


def test_a_job_that_ends_without_a_word_is_written_as_failed(
    monkeypatch: pytest.MonkeyPatch, fake: Fake
) -> None:
    Cluster(monkeypatch, ["PENDING", "RUNNING", "OUT_OF_MEMORY"], ["PENDING", "PENDING", "CANCELLED"])
    launch(2)
    first, second = points(2)
    written = status(first)
    assert written is not None
    assert written["status"] == "failed"
    assert written["error"].startswith(
        "Slurm: OUT_OF_MEMORY, and the run left no result; see outputs/slurm/dpfl-"
    )
    assert written["error"].endswith("/1_0_0_log.out")
    assert status(second) is None  # pending: missing
    assert submission.known(Path("outputs/slurm")) == []


def test_a_failure_is_told_when_it_happens(
    monkeypatch: pytest.MonkeyPatch, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    given = points(3)
    folders = [RunFolder(point.folder) for point in given]
    cluster = Cluster(monkeypatch, *[["RUNNING", "RUNNING", "RUNNING", "COMPLETED"]] * 3)
    folders[2].tell("failed", error="yesterday")  # of an earlier sweep: it is run again
    said: list[str] = []

    def pause(watch: watch.Watch, stop: object) -> None:
        if len(said) == 1:
            folders[0].tell("failed", error="ValueError: into\nthe trap")
        watch.progress.update(now=True)
        watch._tell_failures()
        said.append(capsys.readouterr().err)

    def done_at_last() -> None:
        if len(said) == 3:
            for folder in folders[1:]:
                folder.write("result.json", DONE)

    cluster.on_look = done_at_last
    monkeypatch.setattr(watch.Watch, "_pause", pause)
    progress = Progress([f.path for f in folders], [f.path for f in folders])
    slurm(settle_seconds=0).launch(given, progress)
    told = [[line for line in text.splitlines() if "failed: " in line] for text in said]
    assert [len(lines) for lines in told] == [0, 1, 0, 0]
    assert told[1][0].startswith("dpfl-bench: failed: run0 seed=0: ValueError: into; see outputs/slurm/")
    assert told[1][0].endswith("1_0_0_log.out")


def test_a_lost_node_costs_a_new_start(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    cluster = Cluster(monkeypatch, ["NODE_FAIL"], ["CANCELLED"], ["COMPLETED"])
    cluster.on_look = lambda: (
        RunFolder(points(1)[0].folder).write("result.json", DONE) if cluster.submissions == 2 else None
    )
    launch(2)
    assert cluster.submissions == 2


def test_new_starts_are_bounded(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    cluster = Cluster(monkeypatch, *[["TIMEOUT"]] * 9)
    launch(1, requeues=2)
    assert cluster.submissions == 3
    written = status(points(1)[0])
    assert written is not None
    assert "given up after 3 submissions" in written["error"]


def test_slurm_does_not_answer_for_a_while(
    monkeypatch: pytest.MonkeyPatch, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(monkeypatch, ["RUNNING", "CANCELLED"])
    left = iter(range(20))

    def silent() -> None:
        if cluster.jobs and next(left, None) is not None:
            raise Unanswered("squeue: no answer in 120 s")

    cluster.on_look = silent
    launch(1)
    assert (
        capsys.readouterr().err.count("squeue: no answer in 120 s; asking again, jobs go on meanwhile") == 1
    )


def test_slurm_never_answers(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    cluster = Cluster(monkeypatch)

    def silent() -> None:
        raise Unanswered("squeue: Unable to contact slurm controller")

    cluster.on_look = silent
    with pytest.raises(
        ConfigError, match="squeue: Unable to contact slurm controller: expected an answer from Slurm"
    ):
        launch(1)


def test_a_full_queue_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(monkeypatch, *[["RUNNING", "CANCELLED"]] * 3)
    submit = cluster.submit

    def one_at_a_time(launcher: Slurm, root: Path, tasks: Sequence[Any]) -> Record:
        if any(not Seen(states[0]).ended for states in cluster.jobs.values()):
            raise Full("sbatch: error: QOSMaxSubmitJobPerUserLimit")
        return submit(root, tasks)

    monkeypatch.setattr(Slurm, "submit", one_at_a_time)
    launch(3, array_size=1)
    assert cluster.submissions == 3
    assert capsys.readouterr().err.count("the other points (2) wait for room in the queue") == 1


def test_another_launchers_jobs_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(monkeypatch, ["RUNNING", "RUNNING", "CANCELLED"], ["CANCELLED"])
    cluster.submit(Path("outputs/slurm"), slurm().tasks(points(1)))
    launch(2)
    assert cluster.submissions == 2
    assert list(cluster.jobs) == ["1_0", "2_0"]
    assert "in Slurm already: 1 job of this sweep, waited for" in capsys.readouterr().err


def test_a_submission_that_was_cut_off_is_cancelled_by_name(
    monkeypatch: pytest.MonkeyPatch, fake: Fake
) -> None:
    record = submission.opened(Path("outputs/slurm"), [["run0"]])
    cluster = Cluster(monkeypatch, ["CANCELLED"])
    launch(1)
    assert calls() == [f"scancel --quiet --name={record.name}"]
    assert cluster.submissions == 1


@pytest.mark.parametrize(
    ("number", "told", "wanted"),
    [
        (signal.SIGINT, None, "cancel"),
        (signal.SIGINT, "detach", "detach"),
        (signal.SIGTERM, None, "detach"),
        (signal.SIGTERM, "cancel", "cancel"),
    ],
)
def test_a_signal_off_a_terminal(
    number: int, told: Any, wanted: str, monkeypatch: pytest.MonkeyPatch, fake: Fake
) -> None:
    cluster = Cluster(monkeypatch)
    cluster.on_look = lambda: os.kill(os.getpid(), number) if not cluster.cancelled and cluster.jobs else None
    with pytest.raises((Detached, signals.Interrupted)) as caught:
        launch(3, on_interrupt=told)
    assert cluster.cancelled == (["1_0", "1_1", "1_2"] if wanted == "cancel" else [])
    if wanted == "cancel":
        assert isinstance(caught.value, signals.Interrupted)
        assert caught.value.exit_code == 128 + number
    else:
        assert (
            str(caught.value)
            == "left in Slurm: 3 jobs of this sweep; the same command waits for them, squeue --jobs=1 shows"
            " them, scancel '1_[0-2]' ends them"
        )


@pytest.mark.parametrize(
    ("typed", "wanted"), [("c\n", "cancel"), ("x\n\nDetach\n", "detach"), ("w\n", "wait"), ("", "detach")]
)
def test_on_a_terminal_it_asks(typed: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        lines = iter([*typed.splitlines(keepends=True), ""])

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return next(self.lines)

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert interrupt.choice(signal.SIGINT, None, 3) == wanted


def test_compact() -> None:
    assert interrupt.compact(["12_0", "12_1", "12_2", "12_7", "13", "14_3"]) == "'12_[0-2,7]' 13 '14_[3]'"


# on the node


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> dict[str, int]:
    """What `work` returns for each point; SIGUSR2 arrives where it returns 140."""
    codes: dict[str, int] = {}

    def work(point: Point) -> int:
        code = codes.get(point.run_id, 0)
        if code > 128:
            os.kill(os.getpid(), code - 128)
        return code

    monkeypatch.setattr(task, "work", work)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    return codes


@pytest.mark.parametrize(
    ("codes", "exit_code"), [({}, None), ({"run1": 1}, 1), ({"run0": 2, "run2": 1}, 2), ({"run1": 143}, 143)]
)
def test_the_exit_code_of_a_task(told: dict[str, int], codes: dict[str, int], exit_code: int | None) -> None:
    told.update(codes)
    if exit_code is None:
        task.Task(tuple(points(3)), 10)()
        return
    with pytest.raises(SystemExit) as caught:
        task.Task(tuple(points(3)), 10)()
    assert caught.value.code == exit_code
    assert not Path("calls").exists()


def test_preemption_requeues(told: dict[str, int]) -> None:
    told["run1"] = 140
    with pytest.raises(SystemExit) as caught:
        task.Task(tuple(points(3)), 10)()
    assert caught.value.code == 140
    assert calls() == ["scontrol requeue 77"]


def test_a_task_that_started_too_often_gives_up(
    told: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "3")
    given = points(2)
    RunFolder(given[0].folder).tell("failed", error="its own")
    RunFolder(given[1].folder).tell("interrupted", error="stopped")
    with pytest.raises(SystemExit) as caught:
        task.Task(tuple(given), 2)()
    assert caught.value.code == 1
    written = [status(point) for point in given]
    assert [found and found["error"] for found in written] == [
        "its own",
        "given up: Slurm started it 4 times; more hydra.launcher.time, or hydra.launcher.requeues",
    ]
