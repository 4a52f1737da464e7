"""A run folder: the only place that knows its files. Everything but the growing CSVs is written
atomically.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import platform
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl_bench.config import measures
from dpfl_bench.config.measures import DIRECTIONS
from dpfl_bench.results.json_numbers import clean
from dpfl_bench.results.lock import holder, locked

if TYPE_CHECKING:
    import numpy as np

METRICS = [
    *("seed", "round", "steps", "eps", "train_loss", "test_loss", "test_metric", "test_error"),
    *("update_norm", "clipped_fraction", "server_step", "clip", "client_test_metric"),
    *("suboptimality", "distance", "psi", "psi_bound"),  # where the exact optimum is known
    "blanked",  # what came to a closed door in that round, was not finite, and counted as zero
    *("signal_norm", "noise_norm"),  # of what the round released: the mean bounded update, its noise
]
MEASURES = ("test_error", "test_loss", "train_loss")  # of those, what a point may be best by
ITERATES = ["seed", "round", *(f"d{k}" for k in range(1, DIRECTIONS + 1)), "along", "across"]
TIMING = ["seed", "round", "seconds"]
FINISHED = ("done", "diverged")
SET_ASIDE = re.compile(
    r"\.old-\d+$"
)  # names of folders that a run which was computed anew had before: no runs any more
BROKEN = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)  # what files raise that are not ours, or only half of them


@dataclass(frozen=True)
class RunState:
    """What became of a run: done, diverged, running, failed, interrupted, missing, unreadable, or
    died (its process, without a word).
    """

    word: str
    error: str | None = None

    @property
    def finished(self) -> bool:
        return self.word in FINISHED

    @property
    def first_line(self) -> str:
        return (self.error or self.word).partition("\n")[0]


def plain_text(file: Path) -> str:
    """The text of a file; ValueError where it is a pipe, which would be waited for."""
    mode = file.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a folder raises by itself
        raise ValueError(f"{file}: expected a file")
    return file.read_text()


class RunFolder:
    """outputs/runs/<run_id>. `run_id`: the run that is asked for; a result of another one that lies
    here is not taken for its own.
    """

    def __init__(self, path: Path, run_id: str | None = None) -> None:
        self.path, self.run_id = path, run_id
        self.metrics = GrowingCsv(path / "metrics.csv", METRICS)
        self.timing = GrowingCsv(path / "timing.csv", TIMING)
        self.iterates = GrowingCsv(path / "iterates.csv", ITERATES)  # with measure=[iterates]
        self.checkpoint = path / "checkpoint" / "latest.pt"
        self.previous = path / "checkpoint" / "previous.pt"  # the one before it
        self.finals = path / "checkpoint" / "final.pt"

    def measuring(self, names: list[str]) -> RunFolder:
        """The same, with the columns of these measures in its metrics.csv."""
        self.metrics.columns = [*METRICS, *measures.columns(names)]
        return self

    @staticmethod
    def at(outputs: str, run_id: str) -> RunFolder:
        return RunFolder(Path(outputs) / "runs" / run_id, run_id)

    def check_writable(self) -> None:
        """Raise the OSError that writing here would raise, before anything is computed."""
        there = next(path for path in (self.path, *self.path.absolute().parents) if path.exists())
        Path(tempfile.mkdtemp(prefix=".", dir=there)).rmdir()

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the run, None where there is none."""
        try:
            content: dict[str, Any] = json.loads(plain_text(self.path / name))
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: Mapping[str, Any] | str) -> None:
        text = content if isinstance(content, str) else json.dumps(clean(content), indent=2) + "\n"
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        part.write_text(text)
        part.replace(target)

    def tidy(self) -> None:
        """Remove what processes left half written that were killed. Nobody else may work here."""
        for part in (*self.path.glob("*.part"), *self.checkpoint.parent.glob("*.part")):
            if not part.name.startswith("lock."):  # of a process that waits for us
                part.unlink(missing_ok=True)

    def tell(self, word: str, **more: Any) -> None:
        """status.json"""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.write(
            "status.json",
            {"status": word, "updated": now, "pid": os.getpid(), "host": platform.node(), **more},
        )

    def state(self) -> RunState:
        """From the files alone, and whether the process that works here lives."""
        try:
            result = self.finished
            if result:
                where = result.get("diverged") or {}
                return RunState(
                    result["status"],
                    f"diverged in round {where.get('round')}" if result["status"] == "diverged" else None,
                )
            if holder(self.path):
                return RunState("running")
            status = self.read("status.json")
            if status is None:
                return RunState("missing")
            word = status["status"] if status["status"] in ("failed", "interrupted") else "died"
            return RunState(word, status.get("error"))
        except (*BROKEN, OSError):
            return RunState("unreadable", "status.json or result.json cannot be read")

    @property
    def finished(self) -> dict[str, Any] | None:
        """The result, if this run ended by itself. One that cannot be read is none: the run goes on
        from its checkpoint, or begins anew.
        """
        try:
            result = self.read("result.json")
            return (
                result if result and result["status"] in FINISHED and not self._is_anothers(result) else None
            )
        except BROKEN:
            return None

    @property
    def stranger(self) -> str | None:
        """The id of another run than the one asked for, if that one's result lies here: a folder
        that was copied or renamed.
        """
        try:
            result = self.read("result.json") if self.run_id else None
            return str(result["run_id"]) if result and self._is_anothers(result) else None
        except BROKEN:
            return None

    def _is_anothers(self, result: Mapping[str, Any]) -> bool:
        return bool(self.run_id and result.get("run_id", self.run_id) != self.run_id)

    def set_aside(self) -> Path:
        """Under the next free name <run_id>.old-N. Raises Busy where a process works here."""
        with locked(self.path) as claim:
            number = 1
            while (kept := self.path.with_name(f"{self.path.name}.old-{number}")).exists():
                number += 1
            self.path.rename(kept)
            claim.moved(kept)
        return kept

    def keep_bad(self, file: Path, copied: bool = False) -> Path:
        """A file that cannot be used, under the next free name FILE.bad-N; `copied`: it also stays
        where it is.
        """
        number = 1
        while (kept := file.with_name(f"{file.name}.bad-{number}")).exists():
            number += 1
        if copied:
            shutil.copyfile(file, kept)
        else:
            file.rename(kept)
        return kept


