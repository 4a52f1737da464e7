"""What a run measures on demand (`measure=[...]`), because it costs a pass over records or a file.

All of it is without noise: a diagnostic for simulation, which no eps covers.
"""

from __future__ import annotations

from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings

# name -> the columns of metrics.csv that it fills
COLUMNS: dict[str, tuple[str, ...]] = {
    "client": ("client_norm", "client_train_loss"),  # of the client `measured_client`
    "iterates": (),  # they have a file of their own, iterates.csv
    "target_step": ("target_step", "step_estimate"),  # of `fedexp`, figure 1
    "train_error": ("train_error",),
    "dissimilarity": ("dissimilarity", "log_dissimilarity"),  # of the clients' gradients
}

DIRECTIONS = 16  # of iterates.csv


def check(names: Any) -> list[str]:
    """The names in their order of COLUMNS, each once. Raises ConfigError for any other."""
    known = ", ".join(COLUMNS)
    if not isinstance(names, list):
        raise ConfigError(f"measure={names}: expected a list of {known}, like [client]")
    for name in names:
        if name not in COLUMNS:
            raise ConfigError(f"measure={names}: expected a list of {known}; {name} is none of them")
    return [name for name in COLUMNS if name in names]


def columns(names: list[str]) -> list[str]:
    """The columns that these measures fill, in the order of metrics.csv."""
    return [column for name in names for column in COLUMNS[name]]


def check_scored(settings: Settings) -> None:
    """Which records are scored, and that what is measured of them is."""
    subset, known = settings.train_subset, settings.dataset["records"]
    if subset is not None and settings.evaluate == "test":
        raise ConfigError(
            f"train_subset={subset}: unused with evaluate=test, which scores no training record"
        )
    whole = settings.dealing is not None and not settings.dealing.overlapping
    if subset is not None and whole and known is not None and subset > known:
        raise ConfigError(f"train_subset={subset}: expected at most the {known} training records")
    if "train_error" in settings.measure and settings.evaluate == "test":
        raise ConfigError(
            "measure=[train_error]: evaluate=test scores no training record; say evaluate=all, with"
            " train_subset=N if that is dear"
        )
