"""`dpfl-bench reproduce`: the runs that are missing, stage by stage, then figures, tables and
verdicts.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpfl_bench.checks import nearest
from dpfl_bench.checks.errors import ConfigError, located
from dpfl_bench.config import compose
from dpfl_bench.config.compose import Expanded
from dpfl_bench.machine import signals
from dpfl_bench.machine.say import say
from dpfl_bench.papers import check, dry_run, overview, report, verdict
from dpfl_bench.papers.artefact import chosen
from dpfl_bench.papers.evidence import Evidence
from dpfl_bench.papers.overlays import READINGS, SCALES, Reading, Scale
from dpfl_bench.results.figures.style import WIDTHS
from dpfl_bench.sweep import whole_sweep
from dpfl_bench.sweep.gathered import CONFIG, Place
from dpfl_bench.sweep.whole_sweep import Ways

STOPPED = (2, *signals.CODES)  # refused, or interrupted


@dataclass(frozen=True)
class Asked:
    """The words of the command."""

    which: str
    scale: Scale = "smoke"
    reading: Reading | Literal["both"] = "paper"
    outputs: str = "outputs"
    width: str = "double"
    launcher: Sequence[str] = ()  # overrides of Hydra's own keys
    config_dir: str | None = None
    plot_only: bool = False
    check: str | None = None  # the folder to compare with; empty: the committed reports

    def __post_init__(self) -> None:
        for key, value, allowed in (
            ("scale", self.scale, SCALES),
            ("reading", self.reading, (*READINGS, "both")),
            ("figure.width", self.width, tuple(WIDTHS)),
        ):
            if value not in allowed:
                near = nearest.choice(value, allowed)
                meant = nearest.did_you_mean(near and f"{key}={near}")
                raise ConfigError(f"{key}={value}: expected {' or '.join(allowed)}{meant}")

    def evidences(self) -> list[Evidence]:
        """Everything that the command reproduces."""
        artefacts = chosen(self.which, self.config_dir)
        compose.composer.cache_clear()  # files may have changed since the last one of this process
        composer = compose.composer(self.config_dir, CONFIG)
        place = Place(f"{self.outputs}/papers", self.config_dir, composer)
        readings: Sequence[Reading] = READINGS if self.reading == "both" else (self.reading,)
        return [Evidence(each, self.scale, reading, place) for reading in readings for each in artefacts]

    def command(self, evidence: Evidence) -> str:
        """What a user types for one artefact."""
        words = [evidence.artefact.id, f"scale={self.scale}", f"reading={evidence.reading}"]
        words += [f"outputs={self.outputs}"] if self.outputs != "outputs" else []
        return shlex.join(
            ["dpfl-bench", "reproduce", *words, *(["-cd", self.config_dir] if self.config_dir else [])]
        )


def reproduce(asked: Asked, ways: Ways) -> int:
    """0 if every run that can be made here is done, and --check finds no other number; whatever the
    verdicts are.
    """
    committed = None if asked.check is None else check.folder(asked.check)
    evidences = asked.evidences()
    if ways.dry:
        sys.stdout.writelines(dry_run.lines(evidences))
        return 0
    for depth in range(1 + max(each.depth for each in evidences)):
        if (code := _run(evidences, depth, asked, ways)) in STOPPED:
            return code
    unfinished = any(sweep.unfinished for each in evidences for sweep in each.sweeps.values())
    return _write(evidences, asked, committed) or int(unfinished)  # a run that diverged is finished


def _run(evidences: Sequence[Evidence], depth: int, asked: Asked, ways: Ways) -> int:
    """The runs of one stage, of all artefacts together: each run once."""
    code = 0
    for each in evidences:
        each.plan(depth)
    sweeps = [sweep for each in evidences for sweep in each.at_depth(depth)]
    jobs = {point.run_id: point.overrides for sweep in sweeps for point in sweep.points}
    if jobs and not asked.plot_only:
        launcher = evidences[0].place.composer.sweep(list(asked.launcher)).launcher
        expanded = Expanded(list(jobs.values()), launcher)
        code = whole_sweep.run_jobs(expanded, asked.config_dir, CONFIG, ways)
    for each in evidences:
        each.read(depth)
    return code


def _write(evidences: Sequence[Evidence], asked: Asked, committed: Path | None) -> int:
    """2 where a file asks for what the runs do not have, which does not stop other artefacts. 1
    where a number is not the committed one.
    """
    code = 0
    for each in evidences:
        try:
            with located(each.artefact.file):
                record = verdict.write(each, asked.command(each), asked.width)
        except ConfigError as error:
            say(str(error))
            code = 2
            continue
        say(f"{each.artefact.id} scale={each.scale} reading={each.reading}: {overview.counts(record)}")
        sys.stdout.write(f"{each.folder}\n")
        if committed is not None:
            at = f"{each.scale}-{each.reading}"
            differs = check.tell(each.artefact, committed / each.artefact.id / at, each.folder / at)
            code = max(code, differs)
    papers = Path(asked.outputs) / "papers"
    papers.mkdir(parents=True, exist_ok=True)
    say(f"everything in one file: {report.write(papers, asked.config_dir)}")
    return code
