"""What a launcher gets, what it must do, and what its workers do. A point is plain data, so it can
be pickled to other processes and nodes.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from dpfl_bench.checks.errors import ConfigError, one_line
from dpfl_bench.config.compose import Composed, composer
from dpfl_bench.machine.imports import preload
from dpfl_bench.machine.say import say, say_done
from dpfl_bench.machine.signals import Interrupted, WorkerDied
from dpfl_bench.results.attempt import attempt
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.lock import Busy, Claim, Lost
from dpfl_bench.sweep.progress import Progress

BUSY = 75  # `work`'s answer where another process has the point and we do not wait


@dataclass(frozen=True)
class Point:
    """One job of a sweep."""

    overrides: tuple[str, ...]
    config_dir: str | None
    config_name: str
    outputs: str
    run_id: str

    @property
    def folder(self) -> Path:
        return Path(self.outputs) / "runs" / self.run_id

    @property
    def label(self) -> str:
        return " ".join(self.overrides) or "defaults"


class Launcher(Protocol):
    """Chosen by `hydra/launcher=NAME`; the keys of conf/hydra/launcher/NAME.yaml are its
    constructor's.
    """

    waits_for_others: ClassVar[bool]  # whether it also takes points that another process works on

    @property
    def at_once(self) -> int:
        """Points at a time."""

    def launch(self, points: Sequence[Point], progress: Progress) -> None:
        """Run every point and return when none is left running.

        The run folder alone (status.json, result.json) says what became of a point: a point
        that fails, is killed or whose node is lost never raises here and never stops the others.
        Call `progress.update()` while waiting, as often as you like. Raises `signals.Interrupted`
        after a signal (nothing is left running) and `Detached` where jobs go on without us.
        """


class Detached(Exception):
    """The jobs go on without us; the message says where, and how to look after them."""


def work(point: Point, composed: Composed | None = None, wait: bool = True) -> int:
    """Run a point in this process; the exit code of `dpfl-bench run`. What went wrong is printed
    and stands in status.json.

    composed: its overrides, where they are composed already. Where another living process has it,
    wait until it ends, or return BUSY.
    """
    folder = RunFolder(point.folder)
    try:
        with attempt(folder, wait) as claim:
            _compute(point, composed or compose(point), folder, claim)
    except Busy:
        return BUSY
    except Interrupted as error:
        say(f"{error}: {point.label}; the same command goes on from its checkpoint in {folder.path}")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except (Lost, WorkerDied) as error:
        say(f"{point.label}: {error}")
        return 1
    except BaseException as error:
        if line := one_line(error):
            say(f"{point.label}: {line}")
            return 2 if isinstance(error, ValueError) else 1
        traceback.print_exc()
        say(f"{point.label}: {type(error).__name__}: {error}")
        return 1
    return _say_result(folder)


def compose(point: Point) -> Composed:
    return composer(point.config_dir, point.config_name).job(point.overrides)


def _compute(point: Point, composed: Composed, folder: RunFolder, claim: Claim) -> None:
    from dpfl_bench.config.validate import settings

    run = settings(composed)
    if run.run_id != point.run_id:
        raise ConfigError(
            f"run {run.run_id}: expected {point.run_id}, a config file has changed since the sweep began;"
            " start it again"
        )
    preload("dpfl_bench.experiment.run")
    from dpfl_bench.experiment.run import compute

    compute(run, point.overrides, composed.yaml(), folder, claim)


def _say_result(folder: RunFolder) -> int:
    from dpfl_bench.results.summary import summary

    result = folder.finished
    assert result is not None
    (say if result["status"] == "diverged" else say_done)(summary(result))
    return 1 if result["status"] == "diverged" else 0
