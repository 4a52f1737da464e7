"""The same run twice: by the product, and by the reference, which is handed the product's cohorts,
lots and injected noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from helpers.federations import Played, player_on, settings_of

from dpfl_bench import rng
from dpfl_bench.config.settings import Privacy, Settings
from dpfl_bench.data.records import Records
from dpfl_bench.federation.parts import Parts
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.privacy import noise_draws
from dpfl_bench.privacy.privunit import PrivUnit
from oracles import reference as ref

SIZES = (3, 17, 8, 30, 5, 12, 4, 9)  # records of each client: unequal on purpose
FEATURES, CLASSES = 6, 4
KINDS = {"binary": ("logreg", 2), "softmax": ("logreg", CLASSES), "squared": ("linreg", 0)}
NOISE = 0.02  # the noise multiplier
ALWAYS = (
    "clients=8",
    "rounds=20",
    "device=cpu",
    "engine.chunk=3",
    "privacy.calibration=fixed",
    f"privacy.noise_multiplier={NOISE}",
)


def records(kind: str, sizes: tuple[int, ...] = SIZES) -> tuple[Records, Parts]:
    """Heterogeneous clients, their records scattered over the store."""
    draw = np.random.default_rng(7)
    owners = draw.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = (
        draw.normal(size=(len(owners), FEATURES)) * (0.5 + 0.1 * owners[:, None]) + 0.1 * owners[:, None]
    ).astype(np.float32)
    y = draw.normal(size=len(owners)).astype(np.float32) + owners
    if kind != "squared":
        classes = KINDS[kind][1]
        y = ((draw.integers(0, classes, len(owners)) + owners) % classes).astype(np.int64)
    parts = [np.flatnonzero(owners == i) for i in range(len(sizes))]
    return Records(x, y, x[:0], y[:0], None, KINDS[kind][1], "test", None), parts


@dataclass(frozen=True)
class Twin:
    """One run, ready to be played by both sides."""

    played: Played
    clients: list[ref.Client]
    setting: ref.Setting
    p: float
    x0: np.ndarray

    norm_noise: Callable[[int], float] | None = None

    @property
    def settings(self) -> Settings:
        return self.played.job.settings

    def reference(self) -> tuple[list[np.ndarray], np.ndarray | None]:
        """Iterates, and shifts or controls where there are some."""
        name = self.settings.algo["name"].removeprefix("dp_").removesuffix("_warm").replace("pfl", "fedavg")
        arguments = (self.clients, self.x0, self.setting)
        if name == "scaffnew":
            return ref.scaffnew(*arguments, self.p)
        if name == "scaffold":
            return ref.scaffold(*arguments, **self._controls())[:2]
        if name.startswith("fedexp"):
            return ref.fedexp(*arguments, **self._step())[0], None
        return getattr(ref, name)(*arguments), None

    def steps(self) -> list[float]:
        """FedEXP's."""
        steps: list[float] = ref.fedexp(self.clients, self.x0, self.setting, **self._step())[1]
        return steps

    def _controls(self) -> dict[str, Any]:
        node = self.settings.algo.get("work", self.settings.algo)
        warm = node["warm_rounds"]
        if warm is None:
            warm = (
                1
                if self.settings.sampled_clients == len(self.clients)
                else math.ceil(4 * len(self.clients) / self.settings.sampled_clients)
            )
        return {"memory": self.settings.privacy.remembered, "warm_rounds": warm}

    def _step(self) -> dict[str, Any]:
        """Which of the four forms, written down here a second time."""
        privacy, algo = self.settings.privacy, self.settings.algo
        inner: dict[str, Any] = (
            {"inner": "scaffold", **self._controls()} if "scaffold" in algo["name"] else {}
        )
        closed = self.settings.private and privacy.unit == "client"
        if algo["naive"]:
            return {"kind": "naive", **inner}
        if not closed:
            return {"kind": "plain", **inner}
        if privacy.mechanism == "privunit":
            m = PrivUnit(privacy.eps0, privacy.eps1, privacy.eps2, 1.0, len(self.x0)).m
            return {
                "kind": "privunit",
                "constants": ref.norm_constants(privacy.eps2, privacy.clip, m),
                **inner,
            }
        if privacy.trust == "local":
            scale = 1.0 if self.setting.adaptive else privacy.clip
            return {"kind": "debiased", "sigma": NOISE * _ratio(privacy) * scale, **inner}
        return {"kind": "central", "norm_noise": self.norm_noise, **inner}

    def with_(self, **changes: Any) -> Twin:
        return replace(self, setting=replace(self.setting, **changes))


