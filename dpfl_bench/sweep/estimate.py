"""How long runs may take, from what finished runs of the same algorithm, data set and model
took.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from dpfl_bench.config.settings import Settings
from dpfl_bench.results.folder import BROKEN, RunFolder

Kind = tuple[str, str, str]


class Measured:
    """Seconds for each local step of a seed, by local steps in a round: a round costs more than its
    steps.
    """

    def __init__(self, outputs: Iterable[str]) -> None:
        rates: dict[Kind, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for path in (path for folder in outputs for path in Path(folder).glob("runs/*/result.json")):
            with suppress(OSError, *BROKEN):  # not one of this program's
                result = RunFolder(path.parent).finished
                if result and result["status"] == "done":
                    steps = result["rounds"] * result["local_steps"] * len(result["seeds"])
                    rates[_kind(result)][result["local_steps"]].append(result["seconds"] / steps)
        self._rates = {
            kind: {steps: median(each) for steps, each in by_steps.items()}
            for kind, by_steps in rates.items()
        }

    def seconds(self, settings: Settings) -> float | None:
        """By the measured runs whose rounds are most alike; None where nothing alike was
        measured.
        """
        groups = {"algo": settings.algo, "dataset": settings.dataset, "model": settings.model}
        rates = self._rates.get(_kind({key: group["name"] for key, group in groups.items()}))
        if not rates:
            return None
        nearest = min(rates, key=lambda steps: abs(math.log(steps / settings.local_steps)))
        return rates[nearest] * settings.rounds * settings.local_steps * settings.repeats


def _kind(named: dict[str, Any]) -> Kind:
    return named["algo"], named["dataset"], named["model"]
