"""dp_accounting's RDP of lots without replacement, to the same bits in half the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dp_accounting.rdp import rdp_privacy_accountant as theirs

LARGEST = 256  # the largest order of which dp_accounting takes differences

Differences = Callable[[Any, int], tuple[Any, Any]]


THEIRS: Differences = theirs._get_forward_diffs


def take_once() -> None:
    """In this process, from now on."""
    theirs._get_forward_diffs = taken_once(THEIRS)


def taken_once(theirs: Differences) -> Differences:
    """For each order dp_accounting takes all forward differences of one function of the noise anew.
    Those up to a small order are the first of those up to the largest, so they are taken once.
    """
    last: list[Any] = [None, None]  # the noise, and what was found

    def differences(function: Any, order: int) -> tuple[Any, Any]:
        (noise,) = (cell.cell_contents for cell in function.__closure__)
        if last[0] != noise:
            last[:] = noise, theirs(function, LARGEST)
        logs, signs = last[1]
        return logs[: order + 2].copy(), signs[: order + 2].copy()

    return differences