def twin(monkeypatch: pytest.MonkeyPatch, kind: str, dtype: str, *overrides: str) -> Twin:
    """Both sides of the run that these overrides describe."""
    shape = (f"dataset.shape=[{FEATURES}]", f"dataset.classes={KINDS[kind][1]}", "partition=iid")
    settings = replace(
        settings_of(*ALWAYS, f"model={KINDS[kind][0]}", "model.l2=0.05", *shape, *overrides), dtype=dtype
    )
    data, parts = records(kind)
    bias = kind == "softmax" if settings.model["bias"] is None else bool(settings.model["bias"])
    x0 = 0.3 * np.random.default_rng(8).normal(size=ref.parameters(kind, FEATURES, CLASSES, bias))
    x0 = x0.astype(np.float32).astype(np.float64)  # both formats start from the same point
    played = player_on(settings, data, parts, x0)
    schedule = played.schedule
    draw = np.random.default_rng(9)
    noise = draw.normal(size=(schedule.rounds, settings.clients + 1, x0.size))  # [:, -1]: the server's
    of_records = draw.normal(size=(schedule.rounds, settings.clients, max(schedule.steps), x0.size))
    scalars = {what: draw.normal(size=schedule.rounds) for what in ("norm-noise", "bit-noise")}
    _inject(monkeypatch, noise, of_records, scalars)
    rounds = [schedule.round(k) for k in range(schedule.rounds)]
    privacy, sizes = settings.privacy, [len(part) for part in parts]
    bounded = (settings.private or privacy.bound_without_noise) and privacy.unit == "client"
    adaptive = privacy.quantile is not None
    setting = ref.Setting(
        kind=kind,
        lr=[settings.lr * settings.lr_decay**k for k in range(len(rounds))],
        steps=schedule.steps,
        cohorts=[r.cohort.tolist() for r in rounds],
        divisor=[settings.sampled_clients] * len(rounds),
        classes=CLASSES if kind == "softmax" else 2,
        bias=bias,
        l2=0.05,
        weight_decay=settings.weight_decay,
        bound=privacy.bound if bounded else None,
        clip=privacy.clip if bounded and privacy.clip != "median" else None,
        clip_median=bounded and privacy.clip == "median",
        quantile=privacy.quantile if bounded else None,
        quantile_lr=privacy.quantile_lr if bounded and adaptive else None,
        bit_noise=_bit_noise(settings, scalars["bit-noise"], [r.cohort for r in rounds])
        if bounded and adaptive
        else None,
        local_momentum=settings.local_momentum,
        server_lr=settings.server_lr,
        server_momentum=settings.server_momentum,
        lots=_lots(settings, sizes, schedule.steps),
        **(
            _noise(settings, noise, [r.cohort for r in rounds])
            if bounded
            else _record_noise(settings, of_records, sizes)
        ),
    )
    clients = [(data.train_x[part].astype(np.float64), data.train_y[part]) for part in parts]
    return Twin(
        played,
        clients,
        setting,
        1 / settings.local_steps,
        x0,
        _norm_noise(settings, scalars["norm-noise"], x0.size),
    )


def _inject(
    monkeypatch: pytest.MonkeyPatch, noise: np.ndarray, of_records: np.ndarray, scalars: dict[str, np.ndarray]
) -> None:
    def of_clients(
        seed: int, round: int, clients: np.ndarray, dimension: int, std: float, dtype: object
    ) -> np.ndarray:
        return std * noise[round, clients]

    def of_server(seed: int, round: int, dimension: int, std: float, dtype: object) -> np.ndarray:
        return std * noise[round, -1]

    def of_scalars(seed: int, round: int, what: str, std: float) -> float:
        return std * float(scalars[what][round])

    class OfRecords:
        def __init__(self, seed: int, round: int, clients: np.ndarray) -> None:
            self.rows, self.step = of_records[round, clients], 0

        def draw(self, dimension: int, dtype: object) -> np.ndarray:
            self.step += 1
            return self.rows[:, self.step - 1]

    monkeypatch.setattr(noise_draws, "client_gaussian", of_clients)
    monkeypatch.setattr(noise_draws, "server_gaussian", of_server)
    monkeypatch.setattr(noise_draws, "server_scalar", of_scalars)
    monkeypatch.setattr(noise_draws, "RecordGaussian", OfRecords)


def _ratio(privacy: Privacy) -> int:
    return {"replace_one": 2, "add_remove_one": 1}[privacy.neighbours]


