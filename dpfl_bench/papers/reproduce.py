"""`dpfl-bench reproduce`: the runs that are missing, stage by stage, then figures, tables and
verdicts.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import compose
from dpfl_bench.config.compose import Expanded
from dpfl_bench.machine.say import say
from dpfl_bench.papers import gather, overview, report, verdict
from dpfl_bench.papers.artefact import Artefact, chosen
from dpfl_bench.papers.gather import Evidence, Where
from dpfl_bench.papers.shape import READINGS, SCALES
from dpfl_bench.results.figures.style import WIDTHS
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.sweep import whole_sweep
from dpfl_bench.sweep.dry_run import estimated
from dpfl_bench.sweep.whole_sweep import Ways

BOTH = "both"  # readings


@dataclass(frozen=True)
class Asked:
    """The words of the command."""

    which: str
    scale: str = "smoke"
    reading: str = READINGS[0]
    outputs: str = "outputs"
    width: str = "double"
    launcher: Sequence[str] = ()  # overrides of Hydra's own keys
    config_dir: str | None = None
    plot_only: bool = False

    def __post_init__(self) -> None:
        for key, value, allowed in (
            ("scale", self.scale, SCALES),
            ("reading", self.reading, (*READINGS, BOTH)),
            ("figure.width", self.width, tuple(WIDTHS)),
        ):
            if value not in allowed:
                raise ConfigError(f"{key}={value}: expected {' or '.join(allowed)}")

    @property
    def readings(self) -> Sequence[str]:
        return READINGS if self.reading == BOTH else (self.reading,)


@dataclass
class Whole:
    """Everything that one command reproduces."""

    asked: Asked
    ways: Ways
    evidences: list[Evidence] = field(default_factory=list)
    code: int = 0

    def begin(self) -> None:
        artefacts = chosen(self.asked.which, self.asked.config_dir)
        compose.composer.cache_clear()  # files may have changed since the last one of this process
        self.composer = compose.composer(self.asked.config_dir, gather.CONFIG)
        for reading in self.asked.readings:
            where = Where(
                self.asked.scale,
                reading,
                f"{self.asked.outputs}/papers",
                self.asked.config_dir,
                self.composer,
            )
            self.evidences += [gather.gathered(artefact, where) for artefact in artefacts]

    @property
    def depths(self) -> range:
        return range(1 + max(evidence.depth for evidence in self.evidences))

    def run(self, depth: int) -> None:
        """The runs of one stage, of all artefacts together: each run once."""
        for evidence in self.evidences:
            evidence.plan_jobs(depth)
        jobs = {
            point.run_id: point.overrides
            for evidence in self.evidences
            for each in evidence.at_depth(depth)
            for point in each.points
        }
        if jobs and not self.asked.plot_only:
            launcher = self.composer.sweep(list(self.asked.launcher)).launcher
            expanded = Expanded(list(jobs.values()), launcher)
            code = whole_sweep.run_jobs(expanded, self.asked.config_dir, gather.CONFIG, self.ways)
            self.code = max(self.code, code)
        for evidence in self.evidences:
            evidence.read(depth)

    @property
    def unfinished(self) -> bool:
        """A run that diverged is finished."""
        return any(each.unfinished for evidence in self.evidences for each in evidence.sweeps.values())

    def write(self) -> None:
        """An artefact whose file asks for what the runs do not have does not stop the others."""
        for evidence in self.evidences:
            command = _command(evidence.artefact, evidence.where)
            try:
                record = verdict.write(evidence, command, self.asked.width)
            except ConfigError as error:
                say(f"{evidence.artefact.file}: {error}")
                self.code = 2
                continue
            where = f"scale={record['scale']} reading={record['reading']}"
            say(f"{record['artefact']} {where}: {overview.counts(record)}")
            sys.stdout.write(f"{verdict.folder(evidence.where.outputs, evidence.artefact)}\n")
        papers = Path(self.asked.outputs) / "papers"
        papers.mkdir(parents=True, exist_ok=True)
        say(f"everything in one file: {report.write(papers, self.asked.config_dir)}")


def reproduce(asked: Asked, ways: Ways) -> int:
    """0 if every run that can be made here is done; whatever the verdicts are."""
    whole = Whole(asked, ways)
    whole.begin()
    if ways.dry:
        return _describe(whole)
    for depth in whole.depths:
        whole.run(depth)
        if whole.code in (2, 130, 140, 143):  # refused, or interrupted
            return whole.code
    whole.write()
    return whole.code if whole.code == 2 else int(whole.unfinished)


def _command(artefact: Artefact, where: Where) -> str:
    words = ["dpfl-bench", "reproduce", artefact.id, f"scale={where.scale}", f"reading={where.reading}"]
    outputs = where.outputs.removesuffix("/papers")
    words += [f"outputs={outputs}"] if outputs != "outputs" else []
    return shlex.join([*words, *(["-cd", where.config_dir] if where.config_dir else [])])


def _describe(whole: Whole) -> int:
    """A line for each artefact: its jobs, how many are done, and how long the rest may take."""
    for evidence in whole.evidences:
        evidence.plan_jobs(0)
        runs = {point: run for each in evidence.at_depth(0) for point, run in each.points.items()}
        rest = [run for point, run in runs.items() if not RunFolder(point.folder).state().finished]
        later = [e.sweep.name for e in evidence.sweeps.values() if e.sweep.at_best is not None]
        parts = [f"{len(runs)} jobs, {len(runs) - len(rest)} finished: {estimated(rest, 1)}"]
        parts += [f"then {', '.join(later)} at the best of these"] if later else []
        parts += [f"its file says {evidence.artefact.cost.get(evidence.where.scale, 'no cost')}"]
        parts += list(dict.fromkeys(e.lacks for e in evidence.sweeps.values() if e.lacks))
        words = f"scale={evidence.where.scale} reading={evidence.where.reading}"
        sys.stdout.write(f"{evidence.artefact.id} {words}: {'; '.join(parts)}\n")
    return 0
