"""The points of a sweep: every combination of what is swept, every divisor, each validated before
the first one starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.compose import Composed, Composer
from dpfl_bench.config.rounds import divisors
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.validate import says_clients, settings
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.results.folder import RunFolder, RunState
from dpfl_bench.results.provenance import Asker
from dpfl_bench.sweep import stages
from dpfl_bench.sweep.launchers.base import Point

DIVISORS = re.compile(r"local_steps=divisors(?:\\?:(.*))?")


@dataclass(frozen=True)
class Planned:
    """The valid points without duplicates, and a line for each invalid job."""

    points: dict[Point, Settings]
    jobs: int
    errors: list[str]
    # pairs of jobs with one run id and perhaps different data: (message, first, second)
    twins: list[tuple[str, Settings, Settings]] = field(default_factory=list)


COMPARED = ("root", "url", "download")  # of a data set: in no run id, since the contents are compared


def planned(
    composer: Composer, asked: Sequence[tuple[str, ...]], config_dir: str | None, config_name: str
) -> Planned:
    points: dict[Path, tuple[Point, Settings]] = {}
    errors: list[str] = []
    twins = []
    jobs = [job for overrides in asked for job in _divided(composer, overrides, errors)]
    for number, overrides in enumerate(jobs, start=1):
        try:
            run, run_id = _checked(composer, overrides)
        except (ConfigError, PrivacyError) as error:
            errors.append(f"job {number} of {len(jobs)} ({' '.join(overrides)}): {error}")
            continue
        point = Point(overrides, config_dir, config_name, run.outputs, run_id)
        first = points.setdefault(point.folder, (point, run))
        differing = [key for key in COMPARED if run.dataset.get(key) != first[1].dataset.get(key)]
        if differing:
            key = differing[0]
            values = " and ".join(f"dataset.{key}={node.dataset.get(key)}" for node in (first[1], run))
            twins.append((f"job {number} of {len(jobs)} ({' '.join(overrides)}): {values}", first[1], run))
    return Planned(dict(points.values()), len(jobs), errors, twins)


@dataclass(frozen=True)
class _Job:
    """A composed job. Jobs with the same settings are equal, whatever the order of their words."""

    content: str
    reference: int  # whose: jobs of one choice of groups share it
    composed: Composed = field(compare=False)

    @staticmethod
    def of(composed: Composed) -> _Job:
        content = repr((composed.config, says_clients(composed.overrides)))
        return _Job(content, id(composed.reference), composed)


@lru_cache(maxsize=10_000)
def _checked(composer: Composer, overrides: tuple[str, ...]) -> tuple[Settings, str]:
    """A job's settings and its run id: artefacts of one paper share most of their jobs."""
    return _settings(composer, _Job.of(composer.job(overrides)))


@lru_cache(maxsize=10_000)
def _settings(_: Composer, job: _Job) -> tuple[Settings, str]:
    run = settings(job.composed)
    if run.private or run.algo.get("coins"):
        from dpfl_bench.budget import before_data  # accountants import numpy

        before_data.check(run)
    return run, run.run_id


def states_of(points: Iterable[Point]) -> dict[Point, RunState]:
    """What each run folder says of its run."""
    return {point: RunFolder(point.folder).state() for point in points}


def clashes(planned: Planned, asker: Asker) -> list[str]:
    """A line for each pair of jobs that have one run id and other records. Where the data lie is
    not part of the id, so their contents are compared here.
    """
    errors = []
    for said, first, other in planned.twins:
        one, two = asker.data(first), asker.data(other)
        if one is None or two is None:
            errors.append(
                f"{said} are one run if they hold the same records, which cannot be seen here; say outputs="
                " for one of them"
            )
        elif one.hash != two.hash:
            errors.append(
                f"{said} hold other records under one run id; expected the same; say outputs= for one of them"
            )
    return errors


def _divided(composer: Composer, overrides: tuple[str, ...], errors: list[str]) -> list[tuple[str, ...]]:
    try:
        return with_divisors(composer, stages.with_best(composer, overrides))
    except ConfigError as error:
        errors.append(f"{' '.join(overrides)}: {error}")
        return []


def refuse_divisors(overrides: Sequence[str]) -> None:
    for override in overrides:
        if stages.WORD.fullmatch(override):
            raise ConfigError(f"{override}: expected a value; best:FOLDER needs -m (dpfl-bench run -m ...)")
        if DIVISORS.fullmatch(override):
            raise ConfigError(
                f"{override}: expected a whole number; a sweep over divisors needs -m (dpfl-bench run -m"
                f" {override} ...)"
            )


def with_divisors(composer: Composer, job: tuple[str, ...]) -> list[tuple[str, ...]]:
    """`local_steps=divisors` as one job for each divisor of total_steps; `divisors:8` as eight of
    them.
    """
    matches = [(index, match) for index, word in enumerate(job) if (match := DIVISORS.fullmatch(word))]
    if not matches:
        return [job]
    ((index, match),) = matches
    before, after = job[:index], job[index + 1 :]
    every = divisors(_total_steps(composer, (*before, "local_steps=1", *after)))
    chosen = every if match[1] is None else spread(every, _count(match[1]))
    return [(*before, f"local_steps={steps}", *after) for steps in chosen]


def _count(word: str) -> int:
    if not word.isdigit() or int(word) < 2:
        raise ConfigError(
            f"local_steps=divisors:{word}: expected at least 2 of them (the first and the last), or divisors"
            " for all"
        )
    return int(word)


def _total_steps(composer: Composer, job: tuple[str, ...]) -> int:
    composed = composer.job(job)
    rounds = composed.config.get("rounds")
    if rounds is not None:
        raise ConfigError(
            f"local_steps=divisors, rounds={rounds}: expected total_steps, whose divisors are meant; the"
            " rounds follow"
        )
    return settings(composed).total_steps


def spread(values: Sequence[int], count: int) -> list[int]:
    """`count` of the ascending values, the first and the last included, as evenly as they lie on a
    logarithmic scale.
    """
    if count >= len(values):
        return list(values)
    chosen: list[int] = []
    for place in range(count):
        wanted = math.log(values[0]) + (math.log(values[-1]) - math.log(values[0])) * place / (count - 1)
        first = values.index(chosen[-1]) + 1 if chosen else 0
        left = values[first : len(values) - (count - place - 1)]
        chosen.append(min(left, key=lambda value: abs(math.log(value) - wanted)))
    return chosen