def _noise(settings: Settings, noise: np.ndarray, cohorts: list[np.ndarray]) -> dict[str, Any]:
    """Where the papers put the noise, and how much of it: written down here a second time, not
    asked of the product.
    """
    privacy = settings.privacy
    if not settings.private:
        return {}
    if privacy.mechanism == "privunit":
        return {"randomiser": _randomiser(settings, noise.shape[2])}
    assert privacy.noise_multiplier is not None
    std = privacy.noise_multiplier * _ratio(privacy)  # for C = 1, as the reference takes it where C changes
    if privacy.quantile is None and privacy.clip != "median":
        std *= privacy.clip
    if privacy.trust == "central":
        return {"sum_noise": lambda k: std * noise[k, -1]}
    if privacy.trust == "local":
        return {"message_noise": lambda k, i: std * noise[k, i]}
    shares = {k: std / np.sqrt(max(1, len(cohort))) for k, cohort in enumerate(cohorts)}
    if (
        settings.algo["name"].endswith("scaffnew") and privacy.memory != "own_message"
    ):  # the share is not remembered
        return {"sum_noise": lambda k: shares[k] * noise[k, cohorts[k]].sum(axis=0)}
    return {"message_noise": lambda k, i: shares[k] * noise[k, i]}


def _randomiser(settings: Settings, dimension: int) -> Any:
    """The product's own PrivUnit, which tests/privacy/test_privunit.py examines, on the same
    draws.
    """
    privacy = settings.privacy
    mechanism = PrivUnit(privacy.eps0, privacy.eps1, privacy.eps2, privacy.clip, dimension)

    def randomise(k: int, i: int, bounded: np.ndarray) -> np.ndarray:
        return mechanism.randomise(bounded[None], [rng.generator(settings.seed, "privunit", k, i)])[0]

    return randomise


def _record_noise(settings: Settings, noise: np.ndarray, sizes: list[int]) -> dict[str, Any]:
    """The bound on each record's gradient, and noise z S on the mean of a lot: S = 2C / b or C / (s
    R).
    """
    privacy = settings.privacy
    if privacy.unit == "client" or not (settings.private or privacy.bound_without_noise):
        return {}
    bound: dict[str, Any] = (
        {"record_median": True} if privacy.clip == "median" else {"record_clip": privacy.clip}
    )
    if not settings.private:
        return bound
    C = 1.0 if privacy.clip == "median" else privacy.clip

    def of(k: int, i: int, step: int) -> np.ndarray:
        size = settings.batch_size or sizes[i] * (settings.sample_rate or 1.0)
        return privacy.noise_multiplier * _ratio(privacy) * C / size * noise[k, i, step]

    return {**bound, "record_noise": of}


def _bit_noise(settings: Settings, noise: np.ndarray, cohorts: list[np.ndarray]) -> Any:
    """On the sum of the bits, whose sensitivity is 1 or, half of it being centred away, 1/2."""
    privacy = settings.privacy
    if not settings.private:
        return None
    std = NOISE * privacy.quantile_noise * _ratio(privacy) / 2

    def of(k: int) -> float:
        return float(std * (np.sqrt(len(cohorts[k])) if privacy.trust == "local" else 1.0) * noise[k])

    return of


def _norm_noise(settings: Settings, noise: np.ndarray, dimension: int) -> Any:
    """On the mean of the squared norms: sigma_xi = d sigma^2 / M of `fedexp`, or a multiple of the
    updates' noise multiplier.
    """
    privacy = settings.privacy
    if not settings.private or privacy.trust == "local" or privacy.mechanism != "gaussian":
        return None
    M, C = (
        settings.sampled_clients,
        1.0 if privacy.quantile is not None or privacy.clip == "median" else privacy.clip,
    )
    sigma = NOISE * _ratio(privacy) * C / np.sqrt(M)  # of one client's share, as the paper counts
    std = dimension * sigma**2 / M if privacy.norm_noise is None else NOISE * privacy.norm_noise * C**2 / M
    return lambda k: float(std * noise[k])


def _lots(settings: Settings, sizes: list[int], steps: tuple[int, ...]) -> Any:
    rule = LotRule(settings.batch_size, settings.sample_rate)
    if rule.full:
        return None

    def lots(k: int, i: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        rows = rule.draw(settings.seed, k, i, sizes[i], steps[k])[step]
        return rows, np.full(len(rows), rule.weight(sizes[i]))

    return lots


def coins(settings: Settings) -> list[int]:
    """The coins of the schedule, one per iteration."""
    return (
        (rng.generator(settings.seed, "coins").random(settings.total_steps) < 1 / settings.local_steps)
        .astype(int)
        .tolist()
    )


def difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest over rounds of |x - x_ref| / |x_ref|."""
    assert len(ours) == len(theirs)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(ours, theirs, strict=True))
