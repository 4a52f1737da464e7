"""What a run is given, and what a round sends: local steps, bounds, noise, the server's step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracles.reference.losses import Client, Vector, gradient, record_weights


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


def local_gradient(
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
            _record_gradient(setting, k, i, step, y, X, labels, record_weights(weights, len(labels)))
            + setting.l2 * y
        )
    return g + setting.weight_decay * y


def local_updates(
    setting: Setting, clients: Sequence[Client], k: int, i: int, x: Vector, shift: Vector, warm: bool = False
) -> Vector:
    """y_K of client i in round k: heavy ball on (gradient - shift), started at rest in every round.

    In a warm round y moves as ever, but every gradient is taken at x.
    """
    y, v = x.copy(), np.zeros_like(x)
    for step in range(setting.steps[k]):
        g = local_gradient(setting, clients, k, i, step, x if warm else y) - shift
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


def message_of(setting: Setting, k: int, i: int, bounded: Vector, scale: float) -> Vector:
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


def send(
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
        messages[i] = message_of(setting, k, i, bounded[i], scale)
    mean = _mean(setting, k, list(messages.values()), like, scale)
    return Sent(bounded, messages, mean, scale), _next_clip(setting, k, C, norms)


def server_step(setting: Setting, x: Vector, velocity: Vector, proposed: Vector) -> tuple[Vector, Vector]:
    velocity = setting.server_momentum * velocity + (proposed - x)
    return x + setting.server_lr * velocity, velocity


StepRule = Callable[[int, Sent], float]  # (round, what was sent) -> what multiplies the mean
