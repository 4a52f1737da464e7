"""The errors of bad input: one line that says what came, what was expected and what to do."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting that cannot be: one line that names key, value and remedy."""
