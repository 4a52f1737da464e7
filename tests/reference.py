"""An independent float64 reference of DP-FedAvg, DP-ScaffNew and DP-NormFedAvg, written from the papers alone.

It exists to check the product, so it imports nothing from it: numpy, one client after the other, one local step after
the other. Sources: `balancing` (Algorithms 1 and 2) and `normalized` (Algorithm 1 options i and ii, Algorithm 2).

Nothing here draws a random number. Cohorts, numbers of local steps, lots and noise are inputs (`Setting`), so the same
values can be handed to the product and to the reference.

Conventions where the papers are silent:
- clip(0) = 0. norm(0) is undefined in `normalized`; here norm(0) = C e with e = (1, ..., 1) / sqrt(d), d the number of
  parameters. The vector offered is y_K - x in `fedavg` and `scaffnew` (so a zero update moves the model by +C e) and
  u = (x - y_K) / lr in `normfedavg` (so a zero update moves it by -lr C e).
- An empty cohort is still a round: its mean is sum_noise / divisor (zero without noise) and the server momentum acts.
- The server step sees only the model that the paper's own update proposes: direction = proposed - x,
  velocity = server_momentum velocity + direction, x += server_lr velocity. The paper's update is server_lr = 1 and
  server_momentum = 0; `normalized`'s beta is server_lr times the round's lr.
- With a list of learning rates, the shift update of ScaffNew divides by the learning rate of its own round.
- l2 and weight_decay act on every parameter, biases included, and are never multiplied by the record weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Client = tuple[Vector, NDArray]  # X of shape (n, d) and y of shape (n,)


def parameters(kind: str, features: int, classes: int = 2, bias: bool = False) -> int:
    """Length of the parameter vector: w then one bias, or W (classes, features) row-major then `classes` biases."""
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


def _weights(weights: Vector | None, n: int) -> Vector:
    """The mean over the records unless told otherwise."""
    return np.full(n, 1.0 / n) if weights is None else np.asarray(weights, dtype=np.float64)


def loss(kind, x, X, y, l2=0.0, classes=2, bias=False, weights=None) -> float:
    """sum_r w_r loss_r(x) + l2/2 ||x||^2, with w_r = 1/n by default."""
    z = _scores(kind, x, X, classes, bias)
    if kind == "softmax":
        top = z.max(axis=1)
        records = top + np.log(np.exp(z - top[:, None]).sum(axis=1)) - z[np.arange(len(y)), np.asarray(y, dtype=int)]
    elif kind == "binary":
        records = np.logaddexp(0.0, z[:, 0]) - y * z[:, 0]
    else:
        records = 0.5 * (z[:, 0] - y) ** 2
    return float(_weights(weights, len(y)) @ records + 0.5 * l2 * (x @ x))


def gradient(kind, x, X, y, l2=0.0, classes=2, bias=False, weights=None) -> Vector:
    """sum_r w_r grad loss_r(x) + l2 x, with w_r = 1/n by default; a Poisson lot has w_r = 1 / expected lot size."""
    z = _scores(kind, x, X, classes, bias)
    if kind == "softmax":
        residual = np.exp(z - z.max(axis=1, keepdims=True))
        residual /= residual.sum(axis=1, keepdims=True)
        residual[np.arange(len(y)), np.asarray(y, dtype=int)] -= 1.0
    elif kind == "binary":
        residual = np.exp(-np.logaddexp(0.0, -z)) - np.asarray(y, dtype=np.float64)[:, None]
    else:
        residual = z - np.asarray(y, dtype=np.float64)[:, None]
    residual = residual * _weights(weights, len(y))[:, None]
    parts = [(residual.T @ X).ravel()] + ([residual.sum(axis=0)] if bias else [])
    return np.concatenate(parts) + l2 * x


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything of a run that is not data, the start or p. Lists have one entry per round."""

    kind: str
    lr: Sequence[float]
    steps: Sequence[int]
    cohorts: Sequence[Sequence[int]]
    divisor: Sequence[float]  # what the sum is divided by: the cohort's size, or its expected size under Poisson
    classes: int = 2
    bias: bool = False
    l2: float = 0.0
    weight_decay: float = 0.0
    bound: str | None = None  # "clip", "normalise" or None
    clip: float | None = None  # C, for either bound
    local_momentum: float = 0.0
    server_lr: float = 1.0
    server_momentum: float = 0.0
    lots: Callable[[int, int, int], tuple[NDArray, Vector]] | None = None  # (round, client, step) -> indices, weights
    message_noise: Callable[[int, int], Vector | None] | None = None  # (round, client)
    sum_noise: Callable[[int], Vector | None] | None = None  # (round)

    def __post_init__(self) -> None:
        if not len(self.lr) == len(self.steps) == len(self.cohorts) == len(self.divisor):
            raise ValueError("lr, steps, cohorts and divisor need one entry per round")
        if self.bound not in (None, "clip", "normalise") or (self.bound is None) != (self.clip is None):
            raise ValueError("bound is 'clip' or 'normalise' with a C in clip, or both are None")
        if any(len(set(cohort)) != len(cohort) for cohort in self.cohorts):
            raise ValueError("a cohort names a client twice")


