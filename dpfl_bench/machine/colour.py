"""Colour, where a person reads: on a terminal, unless NO_COLOR is set (https://no-color.org) or the
terminal is dumb. FORCE_COLOR asks for it elsewhere, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TextIO

BOLD, RED, GREEN, YELLOW = "1", "31", "32", "33"
Rules = Sequence[tuple[str, str]]  # (regular expression of a line, colour) of what it matches

HEADINGS: Rules = ((r"^\S.*:$|^\S.*\)$", BOLD),)
HELP: Rules = ((r"^usage:|^[a-z ]+:(?=$| )", BOLD), (r"^  dpfl-bench .*$", GREEN))
PLAN: Rules = (
    (r"^\S.*$", BOLD),
    (r"^  (NOT FULLY ACCOUNTED|overlapping|nominal)\b", YELLOW),
    (r"^  [a-z]+(?= )", BOLD),
)
STATES: Rules = (
    (r"(?<=, )\d+ (failed|died|unreadable|diverged)|^  (failed|died|unreadable|diverged)\b", RED),
    (r"\b\d+ done\b", GREEN),
    (r"\d+ (running|interrupted|missing)|^  (running|interrupted|missing)\b", YELLOW),
)
VERDICTS: Rules = (
    (r"\bviolated\b", RED),
    (r"^holds\b|(?<=  )holds(?= )", GREEN),
    (r"\binconclusive\b", YELLOW),
)
REFUSAL: Rules = (
    (r"^dpfl-bench:", RED),
    (r"(?<=did you mean )[^?]+(?=\?)", GREEN),
)


def wanted(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def painted(text: str, stream: TextIO, rules: Rules) -> str:
    """The text as it is written to the stream."""
    if not rules or not wanted(stream):
        return text
    for pattern, code in rules:
        text = re.sub(f"(?:{pattern})", rf"\033[{code}m\g<0>\033[0m", text, flags=re.MULTILINE)
    return text
