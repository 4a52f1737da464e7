"""FedEXP's steps, and the norm that PrivUnit releases for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oracles.reference.algorithms import fedavg, fedsgd, normfedavg, scaffnew, scaffold
from oracles.reference.losses import Client, Vector
from oracles.reference.sending import Sent, Setting


@dataclass(frozen=True, kw_only=True)
class NormConstants:
    """The constants of `fedexp`'s Algorithm 5; 1/m is the length of PrivUnit's direction."""

    m: float
    a: float
    b: float
    k: int
    c1: float
    c2: float
    c3: float


def norm_constants(eps2: float, C: float, m: float) -> NormConstants:
    """Algorithms 4 and 5, with k = ceil(e^(eps2 / 3)) as in Bhowmick et al. and in the proof of
    Lemma D.4.
    """
    e = np.exp(eps2)
    k = int(np.ceil(np.exp(eps2 / 3)))
    c1 = (k + 1) / (e - 1)
    c3 = (c1 + 1) * C**2 / (4 * k**2) + c1 * C**2 * (
        (2 * k + 1) * (e + k) / (6 * k * (e - 1)) - (k + 1) / (4 * (e - 1))
    )
    return NormConstants(
        m=m, a=(e + k) / (e - 1) * C / k, b=k * (k + 1) / (2 * (e + k)), k=k, c1=c1, c2=-c1 * C, c3=c3
    )


def squared_norm(c: Vector, constants: NormConstants) -> float:
    """`fedexp`, Algorithm 5: an estimate of |Delta|^2 from the message alone.

    "r / a + b is an integer" is decided by which of r and -r is nearer to one of the values a (j -
    b), j = 0, ..., k.
    """
    r = constants.m * float(np.linalg.norm(c))
    values = [constants.a * (j - constants.b) for j in range(constants.k + 1)]
    if min(abs(-r - v) for v in values) < min(abs(r - v) for v in values):
        r = -r
    return (r**2 - constants.c2 * r - constants.c3) / (1 + constants.c1)


def fedexp(
    clients: Sequence[Client],
    x0: Vector,
    setting: Setting,
    kind: str,
    norm_noise: Callable[[int], float | None] | None = None,
    inner: str = "fedavg",
    sigma: float | None = None,
    constants: NormConstants | None = None,
    p: float | None = None,
    total_clients: int | None = None,
    memory: str = "own_message",
    warm_rounds: int = 0,
) -> tuple[list[Vector], list[float]]:
    """DP-FedEXP (`fedexp`, Algorithms 1 and 2) around any inner algorithm: (iterates, the step of
    each round).

    kind is "plain" (equation 2), "naive" (3), "debiased" (6, with each message's noise std in
    sigma), "central" (7, with xi = norm_noise(round) on the mean of the squares, of the updates
    before noise; without norm_noise it is equation 5), or "privunit" (8, with the constants of
    Algorithm 5). Where C changes, sigma is given for C = 1 and is multiplied by C, xi by C^2. p is
    scaffnew's, the last three are scaffold's. A warm round takes no step and is listed with 1.
    """
    if kind not in ("plain", "naive", "debiased", "central", "privunit"):
        raise ValueError(f"unknown kind {kind!r}")
    if (kind == "debiased") != (sigma is not None) or (kind == "privunit") != (constants is not None):
        raise ValueError("debiased needs sigma, privunit needs constants, the others neither")
    if kind != "central" and norm_noise is not None:
        raise ValueError("norm_noise belongs to central")
    if kind == "plain" and (setting.message_noise or setting.sum_noise or setting.randomiser):
        raise ValueError("plain is without noise")
    if inner not in ("fedavg", "fedsgd", "normfedavg", "scaffnew", "scaffold") or (inner == "scaffnew") != (
        p is not None
    ):
        raise ValueError("inner is fedavg, fedsgd, normfedavg, scaffold, or scaffnew with its p")
    if kind == "privunit" and setting.adaptive:
        raise ValueError("the constants are for one C")
    steps = [1.0] * len(setting.cohorts)

    def step(k: int, sent: Sent) -> float:
        below = float(sent.mean @ sent.mean)
        if below > 0.0:
            above = 0.0
            for i, message in sent.messages.items():
                if kind == "central":
                    above += float(sent.bounded[i] @ sent.bounded[i])
                elif kind == "privunit":
                    above += squared_norm(message, constants)
                elif kind == "debiased":
                    above += float(message @ message) - message.size * (sent.scale * sigma) ** 2
                else:
                    above += float(message @ message)
            above = above / setting.divisor[k]
            xi = None if norm_noise is None else norm_noise(k)
            if xi is not None:
                above = above + sent.scale**2 * xi
            steps[k] = max(1.0, above / below)
        return steps[k]

    if inner == "scaffold":
        iterates = scaffold(clients, x0, setting, total_clients, memory, warm_rounds, step)[0]
    elif inner == "scaffnew":
        iterates = scaffnew(clients, x0, setting, p, step=step)[0]
    else:
        iterates = {"fedavg": fedavg, "fedsgd": fedsgd, "normfedavg": normfedavg}[inner](
            clients, x0, setting, step
        )
    return iterates, steps
