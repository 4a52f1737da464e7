"""When the launcher is asked to stop: the jobs are cancelled or go on, as the user says, and never
without a word about them.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from typing import Literal

from dpfl_bench.sweep.launchers.slurm.queue import arrays

Choice = Literal["cancel", "detach", "wait"]


def number_of(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs} jobs"


def left(jobs: Iterable[str], unsubmitted: int) -> str:
    """What goes on in the queue, and how to look after it."""
    ids = list(jobs)
    more = f" and submits the other points ({unsubmitted})" if unsubmitted else ""
    if not ids:
        return "left in Slurm: no job of this sweep"
    return (
        f"left in Slurm: {number_of(len(ids))} of this sweep; the same command waits for them{more}, "
        f"squeue --jobs={arrays(ids)} shows them, scancel {compact(ids)} ends them"
    )


def compact(ids: Iterable[str]) -> str:
    """`12_0`, `12_1`, `12_5`, `13`: '12_[0-1,5]' 13"""
    tasks: dict[str, list[int]] = {}
    for job in ids:
        array, _, task = job.partition("_")
        tasks.setdefault(array, []).extend([int(task)] if task else [])
    return " ".join(
        f"'{array}_[{_ranges(sorted(numbers))}]'" if numbers else array for array, numbers in tasks.items()
    )


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def choice(number: int, answer: Literal["cancel", "detach"] | None, jobs: int) -> Choice:
    """`answer`, where the user has given one. Else Ctrl-C asks on a terminal, and cancels where
    nobody can answer; any other signal means the launcher alone.
    """
    if answer is not None:
        return answer
    if number != signal.SIGINT:
        return "detach"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return "cancel"
    return _asked(jobs)


def _asked(jobs: int) -> Choice:
    answers: dict[str, Choice] = {"c": "cancel", "d": "detach", "w": "wait"}
    while True:
        sys.stderr.write(
            f"\ndpfl-bench: in Slurm: {number_of(jobs)} of this sweep. [c]ancel them (checkpoints stay),"
            " [d]etach (they go on), [w]ait on? "
        )
        sys.stderr.flush()
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            return "cancel"
        if not line:  # the terminal is gone
            return "detach"
        if line.strip().lower()[:1] in answers:
            return answers[line.strip().lower()[0]]
