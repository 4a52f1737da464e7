"""An independent float64 reference of every algorithm of the five papers, written from the papers
alone.

It exists to check the product, so it imports nothing from it: numpy, one client after the other,
one local step after the other. Sources: `balancing` (Algorithms 1 and 2), `normalized` (Algorithm 1
options i and ii, Algorithm 2), `dpscaffold` (Algorithms 1 and 2, the warm start of section 3.3, the
median clip of D.1), `fedexp` (equations 2, 3, 6, 7, 8, Algorithms 1, 2 and 5), `pfl` (Algorithm 1),
and Andrew et al. 2021 for the clip that follows a quantile.

Nothing here draws a random number. Cohorts, numbers of local steps, lots and noise are inputs
(`Setting`), so the same values can be handed to the product and to the reference.

Conventions where the papers are silent:
- clip(0) = 0. norm(0) is undefined in `normalized`; here norm(0) = C e with e = (1, ..., 1) /
  sqrt(d), d the number of parameters. The vector offered is y_K - x in `fedavg`, `scaffnew` and
  `scaffold` (so a zero update moves the model by +C e), u = (x - y_K) / lr in `normfedavg` and the
  gradient in `fedsgd` (so a zero update moves it by -lr C e).
- An empty cohort is still a round: its mean is sum_noise / divisor (zero without noise) and the
  server momentum acts.
- The server step sees only the model that the paper's own update proposes: direction = proposed -
  x, velocity = server_momentum velocity + direction, x += server_lr velocity. The paper's update is
  server_lr = 1 and server_momentum = 0; `normalized`'s beta is server_lr times the round's lr.
  FedEXP's step is part of what is proposed.
- With a list of learning rates, the shift update of ScaffNew and the controls of SCAFFOLD divide by
  the learning rate of their own round. With local momentum they keep that formula, so a control is
  then no mean of gradients.
- l2 and weight_decay act on every parameter, biases included, and are never multiplied by the
  record weights, never clipped with the records, and get no noise.
- SCAFFOLD's server counts the messages: c += (1/M) sum over the cohort of (c_i' - c_i), whatever
  the divisor, with the noise on the sum in the place of a message's own: l times the mean of
  Algorithm 1, with l = divisor / M.
- FedEXP: a mean that is exactly zero has step 1; max(1, .) stands in equations 2 and 3 too; sums
  over the cohort are divided by the divisor, and d sigma^2 is subtracted once per message that
  came.
- A median of nothing (an empty lot, an empty cohort) is 0, and noise that is scaled by it is 0.
- Andrew et al.: a round with nothing to count has the share 1/2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


def _weights(weights: Vector | None, n: int) -> Vector:
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
    return float(_weights(weights, len(y)) @ records + 0.5 * l2 * (x @ x))


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
    divisor: Sequence[
        float
    ]  # what the sum is divided by: the cohort's size, or its expected size under Poisson
    classes: int = 2
    bias: bool = False
    l2: float = 0.0
    weight_decay: float = 0.0
    bound: str | None = None  # "clip", "normalise" or None
    clip: float | None = None  # C, for either bound; the first C with a quantile
    clip_median: bool = False  # C is the median of the cohort's norms; noise is given for C = 1
    quantile: float | None = (
        None  # C follows this quantile of the norms (Andrew et al.); noise is given for C = 1
    )
    quantile_lr: float | None = None
    bit_noise: Callable[[int], float | None] | None = None  # (round), on the sum of the bits
    record_clip: float | None = None  # C of a record's gradient
    record_median: bool = (
        False  # C of a lot is the median of its records' norms; record_noise is given for C = 1
    )
    local_momentum: float = 0.0
    server_lr: float = 1.0
    server_momentum: float = 0.0
    lots: Callable[[int, int, int], tuple[NDArray, Vector]] | None = (
        None  # (round, client, step) -> indices, weights
    )
    message_noise: Callable[[int, int], Vector | None] | None = None  # (round, client)
    sum_noise: Callable[[int], Vector | None] | None = None  # (round)
    record_noise: Callable[[int, int, int], Vector | None] | None = (
        None  # (round, client, step), on the lot's weighted mean
    )
    randomiser: Callable[[int, int, Vector], Vector] | None = (
        None  # (round, client, bounded update) -> message, as PrivUnit
    )

    @property
    def adaptive(self) -> bool:
        """Whether C changes from round to round."""
        return self.clip_median or self.quantile is not None

    def __post_init__(self) -> None:
        if not len(self.lr) == len(self.steps) == len(self.cohorts) == len(self.divisor):
            raise ValueError("lr, steps, cohorts and divisor need one entry per round")
        if self.bound not in (None, "clip", "normalise") or (self.bound is None) != (
            self.clip is None and not self.clip_median
        ):
            raise ValueError(
                "bound is 'clip' or 'normalise' with a C in clip or clip_median, or all are None"
            )
        if self.clip_median and self.clip is not None:
            raise ValueError("clip_median finds C itself: neither a clip nor a quantile")
        if (self.quantile is None) != (self.quantile_lr is None) or (
            self.quantile is not None and self.clip is None
        ):
            raise ValueError("quantile, quantile_lr and a first C in clip come together")
        if self.record_median and self.record_clip is not None:
            raise ValueError("record_median finds C itself: no record_clip")
        if self.randomiser is not None and self.message_noise is not None:
            raise ValueError("a message has a randomiser or message_noise, not both")
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


def _record_gradient(
    setting: Setting, k: int, i: int, step: int, y: Vector, X: Vector, labels: NDArray, weights: Vector
) -> Vector:
    """sum_r w_r clip(g_r) + noise, without regularisers."""
    records = []
    for r in range(len(labels)):
        records.append(gradient(setting.kind, y, X[[r]], labels[[r]], 0.0, setting.classes, setting.bias))
    C = setting.record_clip
    if setting.record_median:
        C = float(np.median([np.linalg.norm(g) for g in records])) if records else 0.0
    total = np.zeros_like(y)
    for w, g in zip(weights, records, strict=True):
        total = total + w * (g if C is None else clip(g, C))
    noise = None if setting.record_noise is None else setting.record_noise(k, i, step)
    if noise is None:
        return total
    return total + (C * noise if setting.record_median else noise)


def _local_gradient(
    setting: Setting, clients: Sequence[Client], k: int, i: int, step: int, y: Vector
) -> Vector:
    X, labels = clients[i]
    weights = None
    if setting.lots is not None:
        rows, weights = setting.lots(k, i, step)
        rows = np.asarray(rows, dtype=int)
        X, labels = X[rows], labels[rows]
    if setting.record_clip is None and not setting.record_median and setting.record_noise is None:
        g = gradient(setting.kind, y, X, labels, setting.l2, setting.classes, setting.bias, weights)
    else:
        g = (
            _record_gradient(setting, k, i, step, y, X, labels, _weights(weights, len(labels)))
            + setting.l2 * y
        )
    return g + setting.weight_decay * y


def _local_steps(
    setting: Setting, clients: Sequence[Client], k: int, i: int, x: Vector, shift: Vector, warm: bool = False
) -> Vector:
    """y_K of client i in round k: heavy ball on (gradient - shift), started at rest in every round.

    In a warm round y moves as ever, but every gradient is taken at x.
    """
    y, v = x.copy(), np.zeros_like(x)
    for step in range(setting.steps[k]):
        g = _local_gradient(setting, clients, k, i, step, x if warm else y) - shift
        v = setting.local_momentum * v + g
        y = y - setting.lr[k] * v
    return y


@dataclass(frozen=True)
class Sent:
    """What a round brought to the server."""

    bounded: dict[int, Vector]  # before anything random
    messages: dict[int, Vector]  # as sent
    mean: Vector  # (sum of the messages + sum_noise) / divisor
    scale: float  # what the noise was multiplied by: C when C changes, else 1


def _message(setting: Setting, k: int, i: int, bounded: Vector, scale: float) -> Vector:
    """What client i sends: its bounded vector, plus its own noise or randomised."""
    if setting.randomiser is not None:
        return setting.randomiser(k, i, bounded)
    noise = None if setting.message_noise is None else setting.message_noise(k, i)
    return bounded if noise is None else bounded + scale * noise


def _mean(setting: Setting, k: int, messages: Sequence[Vector], like: Vector, scale: float) -> Vector:
    """(sum of the messages + sum_noise) / divisor; zero when there is nothing to divide."""
    total = np.zeros_like(like)
    for message in messages:
        total = total + message
    noise = None if setting.sum_noise is None else setting.sum_noise(k)
    if noise is None and not messages:
        return total
    return (total if noise is None else total + scale * noise) / setting.divisor[k]


def _next_clip(setting: Setting, k: int, C: float | None, norms: Sequence[float]) -> float | None:
    """Andrew et al.: C exp(-lr (b - quantile)), b = (sum of (1[norm <= C] - 1/2) + noise) / divisor
    + 1/2.
    """
    if setting.quantile is None:
        return C
    noise = None if setting.bit_noise is None else setting.bit_noise(k)
    total = 0.0 if noise is None else float(noise)
    for norm in norms:
        total += 0.5 if norm <= C else -0.5
    share = 0.5 + (total / setting.divisor[k] if total else 0.0)
    return C * float(np.exp(-setting.quantile_lr * (share - setting.quantile)))


def _send(
    setting: Setting, k: int, C: float | None, offered: dict[int, Vector], like: Vector
) -> tuple[Sent, float | None]:
    """Bounds and sends what the cohort offers; the second value is the next round's C."""
    norms = [float(np.linalg.norm(v)) for v in offered.values()]
    if setting.clip_median:
        C = float(np.median(norms)) if norms else 0.0
    scale = C if setting.adaptive else 1.0
    bounds = {None: lambda v, C: v, "clip": clip, "normalise": normalise}
    bounded, messages = {}, {}
    for i, v in offered.items():
        bounded[i] = bounds[setting.bound](v, C)
        messages[i] = _message(setting, k, i, bounded[i], scale)
    mean = _mean(setting, k, list(messages.values()), like, scale)
    return Sent(bounded, messages, mean, scale), _next_clip(setting, k, C, norms)


