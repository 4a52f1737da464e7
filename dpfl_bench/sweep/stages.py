"""`key=best:FOLDER`: a second sweep takes what was best in a first one, job by job.

`local_steps=best:outputs/tune` is, for each job, the local steps of the best run of outputs/tune
that has the job's values of everything else that was swept there. Several keys of one folder come
from one run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.compose import Composer
from dpfl_bench.config.words import word
from dpfl_bench.results.folder import MEASURES

# key=best:FOLDER or key=best:FOLDER:MEASURE; Hydra writes \: in a sweep's jobs
WORD = re.compile(r"([\w.]+)=best\\?:([^:]+?)(?:\\?:(\w+))?")


def with_best(composer: Composer, job: tuple[str, ...]) -> tuple[str, ...]:
    """The job with a value in place of each `best:FOLDER`."""
    asked = {match[1]: (match[2], match[3] or MEASURES[0]) for each in job if (match := WORD.fullmatch(each))}
    if not asked:
        return job
    rest = [each for each in job if not WORD.fullmatch(each)]
    settings = composer.job(rest).by_name
    taken: dict[str, Any] = {}
    for place in dict.fromkeys(asked.values()):
        keys = [key for key, own in asked.items() if own == place]
        taken |= _best(*place, keys, settings)
    return tuple(word(match[1], taken[match[1]]) if (match := WORD.fullmatch(each)) else each for each in job)


def _best(folder: str, by: str, keys: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The keys' values at the best point among the folder's runs that are like the job."""
    from dpfl_bench.results.select.cells import cells
    from dpfl_bench.results.select.selection import Selection

    sources, differing = _runs(folder)
    where = {key: settings.get(key) for key in differing if key not in keys}
    alike = [run for run in sources if all(run.settings.get(k) == v for k, v in where.items())]
    said = f"{', '.join(keys)}=best:{folder}"
    if not alike:
        expected = ", ".join(f"{key}={value}" for key, value in where.items()) or "any setting"
        raise ConfigError(
            f"{said}: expected finished runs there with this job's {expected}, found none; say the same"
            f" values, or take these keys from {folder}, too"
        )
    (cell,) = cells(alike, Selection(by, best_over=[*keys]).question())
    return dict(cell.tuned)


@lru_cache(maxsize=16)
def _runs(folder: str) -> tuple[Sequence[Any], Sequence[str]]:
    """The finished runs below the folder, and the settings in which they differ beside seeds."""
    from dpfl_bench.results.collect import columns, folders
    from dpfl_bench.results.select.cells import SEEDS
    from dpfl_bench.results.select.sources import Run

    survey = folders.look([folder])
    left = sum(1 for run in survey.runs if run.word) + sum(count for _, count in survey.missing)
    if left:
        raise ConfigError(
            f"best:{folder}: expected a sweep that is done, {left} of its runs are not; finish it first"
            f" (dpfl-bench status {folder})"
        )
    runs = [Run("", Path(run.path), run.result) for run in survey.runs if run.result]
    differing = columns.columns([run.path for run in runs]).differing if runs else []
    chosen = [key for key in differing if key not in SEEDS and not key.endswith("_target_")]
    return runs, chosen
