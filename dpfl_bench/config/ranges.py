"""The range of every setting that has one."""

from __future__ import annotations

import math

from dpfl_bench.checks.ranges import COUNT, FACTOR, LARGEST_CLIP, LEAST_CLIP, NOT_NEGATIVE, POSITIVE, Range
from dpfl_bench.machine.device import is_name
from dpfl_bench.privacy.accountants import table

SETTINGS = {
    "eps": Range(lambda v: v > 0, "eps > 0 (use eps=inf for no privacy)"),
    "delta": Range(lambda v: 0 < v < 1, "0 < delta < 1 (well below 1 / clients)"),
    "clients": COUNT,
    "sampled_clients": COUNT,
    "batch_size": COUNT,
    "sample_rate": Range(lambda v: 0 < v <= 1, "0 < sample_rate <= 1"),
    "records": COUNT,
    "lr": Range(lambda v: v == "1/L" or 0 < v < math.inf, "a number > 0, or 1/L"),
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
    "privacy.accountant": Range(lambda v: v in table.names(), " or ".join(table.names()), table.names()),
    "engine.chunk": COUNT,
    "engine.workers": COUNT,
    "engine.memory": POSITIVE,
    "engine.gpu_memory": POSITIVE,
    "theory.psi0": POSITIVE,
    "theory.L": POSITIVE,
}
