"""Where an interrupted run goes on: at the newest of its checkpoints that is whole and of this run,
else at the beginning.
"""

from __future__ import annotations

from pathlib import Path

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.experiment.job import Job
from dpfl_bench.experiment.train import Checkpoint
from dpfl_bench.machine import sealed
from dpfl_bench.machine.say import say
from dpfl_bench.results import origin
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.origin import Origin
from dpfl_bench.results.provenance import Finding


class _Unusable(ValueError):
    """The checkpoint cannot be used; the message says why. `rows`: because of metrics.csv."""

    def __init__(self, why: str, rows: bool = False) -> None:
        super().__init__(why)
        self.rows = rows


def checkpoint(folder: RunFolder, job: Job, now: Origin) -> Checkpoint | None:
    """The checkpoint to go on from; None: begin anew. A checkpoint that cannot be used is kept
    under another name, and a message says so. Raises ConfigError for one of other code or data.
    """
    lines: list[str] = []
    usable = None
    for file in (folder.checkpoint, folder.previous):
        try:
            usable = _usable(folder, file, job)
            if usable:
                _check_origin(folder, file, job, usable, now)
                break
        except (_Unusable, sealed.Broken) as error:
            lines.append(f"{file}: {error}; {_kept(folder, file, getattr(error, 'rows', False))}")
    onward = f"goes on from round {usable.done} of seed {usable.seed}" if usable else "begins anew"
    for line in lines:
        say(f"{line}; the run {onward}")
    return usable


def _usable(folder: RunFolder, file: Path, job: Job) -> Checkpoint | None:
    if not file.exists():
        return None
    run_id = sealed.footer(file).get("run_id")
    if run_id != job.settings.run_id:
        raise _Unusable(f"is a checkpoint of run {run_id}")
    loaded = Checkpoint.load(file)
    kept = {"metrics.csv": (folder.metrics, loaded.metrics_bytes, loaded.metrics_sum)}
    if loaded.iterates_bytes:
        kept["iterates.csv"] = (folder.iterates, loaded.iterates_bytes, loaded.iterates_sum)
    for name, (table, size, digest) in kept.items():
        if table.sum(size) != digest:
            raise _Unusable(
                f"{name} is shorter than the {size} bytes that it was, or was changed",
                rows=name == "metrics.csv",
            )
    return loaded


def _kept(folder: RunFolder, file: Path, rows: bool) -> str:
    kept = f"kept as {folder.keep_bad(file).name}"
    table = folder.metrics.path
    return f"{kept}, and {folder.keep_bad(table, copied=True).name}" if rows and table.exists() else kept


def _check_origin(folder: RunFolder, file: Path, job: Job, checkpoint: Checkpoint, now: Origin) -> None:
    """Refuse to go on with other code or other records than the checkpoint's. With `--accept` other
    code may go on; other records never may.
    """
    then = sealed.footer(file).get("origin") or {}
    differs = [] if origin.accepted(folder, now) else origin.differing(then, now, folder)
    if differs:
        raise ConfigError(Finding(folder, now, differs, begun=True).question())
    if checkpoint.data != job.data.digest:
        raise ConfigError(
            f"{folder.path}: begun on other data than {job.data.records.source}; expected the same records;"
            " bring them back, say outputs=DIR, or delete the folder to begin anew"
        )
    if then.get("package") != now.hashes["package"]:
        say(
            f"{folder.path}: goes on, begun by other code of dpfl-bench; the code that the run names is the"
            " same"
        )
