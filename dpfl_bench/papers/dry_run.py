"""`reproduce --dry-run`: what there is to compute, and how long it may take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dpfl_bench.machine.say import duration
from dpfl_bench.papers.evidence import Evidence
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.sweep.dry_run import estimated

CORES = 2  # that the files' costs are for
SECONDS = {
    "s": 1,
    "min": 60,
    "h": 3600,
    "days": 86400,
    "core-hours": 3600 / CORES,
    "core-days": 86400 / CORES,
}


def lines(evidences: Sequence[Evidence]) -> Iterator[str]:
    """A line for each artefact, and one for all: a run that several share counts once."""
    jobs: set[str] = set()
    rest: set[str] = set()
    seconds = 0.0
    for each in evidences:
        each.plan(0)
        runs = {point: run for sweep in each.at_depth(0) for point, run in sweep.points.items()}
        unfinished = {
            point: run for point, run in runs.items() if not RunFolder(point.folder).state().finished
        }
        own = {point.run_id for point in unfinished}
        cost = str(each.artefact.cost.get(each.scale, "no cost"))
        measured = estimated([run for point, run in runs.items() if point.run_id in own], 1)
        words = [f"{len(runs)} jobs, {len(runs) - len(own)} finished: {measured}"]
        later = [sweep.name for sweep in each.sweeps.values() if sweep.before]
        words += [f"then {', '.join(later)} at the best of these"] if later else []
        words += [f"its file says {cost}"]
        words += dict.fromkeys(sweep.lacks for sweep in each.sweeps.values() if sweep.lacks)
        seconds += _seconds(cost) * (len(own - rest) / len(runs) if runs else 1)
        jobs |= {point.run_id for point in runs}
        rest |= own
        yield f"{each.artefact.id} scale={each.scale} reading={each.reading}: {'; '.join(words)}\n"
    if len(evidences) > 1:
        left = (
            f"about {duration(seconds)} on {CORES} cores, by their files" if seconds else "nothing to compute"
        )
        yield f"in all {len(jobs)} jobs, {len(jobs - rest)} finished: {left}\n"


def _seconds(cost: str) -> float:
    """Of a cost as the files say it; 0 of other words."""
    found = re.match(rf"([\d.]+) ({'|'.join(SECONDS)})\b", cost)
    return float(found[1]) * SECONDS[found[2]] if found else 0.0
