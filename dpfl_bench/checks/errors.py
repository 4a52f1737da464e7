"""The errors of bad input: one line that says what came, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ConfigError(ValueError):
    """A setting that cannot be: one line that names key, value and remedy."""


class NotForeseeable(ConfigError):
    """Settings from which something cannot be told before the data are loaded or a user's own code
    is called. `plan` refuses them; a run goes on and sees.
    """


@contextmanager
def located(where: object) -> Iterator[None]:
    """An error inside says where it is."""
    try:
        yield
    except ConfigError as error:
        raise type(error)(f"{where}: {error}") from None
