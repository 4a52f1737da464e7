"""What a run measures on demand, `measure=[...]` (`config/measures.py` has the names): one client,
the training error, and where the iterates are. All of it is without noise.

`iterates`: the model minus the optimum x*, where that is known, else the model, along DIRECTIONS
orthonormal directions. They depend on the dimension alone, so all runs of one model have the same.
Where x* is known: `along`, its part in the direction from x* to the seed's first model, and
`across`, the length of the rest.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from dpfl_bench import rng
from dpfl_bench.config.measures import DIRECTIONS
from dpfl_bench.experiment.job import Job
from dpfl_bench.federation.diagnostics import Diagnostics
from dpfl_bench.federation.evaluation import NAN, Scores, mean_loss_of
from dpfl_bench.machine import device
from dpfl_bench.problems.problem import lengths


def columns(job: Job, x: Tensor, last: Diagnostics | None, scores: Scores) -> dict[str, float]:
    """The columns of metrics.csv that the run asks for.

    x: the model that is evaluated, (d,). last: of the latest round. scores: of x.
    """
    settings, row = job.settings, {}
    if "client" in settings.measure:
        client = settings.measured_client
        row["client_norm"] = last.norm_of(client) if last else NAN
        row["client_train_loss"] = mean_loss_of(job.problem, job.data.federation, x, client)
    if "train_error" in settings.measure:
        row["train_error"] = 1 - scores.train_metric
    return row


def iterate(job: Job, start: Tensor, x: Tensor) -> dict[str, float]:
    """Where the model x is. start: the seed's first model; (d,) both."""
    wide = device.wide(x.device)
    star = job.reference.x_star.to(x.device, wide) if job.reference else None
    where = x.to(wide) if star is None else x.to(wide) - star
    places = directions(len(x)).to(where) @ where
    row = {f"d{k}": place for k, place in enumerate(places.tolist(), start=1)}
    if star is None:
        return row
    way = start.to(wide) - star
    way = way / lengths(way).clamp_min(torch.finfo(wide).tiny)
    along = way @ where
    return {**row, "along": along.item(), "across": lengths(where - along * way).item()}


@lru_cache(maxsize=1)
def directions(dimension: int) -> Tensor:
    """Orthonormal rows, (DIRECTIONS, d); fewer where there are fewer dimensions."""
    drawn = rng.generator(0, "direction", dimension).standard_normal((dimension, DIRECTIONS))
    return torch.from_numpy(np.ascontiguousarray(np.linalg.qr(drawn[:, : min(dimension, DIRECTIONS)])[0].T))
