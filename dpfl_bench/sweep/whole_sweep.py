"""A sweep: what is done is left alone, the rest is run, and the last lines say what became of
all.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpfl_bench.budget.notes import notes
from dpfl_bench.config import compose
from dpfl_bench.config.compose import Expanded
from dpfl_bench.config.settings import Settings
from dpfl_bench.machine.say import say
from dpfl_bench.machine.signals import Interrupted
from dpfl_bench.results import lock, provenance, sweeps
from dpfl_bench.results.folder import RunFolder, RunState
from dpfl_bench.results.provenance import Answer, Asker, Finding
from dpfl_bench.results.sweeps import Sweep
from dpfl_bench.sweep import dry_run, launchers, points, status
from dpfl_bench.sweep.applied import applied
from dpfl_bench.sweep.launchers.base import Detached, Launcher, Point
from dpfl_bench.sweep.one_run import ASK, load
from dpfl_bench.sweep.points import Planned, states_of
from dpfl_bench.sweep.progress import Progress

SHOWN = 20  # failed jobs in the last lines


@dataclass(frozen=True)
class Ways:
    """How a sweep is run, beside what it is."""

    command: str  # as typed; repeating it finishes the sweep
    dry: bool = False
    retry: bool = True
    answer: Answer = ASK  # where code or data differ
    on_interrupt: str | None = None  # what becomes of Slurm's jobs
    tell_folders: bool = True  # at the end, on stdout


def run_all(overrides: Sequence[str], config_dir: str | None, config_name: str, ways: Ways) -> int:
    """The sweep that the overrides mean; `run_jobs` of it."""
    compose.composer.cache_clear()  # files may have changed since the last sweep of this process
    composer = compose.composer(config_dir, config_name)
    expanded = composer.sweep(overrides)
    jobs, told = applied(composer, expanded.jobs)
    for line in told:
        say(line)
    return run_jobs(Expanded(jobs, expanded.launcher), config_dir, config_name, ways)


def run_jobs(expanded: Expanded, config_dir: str | None, config_name: str, ways: Ways) -> int:
    """Validate every job before the first one starts; then a failed job does not stop the others. 1
    if any is not done.
    """
    composer = compose.composer(config_dir, config_name)
    node = launchers.with_answer(expanded.launcher, ways.on_interrupt)
    # a dry run calls nothing of the user's: no launcher, and no loader below
    launcher = None if ways.dry and not launchers.is_shipped(node) else launchers.chosen(node)
    planned = points.planned(composer, expanded.jobs, config_dir, config_name)
    asker = Asker(None if ways.dry else load)
    findings = [] if planned.errors else _findings(planned, asker)
    errors = planned.errors or [
        *points.clashes(planned, asker),
        *provenance.refused(findings, ways.answer),
    ]
    for error in errors:
        say(error)
    if errors:
        return 2
    _warn(planned)
    if ways.dry or launcher is None:
        _describe(planned, findings, ways.answer, launcher.at_once if launcher else 1)
        return 0
    try:
        provenance.settle(findings, ways.answer, say)
    except lock.Busy as error:
        say(str(error))
        return 1
    return _run(list(planned.points), launcher, ways)


def _findings(planned: Planned, asker: Asker) -> list[Finding]:
    """Folders that other code or data computed."""
    looks = [asker.look(run, RunFolder.at(run.outputs, run.run_id)) for run in planned.points.values()]
    return [finding for finding in looks if finding]


def _warn(planned: Planned) -> None:
    twins = planned.jobs - len(planned.points)
    if twins:
        say(f"{twins} of {planned.jobs} jobs are the same run as another one and are left out")
    told = [note for run in planned.points.values() for note in notes(run)]
    for line in [*dict.fromkeys(told), *_absent(planned.points.values())]:
        say(line)


def _describe(planned: Planned, findings: Sequence[Finding], answer: Answer, at_once: int) -> None:
    anew = {f.folder.path for f in findings if f.stranger or (f.differs and answer.force)}
    sys.stdout.writelines(dry_run.lines(planned.points, at_once, anew))


def _absent(runs: Iterable[Settings]) -> list[str]:
    """A warning for each data set without its files. No more than that: the jobs may run on other
    machines.
    """
    nodes = {
        json.dumps(run.dataset | {"seed": 0}, sort_keys=True): run.dataset
        for run in runs
        if "root" in run.dataset
    }
    if not nodes:
        return []
    from dpfl_bench.data.overview import absent  # with numpy, which data sets without files do without

    return list(dict.fromkeys(line for node in nodes.values() if (line := absent(node))))


def _run(jobs: Sequence[Point], launcher: Launcher, ways: Ways) -> int:
    sweep = sweeps.record(jobs[0].outputs, ways.command, {point.folder: point.overrides for point in jobs})
    states = states_of(jobs)
    todo = [
        point
        for point, state in states.items()
        if not state.finished and (ways.retry or state.word != "failed")
    ]
    finished = sum(state.finished for state in states.values())
    say(f"{len(jobs)} jobs, {finished} of them finished already; {sweep.path}")
    progress = Progress([point.folder for point in jobs], [point.folder for point in todo])
    code = 0
    try:
        _launch(todo, launcher, progress)
    except Interrupted as error:
        say(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except Detached as left:
        say(str(left))
        return 0
    finally:
        progress.close()
    states = states_of(jobs)
    outcome = _say_outcome(states, sweep)
    if ways.tell_folders:
        sys.stdout.writelines(f"{point.folder}\n" for point, state in states.items() if state.finished)
    return code or outcome


def _launch(todo: Sequence[Point], launcher: Launcher, progress: Progress) -> None:
    """Runs that another process works on are left to it, and taken over if it dies or stops. The
    Slurm launcher finds such runs among its own jobs.
    """
    while todo:
        free = [point for point in todo if launcher.waits_for_others or not lock.holder(point.folder)]
        if free:
            launcher.launch(free, progress)
        else:
            time.sleep(lock.POLL)
        progress.update()
        tried = set(free) - progress.busy
        progress.busy.clear()
        todo = [point for point in todo if point not in tried and not progress.ended(point.folder)]


def _say_outcome(states: Mapping[Point, RunState], sweep: Sweep) -> int:
    """What became of all, on stderr. 1 if a job is not done."""
    words = Counter("failed" if state.word == "diverged" else state.word for state in states.values())
    parts = [
        f"{words[word]} {word}"
        for word in ("failed", "running", "interrupted", "died", "unreadable", "missing")
        if words[word]
    ]
    say(", ".join([f"{words['done']} of {len(states)} jobs done", *parts]))
    failed = [
        f"{point.label}: {state.first_line}"
        for point, state in states.items()
        if state.word in ("failed", "diverged")
    ]
    for line in failed[:SHOWN]:
        say(f"failed: {line}")
    if len(failed) > SHOWN:
        say(f"failed: {len(failed) - SHOWN} more; dpfl-bench status {sweep.path}")
    if not all(state.finished for state in states.values()):
        say(f"to finish: {status.again(sweep)}")
    return int(words["done"] < len(states))
