"""Which records a run scores: all, the test records alone, or a fixed subset of the training
records.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from dpfl_bench import rng
from dpfl_bench.assembly.data import Data
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings


def choose(settings: Settings, data: Data) -> None:
    """Draw the subset, once for all seeds and rounds. Refuses what there is nothing to score of."""
    federation, count = data.federation, settings.train_subset
    if settings.evaluate == "test" and len(federation.test_targets) == 0:
        raise ConfigError(
            f"evaluate=test: {settings.dataset['name']} has no test records; say evaluate=all, or hold some"
            " back with dataset.test_fraction"
        )
    if count is None:
        return
    records = len(federation.targets)
    if count > records:
        raise ConfigError(f"train_subset={count}: expected at most the {records} training records")
    draw = rng.generator(settings.dataset["seed"], "train subset")
    federation.score_only(draw.choice(records, count, replace=False))


def record(settings: Settings, data: Data) -> dict[str, Any]:
    """result.json's `scored`: how many training records, and a hash of which."""
    rows = data.federation.scored
    if settings.evaluate == "test":
        return {"train": 0, "train_subset": None}
    if rows is None:
        return {"train": len(data.federation.targets), "train_subset": None}
    places = rows.cpu().numpy().astype(np.int64)
    return {"train": len(places), "train_subset": hashlib.sha256(places.tobytes()).hexdigest()[:16]}
