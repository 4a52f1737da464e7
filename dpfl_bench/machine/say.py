"""Lines for the user, beside the result."""

from __future__ import annotations

import os
import sys

from tqdm import tqdm

from dpfl_bench.machine import ranks


def say(line: str) -> None:
    """On stderr, above a progress line if there is one. Of several ranks, one speaks."""
    if ranks.group().speaks:
        tqdm.write(f"dpfl-bench: {line}", file=sys.stderr)


def no_bar() -> bool | None:
    """What tqdm's `disable` has to be: no bar without a terminal, nor of a rank that is silent."""
    return None if ranks.group().speaks else True


def say_done(line: str) -> None:
    """What a job of a sweep ended with; `run -m --quiet` shows the progress alone."""
    if not os.environ.get("DPFL_QUIET"):
        say(line)


def duration(seconds: float) -> str:
    """In the two units that matter: 45 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    hours, days = minutes // 60, minutes // 1440
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
