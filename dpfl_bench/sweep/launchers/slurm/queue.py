"""What Slurm says of jobs, and what is asked of it. A controller that does not answer raises
`Unanswered`: it is never an empty queue.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpfl_bench.checks.errors import ConfigError

# Slurm's words, and UNKNOWN for a job that it has forgotten; from every other state a job goes on
# by itself
ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
)
ENDED |= {"REVOKED", "TIMEOUT", "UNKNOWN"}
ANSWER_SECONDS = 120.0
WAITS = (1, 2, 4, 8, 16)  # seconds before what has to succeed is tried again
AT_ONCE = 500  # ids on one command line


class Unanswered(Exception):
    """A command of Slurm's failed; the message is its own first line."""


class Full(Exception):
    """The site lets this user have no more jobs in the queue at present."""


@dataclass(frozen=True)
class Seen:
    state: str
    reason: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def __str__(self) -> str:
        return self.state if self.reason in ("", "None") else f"{self.state} ({self.reason})"


def look(jobs: Mapping[str, str]) -> dict[str, Seen]:
    """Each job (`12`, or `12_3` of an array) that was submitted under its name: squeue's word,
    sacct's where squeue has forgotten it.
    """
    states = _squeue(jobs) if jobs else {}
    forgotten = {job: name for job, name in jobs.items() if job not in states}
    if forgotten:
        states |= _sacct(forgotten)
    return {job: states.get(job, Seen("UNKNOWN")) for job in jobs}


def cancel(ids: Sequence[str]) -> None:
    for start in range(0, len(ids), AT_ONCE):
        insist("scancel", "--quiet", *ids[start : start + AT_ONCE])


def cancel_named(name: str) -> None:
    """What a submission of that name may have left in the queue."""
    insist("scancel", "--quiet", f"--name={name}")


def largest_array() -> int:
    """How many tasks the cluster takes in one array."""
    said = re.search(r"^MaxArraySize\s*=\s*(\d+)", insist("scontrol", "show", "config"), re.MULTILINE)
    return max(int(said.group(1)), 1) if said else 1001  # Slurm's own default


def insist(*command: str) -> str:
    """`ask`, again after a while when nobody answers."""
    for seconds in WAITS:
        try:
            return ask(*command)
        except Unanswered:
            time.sleep(seconds)
    return ask(*command)


def ask(*command: str) -> str:
    """What a command of Slurm's prints. The user's own squeue and sacct settings do not change
    it.
    """
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("SQUEUE_", "SACCT_"))
    }
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            env=environment,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise ConfigError(
            f"{command[0]}: expected Slurm's commands on this machine, there are none; run on the cluster, or"
            " take hydra/launcher=cores"
        ) from None
    except subprocess.TimeoutExpired:
        raise Unanswered(f"{command[0]}: no answer in {ANSWER_SECONDS:.0f} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Unanswered(f"{command[0]}: {said[0]}")
    return done.stdout


def _squeue(jobs: Mapping[str, str]) -> dict[str, Seen]:
    """Those that the controller still knows; it keeps an ended job for a few minutes."""
    try:
        said = ask(
            "squeue",
            "--noheader",
            "--array",
            "--states=all",
            f"--jobs={arrays(jobs)}",
            "--format=%i|%T|%r|%j",
        )
    except Unanswered as error:
        if "Invalid job id" not in str(error):
            raise
        said = ""  # all forgotten
    return _rows(said, jobs)


def _sacct(jobs: Mapping[str, str]) -> dict[str, Seen]:
    """From the accounting, where the cluster has any."""
    columns = "--format=JobID,State,Reason,JobName"
    try:
        return _rows(
            ask("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={arrays(jobs)}", columns),
            jobs,
        )
    except (ConfigError, Unanswered):
        return {}


def arrays(jobs: Iterable[str]) -> str:
    """`12_0`, `12_1`, `13`: 12,13"""
    return ",".join(dict.fromkeys(job.partition("_")[0] for job in jobs))


def _rows(said: str, jobs: Mapping[str, str]) -> dict[str, Seen]:
    """A cluster may have given an id to another job since: the name tells them apart. The state may
    be `CANCELLED by 0`.
    """
    rows = [line.strip().split("|", 3) for line in said.splitlines()]
    return {
        row[0]: Seen(row[1].split()[0], row[2])
        for row in rows
        if len(row) == 4 and row[1] and jobs.get(row[0]) == row[3]
    }
