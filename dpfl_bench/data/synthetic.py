"""The generated federations of three papers; each client's records come from its own generator."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np

from dpfl_bench.checks.ranges import CHANCE, COUNT, NOT_NEGATIVE
from dpfl_bench.data.records import Records, Scaling
from dpfl_bench.data.source import Source, no_files
from dpfl_bench.rng import generator

SOURCE = Source("generated", no_files, generated=True)
Count = Annotated[int, COUNT]


def logistic(
    *,
    clients: Count,
    records_per_client: Count,
    dimension: Count,
    classes: int,
    alpha: Annotated[float, NOT_NEGATIVE],
    beta: Annotated[float, NOT_NEGATIVE],
    flip: Annotated[float, CHANCE],
    seed: int,
) -> Records:
    """Heterogeneous logistic data: dpscaffold, appendix D.2 (after Li et al. 2020).

    Client i: W_i ~ N(u_i, I) with u_i ~ N(0, alpha I), both (dimension, classes); b_i ~ N(u'_i, I)
    with u'_i ~ N(0, alpha I); x ~ N(v_i, Sigma) with Sigma_jj = j^-1.2 (j from 1), v_i ~ N(B_i, I),
    B_i ~ N(0, beta I) (beta is the appendix's nu); y = argmax W_i' x + b_i, changed with
    probability `flip` to one of the other classes, uniformly. As printed, alpha only scales W_i and
    b_i by sqrt(1 + alpha) in distribution, which argmax does not see: another alpha is another draw
    of the same federation. The law brought along is that of x over all clients.
    """
    x = np.empty((clients, records_per_client, dimension), np.float32)
    y = np.empty((clients, records_per_client), np.int64)
    for client in range(clients):
        rng = generator(seed, "logistic", client)
        x[client], truth = _ground_truth(records_per_client, dimension, classes, alpha, beta, rng)
        flipped = rng.random(records_per_client) < flip
        other = (truth + rng.integers(1, classes, records_per_client)) % classes
        y[client] = np.where(flipped, other, truth)
    records = _natural(
        x, y, classes, f"generated: dpscaffold D.2, alpha {alpha:g}, beta {beta:g}, seed {seed}"
    )
    spread = (
        1 + beta + _deviations(dimension) ** 2
    ) ** 0.5  # B_i, v_i and x add their variances; alpha is of the labels alone
    return replace(records, law=Scaling(np.zeros(dimension), spread))


def _deviations(dimension: int) -> np.ndarray:
    """Of a client's features about its centre: the root of Sigma_jj."""
    deviations: np.ndarray = np.arange(1, dimension + 1) ** -0.6
    return deviations


def _ground_truth(
    records: int, dimension: int, classes: int, alpha: float, beta: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """One client's features and the labels of its own model."""
    weights = rng.normal(0, alpha**0.5, (dimension, classes)) + rng.normal(size=(dimension, classes))
    bias = rng.normal(0, alpha**0.5, classes) + rng.normal(size=classes)
    centre = rng.normal(0, beta**0.5, dimension) + rng.normal(size=dimension)
    x = centre + _deviations(dimension) * rng.normal(size=(records, dimension))
    return x, (x @ weights + bias).argmax(axis=1)


def linear(*, clients: Count, dimension: Count, seed: int) -> Records:
    """Linear regression without noise, one record a client: fedexp, appendix G.1.

    x_i ~ N(m_i, I), the entries of m_i ~ N(u_i, 1), the scalar u_i ~ N(0, variance .1); y_i = x_i'
    w*, w* ~ N(0, I).
    """
    target = generator(seed, "linear-target").normal(size=dimension)
    x = np.empty((clients, 1, dimension), np.float32)
    for client in range(clients):
        rng = generator(seed, "linear", client)
        centre = rng.normal(0, 0.1**0.5) + rng.normal(size=dimension)
        x[client, 0] = centre + rng.normal(size=dimension)
    return _natural(x, x @ target, 0, f"generated: fedexp G.1, seed {seed}")


def quadratics(*, clients: Count, dimension: Count, rank: Count, seed: int) -> Records:
    """The quadratics of normalized, appendix F, as least squares with `rank` records a client.

    f_i(w) = 1/2 (w - w_i*)' A_i A_i' (w - w_i*), with A_i (dimension, rank) of entries N(0,
    1/rank^2) and w_i* ~ N(0, I), is half the mean squared residual of the rows sqrt(rank) A_i' and
    the targets rows @ w_i*.
    """
    x = np.empty((clients, rank, dimension), np.float32)
    y = np.empty((clients, rank))
    for client in range(clients):
        rng = generator(seed, "quadratics", client)
        optimum = rng.normal(size=dimension)
        x[client] = rank**0.5 * rng.normal(0, 1 / rank, (dimension, rank)).T
        y[client] = x[client] @ optimum
    return _natural(x, y, 0, f"generated: normalized appendix F, seed {seed}")


def _natural(x: np.ndarray, y: np.ndarray, classes: int, source: str) -> Records:
    """Records of x (clients, n, d) and y (clients, n), each client owning its n; no test records
    yet.
    """
    clients, records, dimension = x.shape
    x = x.reshape(-1, dimension)
    y = y.reshape(-1).astype(np.int64 if classes else np.float32)
    owners = np.repeat(np.arange(clients), records)
    return Records(x, y, x[:0], y[:0], owners, classes, source, len(y))
