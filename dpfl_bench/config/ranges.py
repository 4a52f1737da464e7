"""The range of every setting that has one."""

from __future__ import annotations

import math

from dpfl_bench.checks.ranges import (
    COUNT,
    FACTOR,
    LARGEST,
    LARGEST_CLIP,
    LEAST,
    LEAST_CLIP,
    MOST,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    Range,
    limited,
)
from dpfl_bench.machine.device import is_name
from dpfl_bench.privacy.accountants import table

LEAST_EPS, LARGEST_EPS = 1e-9, 1e4  # beyond, accountants have no numbers
LEAST_DELTA, LARGEST_DELTA = 1e-300, 0.1  # above, a tenth of all runs may betray somebody as a whole
MOST_ROUNDS = 10**6  # of all seeds together; each is drawn before training
MOST_DRAWN = 10**10  # clients in the cohorts of all rounds, where cohorts are drawn
MOST_REPEATS = 10**4
MOST_CLIENTS = 10**7

SETTINGS = {
    "eps": Range(
        lambda v: v == math.inf or LEAST_EPS <= v <= LARGEST_EPS,
        lambda v: (
            "eps > 0 (use eps=inf for no privacy)"
            if not v > 0
            else f"{LEAST_EPS:g} <= eps <= {LARGEST_EPS:g} (use eps=inf for no privacy)"
        ),
    ),
    "delta": Range(
        lambda v: LEAST_DELTA <= v <= LARGEST_DELTA,
        f"0 < delta < 1, at most {LARGEST_DELTA:g} (well below 1 / clients)",
    ),
    "rounds": limited(1, MOST_ROUNDS, "at least 1", lambda v: v < 1),
    "local_steps": COUNT,
    "total_steps": COUNT,
    "clients": limited(1, MOST_CLIENTS, "at least 1", lambda v: v < 1),
    "sampled_clients": COUNT,
    "batch_size": COUNT,
    "sample_rate": Range(lambda v: 0 < v <= 1, "0 < sample_rate <= 1"),
    "records": COUNT,
    "lr": Range(
        lambda v: v == "1/L" or LEAST <= v <= LARGEST, f"a number > 0, {LEAST:g} to {LARGEST:g}, or 1/L"
    ),
    "lr_decay": Range(lambda v: 0 < v <= 1, "0 < lr_decay <= 1"),
    "local_momentum": FACTOR,
    "weight_decay": NOT_NEGATIVE,
    "server_lr": POSITIVE,
    "server_momentum": FACTOR,
    "average_last": COUNT,
    "stop_at_eps": POSITIVE,
    "seed": SEED,
    "repeats": limited(1, MOST_REPEATS, "at least 1", lambda v: v < 1),
    "device": Range(is_name, "auto or cpu, cuda, cuda:1, mps or another device of torch"),
    "eval_every": COUNT,
    "eval_last": COUNT,
    "train_subset": COUNT,
    "measured_client": Range(lambda v: v >= 0, "a whole number >= 0; the first client is 0"),
    "checkpoint_every": COUNT,
    "privacy.clip": Range(
        lambda v: v == "median" or LEAST_CLIP <= v <= LARGEST_CLIP,
        f"a number >= {LEAST_CLIP:g} and <= {LARGEST_CLIP:g} (there is no privacy without a bound; eps=inf"
        " drops both)",
    ),
    "privacy.quantile": Range(lambda v: 0 < v < 1, "a number > 0 and < 1 (0.5: the median)"),
    "privacy.colluding": Range(lambda v: v >= 0, "a whole number >= 0"),
    **{
        f"privacy.{key}": POSITIVE
        for key in ("quantile_lr", "quantile_noise", "norm_noise", "v", "noise_multiplier", "nominal")
    },
    **{f"privacy.eps{k}": POSITIVE for k in range(3)},
    "privacy.client_share": Range(lambda v: 0 < v <= 1, "0 < client_share <= 1"),
    "privacy.accountant": Range(
        lambda v: v in table.names(), lambda v: " or ".join(table.names()), table.names()
    ),
    "engine.chunk": COUNT,
    "engine.workers": COUNT,
    "engine.rank_timeout": COUNT,
    "engine.memory": limited(1e-9, MOST, "GB, a number > 0", lambda v: not v > 0),
    "engine.gpu_memory": limited(1e-9, MOST, "GB, a number > 0", lambda v: not v > 0),
    "theory.psi0": POSITIVE,
    "theory.L": POSITIVE,
}
