"""The errors of bad input: one line that says what came, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ConfigError(ValueError):
    """A setting that cannot be: one line that names key, value and remedy."""


@contextmanager
def located(where: object) -> Iterator[None]:
    """An error inside says where it is."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
