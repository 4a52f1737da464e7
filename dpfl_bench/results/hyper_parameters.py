"""What trackers call a run, and the settings that they show beside its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dpfl_bench.config.identity import UNTOLD
from dpfl_bench.config.settings import Settings

Plain = bool | int | float | str


@dataclass(frozen=True)
class About:
    """name: with no character that a file or W&B refuses. parameters: dotted name -> value."""

    name: str = "run"
    parameters: Mapping[str, Plain] = field(default_factory=dict)

    @staticmethod
    def of(settings: Settings) -> About:
        """Settings as the run takes them: rounds and clients are numbers, whoever chose them."""
        parts = [settings.algo["name"], settings.dataset["name"], f"eps_{settings.eps:g}"]
        name = "-".join([*map(str, parts), f"steps_{settings.local_steps}", f"rounds_{settings.rounds}"])
        told = {key: value for key, value in asdict(settings).items() if key not in UNTOLD}
        return About("".join(c if c.isalnum() or c in "-_." else "_" for c in name), dict(_flat(told)))


def _flat(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Plain]]:
    """Without what is null. What is no number and no word is told as text."""
    for key, value in node.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, float) and not math.isfinite(value):
            yield name, str(value)
        elif value is not None and key != "_target_":
            yield name, value if isinstance(value, bool | int | float | str) else str(value)
