"""OUTPUTS/slurm/NAME: what one submission handed to Slurm, and under which ids. It outlives the
launcher: the same command finds its jobs.

NAME is also the jobs' name. `tasks.json` is written before the submission and `ids.json` after it:
a submission without the second one was cut off, and whatever it left in the queue is found by name.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dpfl_bench.machine import file_lock


@dataclass(frozen=True)
class Record:
    folder: Path
    tasks: tuple[tuple[str, ...], ...]  # the run ids of each task

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def ids(self) -> tuple[str, ...]:
        """Slurm's, one for each task; none before all are submitted."""
        try:
            return tuple(json.loads((self.folder / "ids.json").read_text()))
        except FileNotFoundError:
            return ()

    @property
    def since(self) -> float:
        """When the submission began, by the clock of the folder's file system."""
        return (self.folder / "tasks.json").stat().st_mtime

    def log(self, job: str) -> Path:
        return self.folder / f"{job}_0_log.out"

    def submitted(self, ids: Sequence[str]) -> None:
        _write(self.folder / "ids.json", ids)

    def close(self) -> None:
        """Nothing of it is in the queue any more: its logs stay."""
        for path in (
            *self.folder.glob("*.pkl"),
            *self.folder.glob(".submission*"),
            self.folder / "ids.json",
            self.folder / "tasks.json",
        ):
            path.unlink(missing_ok=True)


def opened(root: Path, tasks: Sequence[Sequence[str]]) -> Record:
    folder = root / f"dpfl-{datetime.now():%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"
    folder.mkdir(parents=True)
    _write(folder / "tasks.json", tasks)
    return Record(folder, tuple(tuple(task) for task in tasks))


def known(root: Path) -> list[Record]:
    """All that are not closed, the oldest first."""
    records = []
    for path in sorted(root.glob("*/tasks.json")):
        try:
            records.append(Record(path.parent, tuple(tuple(task) for task in json.loads(path.read_text()))))
        except FileNotFoundError:  # closed in between by another launcher
            continue
    return records


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """One launcher at a time looks at the records and submits."""
    root.mkdir(parents=True, exist_ok=True)
    with file_lock.alone(root / "lock", keep=True):
        yield


def _write(path: Path, content: object) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(content) + "\n")
    part.replace(path)
