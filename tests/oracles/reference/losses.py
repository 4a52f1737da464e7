"""Losses and their gradients, record by record weighted."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


Client = tuple[Vector, NDArray]  # X of shape (n, d) and y of shape (n,)


def parameters(kind: str, features: int, classes: int = 2, bias: bool = False) -> int:
    """Length of the parameter vector: w then one bias, or W (classes, features) row-major then
    `classes` biases.
    """
    outputs = classes if kind == "softmax" else 1
    return outputs * (features + int(bias))


def _scores(kind: str, x: Vector, X: Vector, classes: int, bias: bool) -> Vector:
    """X W' + b, of shape (n, outputs)."""
    features = X.shape[1]
    if kind not in ("binary", "softmax", "squared"):
        raise ValueError(f"unknown kind {kind!r}")
    if x.shape != (parameters(kind, features, classes, bias),):
        raise ValueError(f"x has the shape {x.shape}")
    outputs = classes if kind == "softmax" else 1
    scores = X @ x[: outputs * features].reshape(outputs, features).T
    return scores + x[outputs * features :] if bias else scores


def record_weights(weights: Vector | None, n: int) -> Vector:
    """The mean over the records unless told otherwise."""
    return np.full(n, 1.0 / n) if weights is None else np.asarray(weights, dtype=np.float64)


def loss(kind, x, X, y, l2=0.0, classes=2, bias=False, weights=None) -> float:
    """sum_r w_r loss_r(x) + l2/2 ||x||^2, with w_r = 1/n by default."""
    z = _scores(kind, x, X, classes, bias)
    if kind == "softmax":
        top = z.max(axis=1)
        records = (
            top
            + np.log(np.exp(z - top[:, None]).sum(axis=1))
            - z[np.arange(len(y)), np.asarray(y, dtype=int)]
        )
    elif kind == "binary":
        records = np.logaddexp(0.0, z[:, 0]) - y * z[:, 0]
    else:
        records = 0.5 * (z[:, 0] - y) ** 2
    return float(record_weights(weights, len(y)) @ records + 0.5 * l2 * (x @ x))


def gradient(kind, x, X, y, l2=0.0, classes=2, bias=False, weights=None) -> Vector:
    """sum_r w_r grad loss_r(x) + l2 x, with w_r = 1/n by default; a Poisson lot has w_r = 1 /
    expected lot size.
    """
    z = _scores(kind, x, X, classes, bias)
    if kind == "softmax":
        residual = np.exp(z - z.max(axis=1, keepdims=True))
        residual /= residual.sum(axis=1, keepdims=True)
        residual[np.arange(len(y)), np.asarray(y, dtype=int)] -= 1.0
    elif kind == "binary":
        residual = np.exp(-np.logaddexp(0.0, -z)) - np.asarray(y, dtype=np.float64)[:, None]
    else:
        residual = z - np.asarray(y, dtype=np.float64)[:, None]
    residual = residual * record_weights(weights, len(y))[:, None]
    parts = [(residual.T @ X).ravel()] + ([residual.sum(axis=0)] if bias else [])
    return np.concatenate(parts) + l2 * x
