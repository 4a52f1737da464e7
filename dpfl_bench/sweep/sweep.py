"""One run, or a sweep: what is done is left alone, the rest is run, and at the end it is said what
became of all.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import compose
from dpfl_bench.config.call import call
from dpfl_bench.config.compose import Composed
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.validate import settings
from dpfl_bench.machine.imports import preload
from dpfl_bench.machine.say import say
from dpfl_bench.machine.signals import Interrupted
from dpfl_bench.results import lock, provenance, sweeps
from dpfl_bench.results.folder import RunFolder, RunState
from dpfl_bench.results.provenance import Answer, Asker
from dpfl_bench.results.summary import summary
from dpfl_bench.results.sweeps import Sweep
from dpfl_bench.sweep import launchers, points, status
from dpfl_bench.sweep.estimate import Measured
from dpfl_bench.sweep.launchers.base import Detached, Launcher, Point
from dpfl_bench.sweep.progress import Progress, duration

SHOWN = 20  # failed jobs that are told at the end
ASK = Answer()


def run_one(overrides: Sequence[str], config_dir: str | None, config_name: str, answer: Answer = ASK) -> int:
    points.refuse_divisors(overrides)
    composed = compose.composed(overrides, config_dir, config_name)
    made = settings(composed)
    return asked(made, composed, answer)


def asked(made: Settings, composed: Composed, answer: Answer) -> int:
    """Compute what is not there yet, unless other code or data made what is there and nobody said
    what is to become of it.
    """
    folder = RunFolder.at(made.outputs, made.run_id)
    try:
        _settled(made, folder, answer)
    except lock.Busy as error:
        say(str(error))
        return 1
    known = folder.finished
    if known is None:
        preload("dpfl_bench.experiment.run")
        from dpfl_bench.experiment.run import run

        try:
            run(made, composed.overrides, composed.yaml())
        except (lock.Busy, lock.Lost) as error:
            say(str(error))
            return 1
        except Interrupted as error:
            say(f"{error}; the same command goes on from its checkpoint in {folder.path}")
            return error.exit_code
    result = known or folder.finished
    assert result is not None
    say(("already done: " if known else "") + summary(result))
    sys.stdout.write(f"{folder.path}\n")
    return 1 if result["status"] == "diverged" else 0


def _settled(made: Settings, folder: RunFolder, answer: Answer) -> None:
    """Raises ConfigError with what the user has to answer. Who forces a run that is finished wants
    it computed again.
    """
    if answer.force and folder.finished and not lock.holder(folder.path):
        say(f"{folder.path}: computed anew; what was there is kept as {folder.set_aside().name}")
        return
    finding = Asker(_load).look(made, folder)
    found = [finding] if finding else []
    if refused := provenance.refused(found, answer):
        raise ConfigError(refused[0])
    provenance.settle(found, answer, say)


def _load(dataset: Mapping[str, Any]) -> Any:
    return call(dataset, "dataset")


@dataclass(frozen=True)
class Ways:
    """How a sweep is run, beside what it is."""

    command: str  # that was typed, and that finishes it
    dry: bool = False
    retry: bool = True
    answer: Answer = ASK  # where code or data differ
    on_interrupt: str | None = None  # what becomes of Slurm's jobs


def run_all(overrides: Sequence[str], config_dir: str | None, config_name: str, ways: Ways) -> int:
    """Validate every job before the first one starts; then a failed job does not stop the others. 1
    if any is not done.
    """
    compose.composer.cache_clear()  # files may have changed since the last sweep of this process
    composer = compose.composer(config_dir, config_name)
    expanded = composer.sweep(overrides)
    launcher = _launcher(expanded.launcher, ways.on_interrupt)
    planned = points.planned(composer, expanded.jobs, config_dir, config_name)
    asker = Asker(None if ways.dry else _load)  # a dry run calls nothing of the user's
    looked = (
        []
        if planned.errors
        else [asker.look(made, RunFolder.at(made.outputs, made.run_id)) for made in planned.points.values()]
    )
    findings = [finding for finding in looked if finding]
    errors = planned.errors or [
        *points.told_apart(planned, asker),
        *provenance.refused(findings, ways.answer),
    ]
    for error in errors:
        say(error)
    if errors:
        return 2
    if planned.jobs > len(planned.points):
        say(
            f"{planned.jobs - len(planned.points)} of {planned.jobs} jobs are the same run as another one and"
            " are left out"
        )
    for line in _absent(planned.points.values()):
        say(line)
    if not ways.dry:
        try:
            provenance.settle(findings, ways.answer, say)
        except lock.Busy as error:
            say(str(error))
            return 1
    if ways.dry:
        anew = {
            finding.folder.path
            for finding in findings
            if finding.stranger or (finding.differs and ways.answer.force)
        }
        sys.stdout.writelines(_described(planned.points, launcher.at_once, anew))
        return 0
    return _run(list(planned.points), launcher, ways)


def _absent(jobs: Iterable[Settings]) -> list[str]:
    """A warning for each data set without its files. No more than that: the jobs may run on other
    machines.
    """
    nodes = {
        json.dumps(made.dataset | {"seed": 0}, sort_keys=True): made.dataset
        for made in jobs
        if "root" in made.dataset
    }
    if not nodes:
        return []
    from dpfl_bench.data.listing import absent  # with numpy, which data sets without files do without

    return list(dict.fromkeys(line for node in nodes.values() if (line := absent(node))))


def _launcher(node: Mapping[str, Any], on_interrupt: str | None) -> Launcher:
    if on_interrupt is None:
        return launchers.chosen(node)
    if "on_interrupt" not in node:
        raise ConfigError(
            f"--{on_interrupt}: expected hydra/launcher=slurm; the jobs of the other launchers end with them"
        )
    return launchers.chosen({**node, "on_interrupt": on_interrupt})


def _described(planned: Mapping[Point, Settings], at_once: int, anew: Set[Path]) -> Iterator[str]:
    """The dry run: every job with its state, and how long the rest may take."""
    states = {
        point: RunState("missing") if point.folder in anew else state
        for point, state in _states(planned).items()
    }
    for point, state in states.items():
        yield f"{point.run_id}  {'new' if state.word == 'missing' else state.word:11}  {point.label}\n"
    rest = [planned[point] for point, state in states.items() if not state.finished]
    finished = len(planned) - len(rest)
    yield f"{len(planned)} jobs, {finished} finished, {len(rest)} to run: {_estimated(rest, at_once)}\n"


def _estimated(rest: Sequence[Settings], at_once: int) -> str:
    if not rest:
        return "nothing to compute"
    measured = Measured({made.outputs for made in rest})
    seconds = [measured.seconds(made) for made in rest]
    known = [s for s in seconds if s is not None]
    if not known:
        return "no finished run of these algorithms, data sets and models to measure by"
    total = sum(known)
    said = f"about {duration(total)} of computing"
    if at_once > 1:
        said += f", {duration(max(total / min(at_once, len(known)), max(known)))} with {at_once} at a time"
    return said + (f"; no measurement for {len(rest) - len(known)} of them" if len(known) < len(rest) else "")


def _run(asked: Sequence[Point], launcher: Launcher, ways: Ways) -> int:
    sweep = sweeps.record(asked[0].outputs, ways.command, {point.folder: point.overrides for point in asked})
    states = _states(asked)
    todo = [
        point
        for point, state in states.items()
        if not state.finished and (ways.retry or state.word != "failed")
    ]
    say(
        f"{len(asked)} jobs, {sum(state.finished for state in states.values())} of them finished already;"
        f" {sweep.path}"
    )
    progress = Progress([point.folder for point in asked], [point.folder for point in todo])
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
    told = _told(_states(asked), sweep)
    return code or told


def _launch(todo: Sequence[Point], launcher: Launcher, progress: Progress) -> None:
    """Runs that another process works on are left to it, and taken over if it dies or stops.
    Slurm's finds them among its own jobs.
    """
    while todo:
        free = [point for point in todo if launcher.waits_for_others or not lock.holder(point.folder)]
        if free:
            launcher.launch(free, progress)
        else:
            time.sleep(lock.POLL)
        progress.update()
        tried = set(free) - progress.held
        progress.held.clear()
        todo = [point for point in todo if point not in tried and not progress.ended(point.folder)]


def _told(states: Mapping[Point, RunState], sweep: Sweep) -> int:
    """What became of all: the folders on stdout, the rest on stderr."""
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
    sys.stdout.writelines(f"{point.folder}\n" for point, state in states.items() if state.finished)
    return int(words["done"] < len(states))


def _states(points: Iterable[Point]) -> dict[Point, RunState]:
    return {point: RunFolder(point.folder).state() for point in points}
