"""A parameter of one algorithm, in a sweep over several: it is set where the algorithm has it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.catalogue import EXPERIMENT, GROUPS
from dpfl_bench.config.compose import Composer

Job = tuple[str, ...]
PARAMETER = re.compile(r"algo\.([\w.]+)=")


def applied(composer: Composer, jobs: Sequence[Job]) -> tuple[list[Job], list[str]]:
    """The jobs without parameters that their algorithm lacks and another one of the sweep has, each
    job once; and a line for each such parameter. One that no algorithm has stays, to be refused.
    """

    @cache
    def algorithm(choices: Job) -> Mapping[str, Any]:
        try:
            return dict(composer.job(choices).reference["algo"])
        except ConfigError:  # the job's own refusal says why
            return {}

    algorithms = [algorithm(_choices(job)) for job in jobs]
    having: dict[str, dict[str, bool]] = {}  # parameter -> algorithm -> whether it has it
    for job, each in zip(jobs, algorithms, strict=True):
        for name in _parameters(job):
            having.setdefault(name, {})[str(each.get("name"))] = _has(each, name)
    partly = {name for name, found in having.items() if any(found.values()) and not all(found.values())}
    if not partly:  # jobs that were asked for twice are told by the sweep
        return [*jobs], []
    kept = [
        tuple(word for word in job if _name(word) not in partly or _has(each, _name(word)))
        for job, each in zip(jobs, algorithms, strict=True)
    ]
    return list(dict.fromkeys(kept)), [_told(name, having[name]) for name in sorted(partly)]


def _choices(job: Job) -> Job:
    """The words of a job that choose files."""
    groups = (*GROUPS, EXPERIMENT)
    return tuple(word for word in job if word.partition("=")[0].lstrip("+") in groups)


def _parameters(job: Job) -> list[str]:
    return [name for word in job if (name := _name(word))]


def _name(word: str) -> str:
    """mu of algo.mu=0.1; nothing of other words."""
    found = PARAMETER.match(word)
    return found[1] if found else ""


def _has(algorithm: Mapping[str, Any], name: str) -> bool:
    node: Any = algorithm
    for key in name.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return False
        node = node[key]
    return True


def _told(name: str, having: Mapping[str, bool]) -> str:
    with_it, without = ([algo for algo, has in having.items() if has is wanted] for wanted in (True, False))
    return f"algo.{name} is set for {', '.join(with_it)}; {', '.join(without)} has no such parameter"
