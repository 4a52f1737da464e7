"""The range of every setting that has one: asked when settings are composed, and again by functions that users may call themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.machine.device import is_name


@dataclass(frozen=True)
class Range:
    holds: Callable[[Any], bool]
    expected: str


POSITIVE = Range(lambda v: 0 < v < math.inf, "a number > 0")
NOT_NEGATIVE = Range(lambda v: 0 <= v < math.inf, "a number >= 0")
FACTOR = Range(lambda v: 0 <= v < 1, "a number >= 0 and < 1")
CHANCE = Range(lambda v: 0 <= v <= 1, "a number >= 0 and <= 1")
COUNT = Range(lambda v: v >= 1, "at least 1")
LEAST_CLIP = 1e-12  # in float32, squares of a gradient may vanish that are no longer nothing beside less
LARGEST_CLIP = 1e30  # sums of so long updates, and of their noise, stay within float32

# of data sets, partitions and models: each is asked in two places
TEST_FRACTION = Range(lambda v: 0 <= v < 1, "0 <= test_fraction < 1")
FRACTION = Range(lambda v: 0 < v <= 1, "0 < fraction <= 1 (1 keeps every record)")
ALPHA = Range(lambda v: 0 < v < math.inf, "a finite alpha > 0 (use partition=iid for equal clients)")
OVERLAP = Range(lambda v: 0 < v <= 100, "0 < percent <= 100")
SIMILARITY = Range(lambda v: 0 <= v <= 100, "0 <= percent <= 100")
HIDDEN = Range(lambda v: all(type(n) is int and n >= 1 for n in v), "whole numbers >= 1 ([] for no hidden layer)")
POOLED = Range(lambda v: v >= 1, "at least 1 (null: as large as the maps are)")
NORM = Range(lambda v: v in ("none", "group", "batch"), "one of none, group, batch")
ACTIVATION = Range(lambda v: v in ("relu", "tanh", "tempered"), "one of relu, tanh, tempered")

SETTINGS = {
    "eps": Range(lambda v: v > 0, "eps > 0 (use eps=inf for no privacy)"),
    "delta": Range(lambda v: 0 < v < 1, "0 < delta < 1 (well below 1 / clients)"),
    "clients": COUNT,
    "sampled_clients": COUNT,
    "batch_size": COUNT,
    "sample_rate": Range(lambda v: 0 < v <= 1, "0 < sample_rate <= 1"),
    "records": COUNT,
    "lr": POSITIVE,
    "lr_decay": Range(lambda v: 0 < v <= 1, "0 < lr_decay <= 1"),
    "local_momentum": FACTOR,
    "weight_decay": NOT_NEGATIVE,
    "server_lr": POSITIVE,
    "server_momentum": FACTOR,
    "average_last": COUNT,
    "stop_at_eps": POSITIVE,
    "seed": Range(lambda v: 0 <= v < 2**62, "a whole number >= 0"),
    "repeats": COUNT,
    "device": Range(is_name, "auto or cpu, cuda, cuda:1, mps or another device of torch"),
    "eval_every": COUNT,
    "checkpoint_every": COUNT,
    "privacy.clip": Range(
        lambda v: v == "median" or LEAST_CLIP <= v <= LARGEST_CLIP,
        f"a number >= {LEAST_CLIP:g} and <= {LARGEST_CLIP:g} (there is no privacy without a bound; eps=inf drops both)",
    ),
    "privacy.quantile": Range(lambda v: 0 < v < 1, "a number > 0 and < 1 (0.5: the median)"),
    "privacy.colluding": Range(lambda v: v >= 0, "a whole number >= 0"),
    **{f"privacy.{key}": POSITIVE for key in ("quantile_lr", "quantile_noise", "norm_noise", "v", "noise_multiplier")},
    **{f"privacy.eps{k}": POSITIVE for k in range(3)},
    "engine.chunk": COUNT,
    "engine.workers": COUNT,
    "engine.memory": POSITIVE,
    "theory.psi0": POSITIVE,
    "theory.L": POSITIVE,
}


def check(path: str, value: Any, allowed: Range) -> None:
    """Raise ConfigError for a value out of its range; null has none."""
    if value is not None and not allowed.holds(value):
        told = f"{value:g}" if isinstance(value, float) else value
        raise ConfigError(f"{path}={told}: expected {allowed.expected}")
