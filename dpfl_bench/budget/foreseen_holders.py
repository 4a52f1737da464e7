"""Who will hold which record, foreseen from the settings before any data load."""

from __future__ import annotations

from dpfl_bench.budget import refusals
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.federation.holders import Holders


def foreseen(settings: Settings) -> Holders:
    """The holders that the YAML files and the setting `records` tell.

    Where clients may share records, the partition is asked who gets which: the number of records
    alone decides that. A partition that declares nothing counts as disjoint. A run counts the real
    holders when its data are dealt (`assembly/data.py`).
    """
    if settings.privacy.unit != "record" or not settings.private:
        return Holders(None)
    refusals.check_foreseeable(settings)
    dealing = settings.dealing
    if dealing is None or dealing.parts is None:
        return Holders(settings.smallest_client)
    records = settings.dataset["records"]
    try:
        parts = dealing.parts(records, settings.clients, settings.partition)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Holders.of(parts, records)