def clip(v: Vector, C: float) -> Vector:
    """min(1, C / ||v||) v."""
    norm = np.linalg.norm(v)
    return v * (C / norm) if norm > C else v.copy()


def normalise(v: Vector, C: float) -> Vector:
    """C v / ||v||, and C (1, ..., 1) / sqrt(d) for the zero vector."""
    norm = np.linalg.norm(v)
    return v * (C / norm) if norm > 0 else np.full(v.size, C / np.sqrt(v.size))


def _local_gradient(setting: Setting, clients: Sequence[Client], k: int, i: int, step: int, y: Vector) -> Vector:
    X, labels = clients[i]
    weights = None
    if setting.lots is not None:
        rows, weights = setting.lots(k, i, step)
        rows = np.asarray(rows, dtype=int)
        X, labels = X[rows], labels[rows]
    g = gradient(setting.kind, y, X, labels, setting.l2, setting.classes, setting.bias, weights)
    return g + setting.weight_decay * y


def _local_steps(setting: Setting, clients: Sequence[Client], k: int, i: int, x: Vector, shift: Vector) -> Vector:
    """y_K of client i in round k: heavy ball on (gradient - shift), started at rest in every round."""
    y, v = x.copy(), np.zeros_like(x)
    for step in range(setting.steps[k]):
        g = _local_gradient(setting, clients, k, i, step, y) - shift
        v = setting.local_momentum * v + g
        y = y - setting.lr[k] * v
    return y


def _message(setting: Setting, k: int, i: int, offered: Vector) -> Vector:
    """What client i sends: its offered vector, bounded, plus its own noise."""
    bounds = {None: lambda v, C: v, "clip": clip, "normalise": normalise}
    message = bounds[setting.bound](offered, setting.clip)
    noise = None if setting.message_noise is None else setting.message_noise(k, i)
    return message if noise is None else message + noise


def _mean(setting: Setting, k: int, messages: Sequence[Vector], like: Vector) -> Vector:
    """(sum of the messages + sum_noise) / divisor; zero when there is nothing to divide."""
    total = np.zeros_like(like)
    for message in messages:
        total = total + message
    noise = None if setting.sum_noise is None else setting.sum_noise(k)
    if noise is None and not messages:
        return total
    return (total if noise is None else total + noise) / setting.divisor[k]


def _server(setting: Setting, x: Vector, velocity: Vector, proposed: Vector) -> tuple[Vector, Vector]:
    velocity = setting.server_momentum * velocity + (proposed - x)
    return x + setting.server_lr * velocity, velocity


