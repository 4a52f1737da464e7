"""Problems of a few clients that can be worked out by hand, and what is known of their optima."""

from dataclasses import replace

import numpy as np

from oracles import reference as ref

ALGORITHMS = ["fedavg", "fedsgd", "normfedavg", "scaffnew", "scaffold"]


KINDS = [("binary", 2), ("softmax", 3), ("squared", 2)]


def full(clients, rounds, lr, steps, **kwargs):
    """A setting in which every client takes part in every round."""
    everyone = list(range(len(clients)))
    return ref.Setting(
        lr=[lr] * rounds,
        steps=[steps] * rounds,
        cohorts=[everyone] * rounds,
        divisor=[len(clients)] * rounds,
        **kwargs,
    )


def points(*targets):
    """One-record squared clients f_i(w) = (w - target)^2 / 2 in one dimension: easy to follow by
    hand.
    """
    return [(np.array([[1.0]]), np.array([float(target)])) for target in targets]


def problem(kind="squared", classes=2, M=4, n=12, d=3, seed=0):
    """Heterogeneous clients: each has its own scale and offset of the features, and its own
    labels.
    """
    rng = np.random.default_rng(seed)
    clients = []
    for i in range(M):
        X = rng.normal(size=(n, d)) * (0.5 + 0.5 * i) + 0.3 * i
        y = (
            rng.normal(size=n) + 2.0 * i
            if kind == "squared"
            else rng.integers(0, classes, n) * (rng.random(n) < i / M)
        )
        clients.append((X, y))
    return clients


def orthogonal(*lengths):
    """One-record squared clients whose gradients at zero are -length times different unit
    vectors.
    """
    rows = np.eye(len(lengths))
    return [(rows[[i]], np.array([float(length)])) for i, length in enumerate(lengths)]


def first(setting, rounds):
    """The same setting, stopped after some rounds."""
    return replace(
        setting, **{key: getattr(setting, key)[:rounds] for key in ("lr", "steps", "cohorts", "divisor")}
    )


def run(algorithm, clients, x0, setting):
    """The iterates of any algorithm."""
    if algorithm in ("scaffnew", "scaffold"):
        return getattr(ref, algorithm)(clients, x0, setting, *([1 / 3] if algorithm == "scaffnew" else []))[0]
    return getattr(ref, algorithm)(clients, x0, setting)


def poisson_lots(k, i, step):
    """Expected size 4 of 12; now and then empty."""
    rows = np.flatnonzero(np.random.default_rng([8, k, i, step]).random(12) < 1 / 3)
    return rows, np.full(len(rows), 1 / 4)


def pooled_gradient(kind, clients, x, l2, classes, bias):
    return sum(ref.gradient(kind, x, X, y, l2, classes, bias) for X, y in clients) / len(clients)


def jacobian(function, x, h=1e-6):
    columns = [(function(x + h * e) - function(x - h * e)) / (2 * h) for e in np.eye(x.size)]
    return np.array(columns).T


def pooled_optimum(kind, clients, l2, classes, bias):
    """Newton on the mean of the clients' losses, Hessian by differences."""
    x = np.zeros(ref.parameters(kind, clients[0][0].shape[1], classes, bias))
    for _ in range(30):
        g = pooled_gradient(kind, clients, x, l2, classes, bias)
        x = x - np.linalg.solve(
            jacobian(lambda z: pooled_gradient(kind, clients, z, l2, classes, bias), x), g
        )
    assert np.linalg.norm(pooled_gradient(kind, clients, x, l2, classes, bias)) < 1e-13
    return x


def smoothness(kind, clients, l2, classes, bias):
    """Upper bound on the largest curvature of any client: 1/4, 1/2 and 1 times the data's, for the
    three kinds.
    """
    factor = {"binary": 0.25, "softmax": 0.5, "squared": 1.0}[kind]
    largest = 0.0
    for X, _ in clients:
        Z = np.hstack([X, np.ones((len(X), 1))]) if bias else X
        largest = max(largest, factor * np.linalg.eigvalsh(Z.T @ Z / len(Z))[-1])
    return largest + l2
