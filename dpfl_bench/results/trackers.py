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

from tqdm import tqdm

from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.hyper_parameters import About

Row = dict[str, float]  # without the empty cells
COMPARED = ("test_error", "test_loss", "train_loss", "eps")  # columns that HPARAMS shows


class Tracker(Protocol):
    def log(self, row: Row) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """run folder/tensorboard/NAME-seed_N: a scalar in double precision for each column and
    evaluated round, and the settings for the tab HPARAMS.
    """

    def __init__(self, folder: Path, about: About) -> None:
        self.folder, self.about = folder / "tensorboard", about
        shutil.rmtree(self.folder, ignore_errors=True)
        self.writer = import_module("torch.utils.tensorboard").SummaryWriter
        self.hparams = import_module("torch.utils.tensorboard.summary").hparams
        self.seeds: dict[int, Any] = {}

    def log(self, row: Row) -> None:
        seed, round = int(row["seed"]), int(row["round"])
        if seed not in self.seeds:
            self.seeds[seed] = self._opened(seed)
        for name, value in row.items():
            if name not in ("seed", "round"):
                self.seeds[seed].add_scalar(name, value, round, new_style=True, double_precision=True)

    def _opened(self, seed: int) -> Any:
        writer = self.writer(str(self.folder / f"{self.about.name}-seed_{seed}"))
        parameters = {**self.about.parameters, "seed": seed}
        for summary in self.hparams(parameters, dict.fromkeys(COMPARED, 0.0)):  # of metrics, the names
            writer.file_writer.add_summary(summary)
        return writer

    def close(self) -> None:
        for writer in self.seeds.values():
            writer.close()


class WandB:
    """A W&B run for each seed, RUN_ID-seed_N, in a group that is the run. A step is a round.
    WANDB_MODE=offline keeps them in run folder/wandb, for `wandb sync`.
    """

    def __init__(self, folder: Path, about: About) -> None:
        self.folder, self.about = folder, about
        shutil.rmtree(folder / "wandb", ignore_errors=True)
        self.wandb = import_module("wandb")
        self.seed: int | None = None
        self.run: Any = None

    def log(self, row: Row) -> None:
        seed, round = int(row["seed"]), int(row["round"])
        if seed != self.seed:
            self.close()
            self.seed, self.run = seed, self._begun(seed)
        if round >= self.run.starting_step:  # the server has the others, of the attempt before
            self.run.log(row, step=round)

    def _begun(self, seed: int) -> Any:
        run = self.wandb.init(
            id=f"{self.folder.name}-seed_{seed}",
            name=f"{self.about.name}-seed_{seed}",
            group=self.folder.name,
            resume="allow",
            dir=self.folder,
            project=None if self.wandb.setup().settings.project else "dpfl-bench",
            config={**self.about.parameters, "seed": seed},
            settings=self.wandb.Settings(console="off"),
        )
        run.define_metric("*", step_metric="round")
        return run

    def close(self) -> None:
        if self.run is not None:
            self.run.finish()
        self.run = None


TRACKERS: dict[str, Callable[[Path, About], Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB}


class Followers:
    """The trackers of one run. They are opened when the first row is there."""

    def __init__(self, names: Sequence[str], folder: RunFolder, about: About) -> None:
        self.folder, self.about, self.closed, self.read = folder, about, names, 0
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
        self.open[name] = TRACKERS[name](self.folder.path, self.about)

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
def following(names: Sequence[str], folder: RunFolder, about: About) -> Iterator[Followers]:
    """To be told by `follow` whenever metrics.csv has grown; closed at the end, whichever it is."""
    followers = Followers(names, folder, about)
    try:
        yield followers
        followers.follow()
    finally:
        followers.close()
