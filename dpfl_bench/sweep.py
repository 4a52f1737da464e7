"""One job, or every combination of swept values in one warm process."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from dpfl_bench import compose
from dpfl_bench.compose import Composed
from dpfl_bench.config import settings
from dpfl_bench.settings import ConfigError, Settings


@dataclass(frozen=True)
class Job:
    composed: Composed
    settings: Settings

    @property
    def label(self) -> str:
        return " ".join(self.composed.overrides) or "defaults"


def run_one(overrides: Sequence[str], config_dir: str | None, config_name: str) -> int:
    composed = compose.composed(overrides, config_dir, config_name)
    return _train(Job(composed, settings(composed)))


def run_all(overrides: Sequence[str], config_dir: str | None, config_name: str) -> int:
    """Validate every job before the first one starts; then a failed job does not stop the others. 1 if any failed."""
    jobs = _validated(compose.expand(overrides), config_dir, config_name)
    failed: list[str] = []
    with tqdm(jobs, unit="job", desc="sweep", disable=None, file=sys.stderr, leave=False) as bar:
        for job in bar:
            try:
                code = _train(job)
            except Exception as error:
                if not isinstance(error, ConfigError):
                    traceback.print_exc()
                failed.append(f"{job.label}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
                continue
            if code in (130, 143):
                return code
            if code:
                failed.append(f"{job.label}: diverged")
    _say(f"{len(jobs) - len(failed)} of {len(jobs)} jobs done")
    for line in failed:
        _say(f"failed: {line}")
    return 1 if failed else 0


def _validated(expanded: list[list[str]], config_dir: str | None, config_name: str) -> list[Job]:
    jobs = []
    for number, overrides in enumerate(expanded, start=1):
        try:
            composed = compose.composed(overrides, config_dir, config_name)
            jobs.append(Job(composed, settings(composed)))
        except ConfigError as error:
            raise ConfigError(f"job {number} of {len(expanded)} ({' '.join(overrides)}): {error}") from None
    return jobs


def _train(job: Job) -> int:
    from dpfl_bench import report
    from dpfl_bench.results.folder import RunFolder
    from dpfl_bench.run import Interrupted, run

    folder = RunFolder.at(job.settings.outputs, job.settings.run_id)
    known = folder.finished
    if known is None:
        try:
            run(job.settings, job.composed.overrides, job.composed.yaml())
        except Interrupted as error:
            _say(f"{error}; the same command goes on from its checkpoint in {folder.path}")
            return error.exit_code
    result = known or folder.finished
    assert result is not None
    _say(("already done: " if known else "") + report.summary(result))
    tqdm.write(str(folder.path), file=sys.stdout)
    return 1 if result["status"] == "diverged" else 0


def _say(line: str) -> None:
    tqdm.write(f"dpfl-bench: {line}", file=sys.stderr)