class GrowingCsv:
    """Rows are appended and flushed; after an interruption the file is cut back to where the
    checkpoint was.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, columns

    def start(self, size: int = 0) -> None:
        """Begin anew, or go on after `size` bytes; of a file that has lost some, after its whole
        lines.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if size == 0 or not self.path.exists():
            self.path.write_text(",".join(self.columns) + "\n")
        else:
            with self.path.open("rb") as file:
                os.truncate(self.path, file.read(size).rfind(b"\n") + 1)

    def sum(self, size: int) -> str:
        """Of its first `size` bytes; empty where it has fewer."""
        try:
            with self.path.open("rb") as file:
                content = file.read(size)
        except FileNotFoundError:
            return ""
        return hashlib.blake2b(content, digest_size=16).hexdigest() if len(content) == size else ""

    def append(self, row: Mapping[str, float | int | None]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow([_cell(row.get(c)) for c in self.columns])
        with self.path.open("a") as file:
            file.write(text.getvalue())

    def read(self) -> np.ndarray:
        """Its rows, by column; NaN where blank."""
        import numpy as np

        content: np.ndarray = np.genfromtxt(self.path, delimiter=",", names=True, ndmin=1)
        return content

    @property
    def size(self) -> int:
        """Bytes so far, safely on disk."""
        with self.path.open("r+b") as file:
            os.fsync(file.fileno())
        return self.path.stat().st_size


def _cell(value: float | int | None) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    plain: float | int = value.item() if hasattr(value, "item") else value  # numpy writes np.float64(0.1)
    return repr(plain)
