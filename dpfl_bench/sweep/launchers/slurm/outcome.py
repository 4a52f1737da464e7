"""What became of a point whose task has ended: its run folder tells, and where it is silent,
Slurm's word for the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.lock import Busy, locked
from dpfl_bench.sweep.launchers.base import Point
from dpfl_bench.sweep.launchers.slurm.queue import Seen

NO_FAULT = frozenset(
    {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED", "TIMEOUT"}
)  # of the run: it is worth another start
Verdict = Literal["leave", "wait", "again", "fail"]


def word(point: Point, since: float) -> str:
    """What the run has said since its task was submitted."""
    folder = RunFolder(point.folder)
    state = folder.state()
    if state.finished or state.word == "running":
        return state.word
    try:
        return state.word if (folder.path / "status.json").stat().st_mtime >= since else "missing"
    except FileNotFoundError:
        return "missing"


def verdict(word: str, seen: Seen, at_work: bool) -> Verdict:
    """`leave`: its folder tells all. `wait`: a process works in it, or has only just fallen silent.

    `at_work`: it was this point that the task was at when it ended. The points after it have not
    had their turn; one that was cancelled before its turn stays missing.
    """
    if word in ("done", "diverged", "failed"):
        return "leave"
    if word == "running":
        return "wait"
    if seen.state == "CANCELLED":
        return "fail" if word == "died" else "leave"
    if word == "missing" and seen.state == "UNKNOWN":
        return "leave"
    return "again" if word == "interrupted" or seen.state in NO_FAULT or not at_work else "fail"


def verdicts(points: Sequence[Point], since: float, seen: Seen) -> dict[Point, Verdict]:
    words = {point: word(point, since) for point in points}
    stopped_at = next(
        (point for point, said in words.items() if said in ("died", "interrupted", "missing")), None
    )
    return {point: verdict(said, seen, point == stopped_at) for point, said in words.items()}


def write_failed(point: Point, error: str) -> None:
    """Unless somebody else has taken up the run by now."""
    folder = RunFolder(point.folder)
    try:
        with locked(folder.path):
            if not folder.finished:
                folder.tell("failed", error=error)
    except Busy:
        pass