def _server(setting: Setting, x: Vector, velocity: Vector, proposed: Vector) -> tuple[Vector, Vector]:
    velocity = setting.server_momentum * velocity + (proposed - x)
    return x + setting.server_lr * velocity, velocity


StepRule = Callable[[int, Sent], float]  # (round, what was sent) -> what multiplies the mean


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
            offered[i] = _local_steps(setting, clients, k, i, x, np.zeros_like(x)) - x
        sent, C = _send(setting, k, C, offered, x)
        x, velocity = _server(setting, x, velocity, x + step(k, sent) * sent.mean)
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
                total = total + _local_gradient(setting, clients, k, i, lot, x)
            offered[i] = total / setting.steps[k]
        sent, C = _send(setting, k, C, offered, x)
        x, velocity = _server(setting, x, velocity, x - setting.lr[k] * step(k, sent) * sent.mean)
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
            y = _local_steps(setting, clients, k, i, x, np.zeros_like(x))
            offered[i] = (x - y) / setting.lr[k]
        sent, C = _send(setting, k, C, offered, x)
        x, velocity = _server(setting, x, velocity, x - setting.lr[k] * step(k, sent) * sent.mean)
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
            offered[i] = _local_steps(setting, clients, k, i, x, h[i]) - x
        sent, C = _send(setting, k, C, offered, x)
        x, velocity = _server(setting, x, velocity, x + step(k, sent) * sent.mean)
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
            local[i] - eta * (_local_gradient(setting, clients, heads, i, step, local[i]) - h[i])
            for i in range(N)
        ]
        if coin:
            delta = [_message(setting, heads, i, bound(hat[i] - x, setting.clip), 1.0) for i in range(N)]
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
            offered[i] = _local_steps(setting, clients, k, i, x, own[i] - c, warm) - x
        sent, C = _send(setting, k, C, offered, x)
        remembered = sent.messages if memory == "own_message" else sent.bounded
        for i in cohort:
            own[i] = own[i] - c - remembered[i] / K_lr
        # sum over the cohort of (c_i' - c_i) = -c - message / (K lr), and the noise on the sum with
        # the messages
        c = c + (-len(cohort) * c - setting.divisor[k] * sent.mean / K_lr) / M
        x, velocity = _server(setting, x, velocity, x if warm else x + step(k, sent) * sent.mean)
        iterates.append(x)
        server.append(c)
    return iterates, own, server


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


def average_last(iterates: Sequence[Vector], x0: Vector, n: int) -> list[Vector]:
    """The mean of the last n iterates after each round; at the beginning of x_0 and all there are."""
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
