"""The generated federations against the closed forms of their papers; 5 standard errors
everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfl_bench.data import synthetic
from dpfl_bench.data.records import Records

D2: dict[str, Any] = {
    "clients": 100,
    "records_per_client": 500,
    "dimension": 40,
    "classes": 10,
    "alpha": 0.0,
    "beta": 0.0,
    "flip": 0.05,
    "seed": 0,
}
MAKERS = {
    "logistic": D2 | {"clients": 10},
    "linear": {"clients": 10, "dimension": 7, "seed": 0},
    "quadratics": {"clients": 10, "dimension": 7, "rank": 3, "seed": 0},
}


@pytest.mark.parametrize("name", MAKERS)
def test_seeded_and_each_client_by_itself(name: str) -> None:
    make = getattr(synthetic, name)
    raw, again, fewer = make(**MAKERS[name]), make(**MAKERS[name]), make(**MAKERS[name] | {"clients": 3})
    assert np.array_equal(raw.train_x, again.train_x)
    assert np.array_equal(raw.train_y, again.train_y)
    assert not np.array_equal(raw.train_x, make(**MAKERS[name] | {"seed": 1}).train_x)
    assert np.array_equal(
        raw.train_x[: len(fewer.train_y)], fewer.train_x
    )  # a client does not depend on the others
    assert raw.owners is not None
    assert np.array_equal(np.unique(raw.owners), np.arange(10))
    assert raw.train_x.dtype == np.float32
    assert raw.train_y.dtype == (np.int64 if raw.classes else np.float32)
    assert raw.test_x.shape == (0, raw.train_x.shape[1])
    assert raw.test_y.dtype == raw.train_y.dtype


def test_logistic_flips_one_label_in_twenty_to_a_different_one() -> None:
    clean, noisy = (synthetic.logistic(**D2 | {"flip": flip}) for flip in (0.0, 0.05))
    assert np.array_equal(clean.train_x, noisy.train_x)
    count = len(clean.train_y)
    changed = clean.train_y != noisy.train_y
    error = (0.05 * 0.95 / count) ** 0.5
    assert abs(changed.mean() - 0.05) < 5 * error
    assert abs(changed.mean() - 0.045) > 5 * error  # .05 * 9/10, had the same class been allowed
    jumps = np.bincount((noisy.train_y - clean.train_y)[changed] % 10, minlength=10)
    assert jumps[0] == 0
    assert (abs(jumps[1:] - changed.sum() / 9) < 5 * (changed.sum() * 8 / 81) ** 0.5).all()


@pytest.mark.parametrize("beta", [0.0, 5.0])
def test_logistic_features_have_the_printed_covariance(beta: float) -> None:
    raw = synthetic.logistic(**D2 | {"beta": beta})
    x = raw.train_x.reshape(100, 500, 40).astype(float)
    variance = x.var(axis=1, ddof=1).mean(axis=0)  # within clients: 100 x 499 degrees of freedom
    closed = np.arange(1, 41) ** -1.2
    error = (2 / (100 * 499)) ** 0.5
    assert (abs(variance / closed - 1) < 5 * error).all()
    assert abs(variance[39] / 40**-1.0 - 1) > 5 * error
    centres = x.mean(axis=1)  # 4000 values of N(0, 1 + beta + Sigma_jj / 500)
    assert abs((centres**2).mean() / (1 + beta) - 1) < 5 * (2 / 4000) ** 0.5 + closed.mean() / 500


def test_logistic_models_differ_between_clients() -> None:
    zero, one = (synthetic.logistic(**D2 | {"alpha": alpha}) for alpha in (0.0, 1.0))
    assert np.array_equal(zero.train_x, one.train_x)
    assert (zero.train_y != one.train_y).mean() > 0.1
    shares = np.array([np.bincount(y, minlength=10) for y in one.train_y.reshape(100, 500)]) / 500
    assert shares.max(axis=1).mean() > 0.3  # each client has its favourite classes, where iid would give .1


def test_alpha_as_printed_only_redraws_the_labels() -> None:
    """W_i and b_i are N(0, 1 + alpha) throughout, and argmax does not see a common scale; beta it
    does see.
    """
    base, alpha, beta = (favourite(alpha, beta) for alpha, beta in ((0.0, 0.0), (100.0, 0.0), (0.0, 5.0)))
    error = (base.var() / 400 + alpha.var() / 400) ** 0.5
    assert abs(base.mean() - alpha.mean()) < 5 * error
    assert beta.mean() - base.mean() > 5 * error


def test_linear_is_exactly_linear_with_the_printed_moments() -> None:
    clients, dimension = 2000, 50
    raw = synthetic.linear(clients=clients, dimension=dimension, seed=0)
    x, y = raw.train_x.astype(float), raw.train_y.astype(float)
    target = np.linalg.lstsq(x, y, rcond=None)[0]
    assert np.allclose(x @ target, y, atol=1e-4)
    assert abs((target**2).mean() - 1) < 5 * (2 / dimension) ** 0.5
    between = x.mean(axis=1).var()  # var(u_i) + 2 / dimension, with var(u_i) = .1, not .1^2
    error = (0.1 + 2 / dimension) * (2 / clients) ** 0.5
    assert abs(between - 0.1 - 2 / dimension) < 5 * error
    assert abs(between - 0.01 - 2 / dimension) > 5 * error
    within = x.var(axis=1, ddof=1).mean()
    assert abs(within - 2) < 5 * 2 * (2 / (clients * (dimension - 1))) ** 0.5


def test_quadratics_are_least_squares_problems() -> None:
    clients, dimension, rank = 100, 200, 20
    raw = synthetic.quadratics(clients=clients, dimension=dimension, rank=rank, seed=0)
    rows, targets = by_client(raw, clients)
    count = rows.size
    assert abs((rows**2).mean() * rank - 1) < 5 * (2 / count) ** 0.5  # sqrt(rank) x N(0, 1/rank^2)
    # y | rows ~ N(0, rows rows') as w* ~ N(0, I): whitened, 2000 values of N(0, 1)
    factors = np.linalg.cholesky(rows @ rows.transpose(0, 2, 1))
    white = np.linalg.solve(factors, targets[..., None])
    assert abs((white**2).mean() - 1) < 5 * (2 / white.size) ** 0.5
    # half the mean squared residual is 1/2 (w - w*)' A A' (w - w*), A = rows' / sqrt(rank), at any
    # w* that fits
    optimum = np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(rows, targets, strict=True)])
    step = np.random.default_rng(0).normal(size=dimension) - optimum
    a = rows.transpose(0, 2, 1) / rank**0.5
    closed = 0.5 * np.einsum("cd,cdr,cer,ce->c", step, a, a, step, optimize=True)
    residual = np.einsum("cnd,cd->cn", rows, step + optimum) - targets
    assert np.allclose(0.5 * (residual**2).mean(axis=1), closed, rtol=1e-4)


def by_client(raw: Records, clients: int) -> tuple[np.ndarray, np.ndarray]:
    rows = raw.train_x.astype(float).reshape(clients, -1, raw.train_x.shape[1])
    return rows, raw.train_y.astype(float).reshape(clients, -1)


def favourite(alpha: float, beta: float) -> np.ndarray:
    """Each of 400 clients' largest class share."""
    raw = synthetic.logistic(
        **D2 | {"clients": 400, "records_per_client": 100, "alpha": alpha, "beta": beta, "seed": 3}
    )
    return np.array([np.bincount(y).max() / 100 for y in raw.train_y.reshape(400, 100)])
