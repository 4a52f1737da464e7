"""The same run twice: by the product, and by the reference, which is handed the product's cohorts, lots and injected noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import reference as ref
from conftest import Played, cohort_on, settings_of

from dpfl_bench import rng
from dpfl_bench.data.records import Records
from dpfl_bench.federation.partition import Parts
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.privacy import mechanisms
from dpfl_bench.settings import Settings

SIZES = (3, 17, 8, 30, 5, 12, 4, 9)  # records of each client: unequal on purpose
FEATURES, CLASSES = 6, 4
KINDS = {"binary": ("logreg", 2), "softmax": ("logreg", CLASSES), "squared": ("linreg", 0)}
ALWAYS = ("clients=8", "rounds=20", "device=cpu", "engine.chunk=3", "privacy.calibration=fixed", "privacy.noise_multiplier=0.02")


def records(kind: str, sizes: tuple[int, ...] = SIZES) -> tuple[Records, Parts]:
    """Heterogeneous clients, their records scattered over the store."""
    draw = np.random.default_rng(7)
    owners = draw.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = (draw.normal(size=(len(owners), FEATURES)) * (0.5 + 0.1 * owners[:, None]) + 0.1 * owners[:, None]).astype(np.float32)
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

    def reference(self, name: str) -> tuple[list[np.ndarray], np.ndarray | None]:
        """Iterates, and shifts where there are some."""
        if name == "scaffnew":
            return ref.scaffnew(self.clients, self.x0, self.setting, self.p)
        return getattr(ref, name)(self.clients, self.x0, self.setting), None

    def with_(self, **changes: Any) -> Twin:
        return replace(self, setting=replace(self.setting, **changes))


def twin(monkeypatch: pytest.MonkeyPatch, kind: str, dtype: str, *overrides: str) -> Twin:
    """Both sides of the run that these overrides describe."""
    settings = replace(settings_of(*ALWAYS, f"model={KINDS[kind][0]}", "model.l2=0.05", *overrides), dtype=dtype)
    data, parts = records(kind)
    bias = kind == "softmax" if settings.model["bias"] is None else bool(settings.model["bias"])
    x0 = 0.3 * np.random.default_rng(8).normal(size=ref.parameters(kind, FEATURES, CLASSES, bias))
    x0 = x0.astype(np.float32).astype(np.float64)  # both formats start from the same point
    played = cohort_on(settings, data, parts, x0)
    schedule = played.schedule
    noise = np.random.default_rng(9).normal(size=(schedule.rounds, settings.clients + 1, x0.size))  # [:, -1]: the server's
    _inject(monkeypatch, noise)
    rounds = [schedule.round(k) for k in range(schedule.rounds)]
    bounded = settings.private or settings.privacy.bound_without_noise
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
        bound=settings.privacy.bound if bounded else None,
        clip=settings.privacy.clip if bounded else None,
        local_momentum=settings.local_momentum,
        server_lr=settings.server_lr,
        server_momentum=settings.server_momentum,
        lots=_lots(settings, [len(part) for part in parts], schedule.steps),
        **_noise(settings, noise, [r.cohort for r in rounds]),
    )
    clients = [(data.train_x[part].astype(np.float64), data.train_y[part]) for part in parts]
    return Twin(played, clients, setting, 1 / settings.local_steps, x0)


def _inject(monkeypatch: pytest.MonkeyPatch, noise: np.ndarray) -> None:
    def of_clients(seed: int, round: int, clients: np.ndarray, dimension: int, std: float) -> np.ndarray:
        return std * noise[round, clients]

    def of_server(seed: int, round: int, dimension: int, std: float) -> np.ndarray:
        return std * noise[round, -1]

    monkeypatch.setattr(mechanisms, "client_gaussian", of_clients)
    monkeypatch.setattr(mechanisms, "server_gaussian", of_server)


def _noise(settings: Settings, noise: np.ndarray, cohorts: list[np.ndarray]) -> dict[str, Any]:
    """Where the papers put the noise, and how much of it: written down here a second time, not asked of the product."""
    privacy = settings.privacy
    if not settings.private:
        return {}
    sensitivity = privacy.clip * {"replace_one": 2, "add_remove_one": 1}[privacy.neighbours]
    assert privacy.noise_multiplier is not None
    std = privacy.noise_multiplier * sensitivity
    if privacy.trust == "central":
        return {"sum_noise": lambda k: std * noise[k, -1]}
    if privacy.trust == "local":
        return {"message_noise": lambda k, i: std * noise[k, i]}
    shares = {k: std / np.sqrt(max(1, len(cohort))) for k, cohort in enumerate(cohorts)}
    if settings.algo["name"].endswith("scaffnew") and privacy.memory != "own_message":  # the share is not remembered
        return {"sum_noise": lambda k: shares[k] * noise[k, cohorts[k]].sum(axis=0)}
    return {"message_noise": lambda k, i: shares[k] * noise[k, i]}


def _lots(settings: Settings, sizes: list[int], steps: tuple[int, ...]) -> Any:
    rule = LotRule(settings.batch_size, settings.sample_rate)
    if rule.full:
        return None

    def lots(k: int, i: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        rows, weight = rule.draw(settings.seed, k, i, sizes[i], steps[k])[step]
        return rows, np.full(len(rows), weight)

    return lots


def coins(settings: Settings) -> list[int]:
    """The coins of the schedule, one per iteration."""
    return (rng.generator(settings.seed, "coins").random(settings.total_steps) < 1 / settings.local_steps).astype(int).tolist()


def difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest over rounds of |x - x_ref| / |x_ref|."""
    assert len(ours) == len(theirs)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(ours, theirs, strict=True))
