"""Who will hold which record, foreseen from the settings before any data load."""

from __future__ import annotations

from dpfl_bench import rng
from dpfl_bench.budget import refusals
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.federation import partition
from dpfl_bench.federation.holders import Holders


def foreseen(settings: Settings) -> Holders:
    """The holders that the YAML files and the setting `records` tell.

    A partition that declares nothing counts as disjoint. A run counts the real holders when its
    data are dealt (`assembly/data.py`).
    """
    if settings.privacy.unit != "record" or not settings.private:
        return Holders(None)
    refusals.check_foreseeable(settings)
    return _overlapping(settings) if settings.dealing == "overlap" else Holders(settings.smallest_client)


def _overlapping(settings: Settings) -> Holders:
    """What `partition=overlap` deals depends on the number of records alone, so it is dealt here."""
    records = settings.dataset["records"]
    draw = rng.generator(settings.partition["seed"], "partition")
    try:
        parts = partition.held(records, settings.clients, draw, settings.partition["percent"])
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Holders.of(parts, records)
