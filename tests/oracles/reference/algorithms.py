"""The algorithms: one client after the other, one local step after the other."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from oracles.reference.losses import Client, Vector, gradient
from oracles.reference.sending import (
    Sent,
    Setting,
    StepRule,
    clip,
    local_gradient,
    local_updates,
    message_of,
    normalise,
    send,
    server_step,
)


def unit_step(k: int, sent: Sent) -> float:
    return 1.0


def fedavg(
    clients: Sequence[Client], x0: Vector, setting: Setting, step: StepRule = unit_step
) -> list[Vector]:
    """DP-FedAvg (`balancing`, Algorithm 1; `dpscaffold`, Algorithm 2 with record noise): the
    iterates x_1, ..., x_T.
    """
    x, C = np.array(x0, dtype=np.float64), setting.clip
    velocity, iterates = np.zeros_like(x), []
    for k, cohort in enumerate(setting.cohorts):
        offered = {}
        for i in cohort:
            offered[i] = local_updates(setting, clients, k, i, x, np.zeros_like(x)) - x
        sent, C = send(setting, k, C, offered, x)
        x, velocity = server_step(setting, x, velocity, x + step(k, sent) * sent.mean)
        iterates.append(x)
    return iterates


def fedsgd(
    clients: Sequence[Client], x0: Vector, setting: Setting, step: StepRule = unit_step
) -> list[Vector]:
    """DP-FedSGD: a client offers the mean over its lots of the gradient at x, and x -= lr times the
    mean: x_1, ..., x_T.

    The bound and both noises are on the scale of a gradient.
    """
    if setting.local_momentum:
        raise ValueError("fedsgd takes no local steps: nothing for a local momentum to act on")
    x, C = np.array(x0, dtype=np.float64), setting.clip
    velocity, iterates = np.zeros_like(x), []
    for k, cohort in enumerate(setting.cohorts):
        offered = {}
        for i in cohort:
            total = np.zeros_like(x)
            for lot in range(setting.steps[k]):
                total = total + local_gradient(setting, clients, k, i, lot, x)
            offered[i] = total / setting.steps[k]
        sent, C = send(setting, k, C, offered, x)
        x, velocity = server_step(setting, x, velocity, x - setting.lr[k] * step(k, sent) * sent.mean)
        iterates.append(x)
    return iterates


def normfedavg(
    clients: Sequence[Client], x0: Vector, setting: Setting, step: StepRule = unit_step
) -> list[Vector]:
    """`normalized`, Algorithm 1, option i (bound="clip") or ii (bound="normalise"): the iterates
    w_1, ..., w_K.

    The bound and both noises are on the scale of u = (x - y_K) / lr, a sum of gradients; server_lr
    = beta / eta.
    """
    x, C = np.array(x0, dtype=np.float64), setting.clip
    velocity, iterates = np.zeros_like(x), []
    for k, cohort in enumerate(setting.cohorts):
        offered = {}
        for i in cohort:
            y = local_updates(setting, clients, k, i, x, np.zeros_like(x))
            offered[i] = (x - y) / setting.lr[k]
        sent, C = send(setting, k, C, offered, x)
        x, velocity = server_step(setting, x, velocity, x - setting.lr[k] * step(k, sent) * sent.mean)
        iterates.append(x)
    return iterates


def scaffnew(
    clients: Sequence[Client],
    x0: Vector,
    setting: Setting,
    p: float,
    h0: Vector | None = None,
    step: StepRule = unit_step,
) -> tuple[list[Vector], Vector]:
    """DP-ScaffNew (`balancing`, Algorithm 2), one turn per communication round: (iterates, shifts h
    of shape (M, d)).

    A round's number of local steps is the gap between two heads; p = 1 / (expected local steps).
    Clients outside the cohort keep their shift. h0 (default zeros) should sum to zero over the
    clients.
    """
    x, C = np.array(x0, dtype=np.float64), setting.clip
    h = np.zeros((len(clients), x.size)) if h0 is None else np.array(h0, dtype=np.float64)
    velocity, iterates = np.zeros_like(x), []
    for k, cohort in enumerate(setting.cohorts):
        offered = {}
        for i in cohort:
            offered[i] = local_updates(setting, clients, k, i, x, h[i]) - x
        sent, C = send(setting, k, C, offered, x)
        x, velocity = server_step(setting, x, velocity, x + step(k, sent) * sent.mean)
        for i in cohort:
            h[i] = h[i] + p / setting.lr[k] * (sent.mean - sent.messages[i])
        iterates.append(x)
    return iterates, h


def scaffnew_coins(clients: Sequence[Client], x0: Vector, setting: Setting, p: float, coins: Sequence[int]):
    """DP-ScaffNew, literally: one turn per iteration t, communication where coins[t] = 1, every
    client, constant eta.

    Returns (x after each head, shifts h, every client's own point x_T^(i)); after a last head the
    points are all x_T. Of the setting it reads kind, classes, bias, l2, weight_decay, bound, clip,
    lots, message_noise, what is about records, and eta = lr[0]. lots and message_noise are asked
    with round = heads so far and step = iterations since the last head.
    """
    if (
        setting.local_momentum
        or setting.server_momentum
        or setting.server_lr != 1
        or setting.sum_noise is not None
    ):
        raise ValueError("the literal Algorithm 2 has no momentum, server learning rate or noise on the sum")
    if setting.adaptive or setting.randomiser is not None:
        raise ValueError("the literal Algorithm 2 has a constant C and Gaussian noise")
    eta, N = setting.lr[0], len(clients)
    x = np.array(x0, dtype=np.float64)
    local, h = [x.copy() for _ in range(N)], np.zeros((N, x.size))
    bound = {None: lambda v, C: v, "clip": clip, "normalise": normalise}[setting.bound]
    heads, step, iterates = 0, 0, []
    for coin in coins:
        hat = [
            local[i] - eta * (local_gradient(setting, clients, heads, i, step, local[i]) - h[i])
            for i in range(N)
        ]
        if coin:
            delta = [message_of(setting, heads, i, bound(hat[i] - x, setting.clip), 1.0) for i in range(N)]
            average = sum(delta) / N
            x = x + average
            local = [x.copy() for _ in range(N)]
            h = np.array([h[i] + p / eta * (average - delta[i]) for i in range(N)])
            heads, step = heads + 1, 0
            iterates.append(x)
        else:
            local, step = hat, step + 1
    return iterates, h, local


def scaffold(
    clients: Sequence[Client],
    x0: Vector,
    setting: Setting,
    total_clients: int | None = None,
    memory: str = "own_message",
    warm_rounds: int = 0,
    step: StepRule = unit_step,
) -> tuple[list[Vector], Vector, list[Vector]]:
    """DP-SCAFFOLD (`dpscaffold`, Algorithm 1): (iterates, controls c_i of shape (clients, d), c
    after each round).

    What is sent takes the place of y_K - x, so noise at clients works as noise on records does.
    memory="own_update": a client makes its own c_i of its bounded update without noise; c is always
    made of what was sent. In the first warm_rounds rounds gradients are taken at x, the controls
    move by the same formulas, and the model stands still.
    """
    if memory not in ("own_message", "own_update"):
        raise ValueError(f"unknown memory {memory!r}")
    M = len(clients) if total_clients is None else total_clients
    x, C = np.array(x0, dtype=np.float64), setting.clip
    own, c = np.zeros((len(clients), x.size)), np.zeros_like(x)
    velocity, iterates, server = np.zeros_like(x), [], []
    for k, cohort in enumerate(setting.cohorts):
        warm, K_lr = k < warm_rounds, setting.steps[k] * setting.lr[k]
        offered = {}
        for i in cohort:
            offered[i] = local_updates(setting, clients, k, i, x, own[i] - c, warm) - x
        sent, C = send(setting, k, C, offered, x)
        remembered = sent.messages if memory == "own_message" else sent.bounded
        for i in cohort:
            own[i] = own[i] - c - remembered[i] / K_lr
        # sum over the cohort of (c_i' - c_i) = -c - message / (K lr), and the noise on the sum with
        # the messages
        c = c + (-len(cohort) * c - setting.divisor[k] * sent.mean / K_lr) / M
        x, velocity = server_step(setting, x, velocity, x if warm else x + step(k, sent) * sent.mean)
        iterates.append(x)
        server.append(c)
    return iterates, own, server


def average_last(iterates: Sequence[Vector], x0: Vector, n: int) -> list[Vector]:
    """The mean of the last n iterates after each round; at the beginning of x_0 and all there
    are.
    """
    points = [np.array(x0, dtype=np.float64), *iterates]
    averages = []
    for t in range(1, len(points)):
        last = points[max(0, t + 1 - n) : t + 1]
        averages.append(sum(last) / len(last))
    return averages


def pfl(
    clients: Sequence[Client],
    x0: Vector,
    kind: str,
    steps: Sequence[int],
    lr: float,
    C: float,
    L: float,
    lots: Callable[[int, int, int], NDArray],
    noise: Callable[[int, int, int], Vector],
    momentum: float = 0.0,
    classes: int = 2,
    bias: bool = False,
) -> list[Vector]:
    """`pfl`, Algorithm 1, literally, with the optimiser of section 5.2: theta^1, ..., theta^R.

    steps[r] is E_r: what Algorithm 1 calls an epoch is one lot. lots(r, i, t) are the rows of a
    Poisson lot and L is its expected size; noise(r, i, t), on the scale of sigma C, is added to the
    sum. The momentum is torch.optim.SGD's (no dampening, the first buffer is the first gradient),
    with a new optimiser in every round.
    """
    theta, models = np.array(x0, dtype=np.float64), []
    for r, E in enumerate(steps):
        local = []
        for i, (X, y) in enumerate(clients):
            theta_i, buffer = theta.copy(), None
            for t in range(E):
                grad_sum = np.zeros_like(theta)
                for row in lots(r, i, t):
                    g = gradient(kind, theta_i, X[[row]], y[[row]], 0.0, classes, bias)
                    grad_sum = grad_sum + g / max(1.0, np.linalg.norm(g) / C)
                g = (grad_sum + noise(r, i, t)) / L
                buffer = g if buffer is None else momentum * buffer + g
                theta_i = theta_i - lr * buffer
            local.append(theta_i)
        theta = sum(local) / len(clients)
        models.append(theta)
    return models
