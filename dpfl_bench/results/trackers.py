"""TensorBoard and Weights & Biases beside the run's own files: each gets the rows of metrics.csv,
which stays the truth.

Rows are read back from the file, so a tracker knows what the file knows, to the bit. A run that
goes on from a checkpoint cuts its file back; its trackers then begin anew with all rows that are
left. A tracker that fails is dropped, and the run goes on without it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import yaml
from tqdm import tqdm

from dpfl_bench.results.folder import RunFolder

Row = dict[str, float]  # without the empty cells


class Tracker(Protocol):
    def log(self, row: Row) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """run folder/tensorboard/seed_N: a scalar in double precision for each column and evaluated
    round.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tensorboard"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.writer = import_module("torch.utils.tensorboard").SummaryWriter
        self.seeds: dict[int, Any] = {}

    def log(self, row: Row) -> None:
        seed, round = int(row["seed"]), int(row["round"])
        if seed not in self.seeds:
            self.seeds[seed] = self.writer(str(self.folder / f"seed_{seed}"))
        for name, value in row.items():
            if name not in ("seed", "round"):
                self.seeds[seed].add_scalar(name, value, round, new_style=True, double_precision=True)

    def close(self) -> None:
        for writer in self.seeds.values():
            writer.close()


class WandB:
    """One W&B run under the run's id, a step for each row. WANDB_MODE=offline keeps it in run
    folder/wandb, for `wandb sync`.
    """

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder / "wandb", ignore_errors=True)
        wandb = import_module("wandb")
        config = yaml.safe_load((folder / ".hydra" / "config.yaml").read_text())
        project = None if wandb.setup().settings.project else "dpfl-bench"
        self.run = wandb.init(
            id=folder.name,
            resume="allow",
            dir=folder,
            project=project,
            config=config,
            settings=wandb.Settings(console="off"),
        )
        self.rows = 0

    def log(self, row: Row) -> None:
        if (
            self.rows >= self.run.starting_step
        ):  # the server has the others: the same rows, of the attempt before
            self.run.log(row, step=self.rows)
        self.rows += 1

    def close(self) -> None:
        self.run.finish()


TRACKERS: dict[str, Callable[[Path], Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB}


class Followers:
    """The trackers of one run. They are opened when the first row is there."""

    def __init__(self, names: Sequence[str], folder: RunFolder) -> None:
        self.folder, self.closed, self.read = folder, names, 0
        self.open: dict[str, Tracker] = {}

    def follow(self) -> None:
        """Hand on the rows that metrics.csv has gained."""
        for name in self.closed:
            self._guarded(name, partial(self._begin, name))
        self.closed = ()
        for row in self._new_rows() if self.open else ():
            for name, tracker in list(self.open.items()):
                self._guarded(name, partial(tracker.log, row))

    def close(self) -> None:
        for name, tracker in list(self.open.items()):
            self._guarded(name, tracker.close)

    def _begin(self, name: str) -> None:
        self.open[name] = TRACKERS[name](self.folder.path)

    def _new_rows(self) -> list[Row]:
        with self.folder.metrics.path.open("rb") as file:
            columns = file.readline().decode().strip().split(",")
            file.seek(max(self.read, file.tell()))
            lines = file.read().decode().splitlines()
            self.read = file.tell()
        return [
            {name: float(cell) for name, cell in zip(columns, line.split(","), strict=True) if cell}
            for line in lines
        ]

    def _guarded(self, name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            self.open.pop(name, None)
            said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            tqdm.write(
                f"dpfl-bench: trackers: {name} failed ({said}); the run goes on without it, metrics.csv has"
                " all rows",
                file=sys.stderr,
            )


@contextmanager
def following(names: Sequence[str], folder: RunFolder) -> Iterator[Followers]:
    """To be told by `follow` whenever metrics.csv has grown; closed at the end, whichever it is."""
    followers = Followers(names, folder)
    try:
        yield followers
        followers.follow()
    finally:
        followers.close()
