"""Lines for the user, beside the result."""

from __future__ import annotations

import sys

from tqdm import tqdm


def say(line: str) -> None:
    """On stderr, above a progress line if there is one."""
    tqdm.write(f"dpfl-bench: {line}", file=sys.stderr)
