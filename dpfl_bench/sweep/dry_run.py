"""`run -m --dry-run`: the jobs of a sweep as lines, without running any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from dpfl_bench.config.settings import Settings
from dpfl_bench.machine.say import duration
from dpfl_bench.results.folder import RunState
from dpfl_bench.sweep.estimate import Measured
from dpfl_bench.sweep.launchers.base import Point
from dpfl_bench.sweep.points import states_of


def lines(points: Mapping[Point, Settings], at_once: int, anew: Set[Path]) -> Iterator[str]:
    """Every job with its state, and how long the rest may take.

    at_once: how many jobs the launcher runs at a time.
    anew: folders that are computed anew, whatever they hold.
    """
    states = {
        point: RunState("missing") if point.folder in anew else state
        for point, state in states_of(points).items()
    }
    for point, state in states.items():
        yield f"{point.run_id}  {'new' if state.word == 'missing' else state.word:11}  {point.label}\n"
    rest = [points[point] for point, state in states.items() if not state.finished]
    finished = len(points) - len(rest)
    yield f"{len(points)} jobs, {finished} finished, {len(rest)} to run: {estimated(rest, at_once)}\n"


def estimated(rest: Sequence[Settings], at_once: int) -> str:
    if not rest:
        return "nothing to compute"
    measured = Measured({run.outputs for run in rest})
    seconds = [measured.seconds(run) for run in rest]
    known = [s for s in seconds if s is not None]
    if not known:
        return "no finished run of these algorithms, data sets and models to measure by"
    total = sum(known)
    line = f"about {duration(total)} of computing"
    if at_once > 1:
        line += f", {duration(max(total / min(at_once, len(known)), max(known)))} with {at_once} at a time"
    return line + (f"; no measurement for {len(rest) - len(known)} of them" if len(known) < len(rest) else "")