def fedavg(clients: Sequence[Client], x0: Vector, setting: Setting) -> list[Vector]:
    """DP-FedAvg (`balancing`, Algorithm 1): the iterates x_1, ..., x_T."""
    x = np.array(x0, dtype=np.float64)
    velocity, iterates = np.zeros_like(x), []
    for k, cohort in enumerate(setting.cohorts):
        messages = []
        for i in cohort:
            y = _local_steps(setting, clients, k, i, x, np.zeros_like(x))
            messages.append(_message(setting, k, i, y - x))
        x, velocity = _server(setting, x, velocity, x + _mean(setting, k, messages, x))
        iterates.append(x)
    return iterates


def normfedavg(clients: Sequence[Client], x0: Vector, setting: Setting) -> list[Vector]:
    """`normalized`, Algorithm 1, option i (bound="clip") or ii (bound="normalise"): the iterates w_1, ..., w_K.

    The bound and both noises are on the scale of u = (x - y_K) / lr, a sum of gradients; server_lr = beta / eta.
    """
    x = np.array(x0, dtype=np.float64)
    velocity, iterates = np.zeros_like(x), []
    for k, cohort in enumerate(setting.cohorts):
        messages = []
        for i in cohort:
            y = _local_steps(setting, clients, k, i, x, np.zeros_like(x))
            messages.append(_message(setting, k, i, (x - y) / setting.lr[k]))
        x, velocity = _server(setting, x, velocity, x - setting.lr[k] * _mean(setting, k, messages, x))
        iterates.append(x)
    return iterates


def scaffnew(clients: Sequence[Client], x0: Vector, setting: Setting, p: float, h0: Vector | None = None):
    """DP-ScaffNew (`balancing`, Algorithm 2), one turn per communication round: (iterates, shifts h of shape (M, d)).

    A round's number of local steps is the gap between two heads; p = 1 / (expected local steps). Clients outside the
    cohort keep their shift. h0 (default zeros) should sum to zero over the clients.
    """
    x = np.array(x0, dtype=np.float64)
    h = np.zeros((len(clients), x.size)) if h0 is None else np.array(h0, dtype=np.float64)
    velocity, iterates = np.zeros_like(x), []
    for k, cohort in enumerate(setting.cohorts):
        messages = {}
        for i in cohort:
            y = _local_steps(setting, clients, k, i, x, h[i])
            messages[i] = _message(setting, k, i, y - x)
        mean = _mean(setting, k, list(messages.values()), x)
        x, velocity = _server(setting, x, velocity, x + mean)
        for i in cohort:
            h[i] = h[i] + p / setting.lr[k] * (mean - messages[i])
        iterates.append(x)
    return iterates, h


def scaffnew_coins(clients: Sequence[Client], x0: Vector, setting: Setting, p: float, coins: Sequence[int]):
    """DP-ScaffNew, literally: one turn per iteration t, communication where coins[t] = 1, every client, constant eta.

    Returns (x after each head, shifts h, every client's own point x_T^(i)); after a last head the points are all x_T.
    Of the setting it reads kind, classes, bias, l2, weight_decay, bound, clip, lots, message_noise and eta = lr[0].
    lots and message_noise are asked with round = heads so far and step = iterations since the last head.
    """
    if setting.local_momentum or setting.server_momentum or setting.server_lr != 1 or setting.sum_noise is not None:
        raise ValueError("the literal Algorithm 2 has no momentum, server learning rate or noise on the sum")
    eta, N = setting.lr[0], len(clients)
    x = np.array(x0, dtype=np.float64)
    local, h = [x.copy() for _ in range(N)], np.zeros((N, x.size))
    heads, step, iterates = 0, 0, []
    for coin in coins:
        hat = [local[i] - eta * (_local_gradient(setting, clients, heads, i, step, local[i]) - h[i]) for i in range(N)]
        if coin:
            delta = [_message(setting, heads, i, hat[i] - x) for i in range(N)]
            average = sum(delta) / N
            x = x + average
            local = [x.copy() for _ in range(N)]
            h = np.array([h[i] + p / eta * (average - delta[i]) for i in range(N)])
            heads, step = heads + 1, 0
            iterates.append(x)
        else:
            local, step = hat, step + 1
    return iterates, h, local
