"""What privacy/ refuses, in one line each: what was expected, what came, what to do."""

from __future__ import annotations


class PrivacyError(ValueError):
    """A guarantee that was asked for does not hold: the message says what does."""


def check_known(**named: tuple[object, tuple[str, ...]]) -> None:
    for key, (value, known) in named.items():
        if value not in known:
            raise PrivacyError(f"{key}={value}: expected one of {', '.join(known)}")
