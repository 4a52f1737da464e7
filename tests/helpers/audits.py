"""Audits of small runs, and faults that are planted into the product from outside."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpfl_bench.audit import whole_audit
from dpfl_bench.audit.audited_run import Asked
from dpfl_bench.config.settings import Privacy
from dpfl_bench.federation.doors import send_passage
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.privacy import bounding, noise_draws
from dpfl_bench.privacy.released import views
from dpfl_bench.results.folder import RunFolder
from helpers.federations import TINY, settings_of

Patch = pytest.MonkeyPatch
Report = dict[str, Any]
CONFIDENCE = 0.95


def audit_of(*overrides: str, canaries: int = 500) -> Report:
    """Of settings that were not run, on the tiny federation."""
    settings = settings_of(*TINY, *overrides)
    return whole_audit.audit(Asked(settings, RunFolder(Path("nowhere")), None), CONFIDENCE, canaries)


def part(report: Report, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in report["parts"] if each["part"] == name)
    return found


def least_p(report: Report) -> float:
    return min(each["p"] for each in report["parts"] if each["p"] is not None)


# what is planted


def wrapped(patch: Patch, module: Any, name: str, change: Callable[..., Any]) -> None:
    """The function gives what `change` makes of its result and its arguments."""
    before = getattr(module, name)
    patch.setattr(module, name, lambda *a, **k: change(before(*a, **k), *a))


def noise_too_small(patch: Patch, factor: float = 0.95) -> None:
    for name in ("client_gaussian", "server_gaussian"):
        wrapped(patch, noise_draws, name, lambda drawn, *_: drawn * drawn.dtype.type(factor))


def noise_of_one_client(patch: Patch) -> None:
    wrapped(patch, noise_draws, "client_gaussian", lambda drawn, *_: np.repeat(drawn[:1], len(drawn), 0))


def noise_of_pairs(patch: Patch) -> None:
    """Clients 0 and 1 share it, 2 and 3, ... The sums' variance hardly tells."""
    before = noise_draws.client_gaussian

    def drawn(seed: int, round: int, clients: Any, *rest: Any) -> np.ndarray:
        return before(seed, round, [int(i) // 2 for i in clients], *rest)

    patch.setattr(noise_draws, "client_gaussian", drawn)


def noise_of_one_round(patch: Patch) -> None:
    before = noise_draws.client_gaussian, noise_draws.server_gaussian
    patch.setattr(noise_draws, "client_gaussian", lambda s, r, *rest: before[0](s, 0, *rest))
    patch.setattr(noise_draws, "server_gaussian", lambda s, r, *rest: before[1](s, 0, *rest))


def noise_of_one_seed(patch: Patch) -> None:
    before = noise_draws.client_gaussian
    patch.setattr(noise_draws, "client_gaussian", lambda s, *rest: before(0, *rest))


def uniform_noise(patch: Patch) -> None:
    from scipy.special import ndtr

    for name in ("client_gaussian", "server_gaussian"):

        def uniform(drawn: np.ndarray, *arguments: Any) -> np.ndarray:
            std = arguments[-2]
            return ((2 * ndtr(drawn / std) - 1) * math.sqrt(3) * std).astype(drawn.dtype)

        wrapped(patch, noise_draws, name, uniform)


def clip_after_summing(patch: Patch) -> None:
    """Updates pass as they are; the sum of m is cut to m C."""
    patch.setattr(
        bounding, "clip", lambda rows, bound: bounding.Bounded(rows.nan_to_num(0, 0, 0), rows.norm(dim=1), 0)
    )
    before = send_passage.SendPassage.sent

    def sent(self: Any, ledger: Any) -> Any:
        most = self.clip * self.clients
        self.total = self.total * min(1.0, most / max(most, float(self.total.double().norm())))
        return before(self, ledger)

    patch.setattr(send_passage.SendPassage, "sent", sent)


def weighted_by_records(patch: Patch) -> None:
    """Bounded updates times the client's records over the mean number."""
    from dpfl_bench.federation.round_player import RoundPlayer

    before, sizes = send_passage.SendPassage.send, []
    play = RoundPlayer.play_group

    def play_group(self: Any, *arguments: Any) -> Any:
        sizes[:] = [self.federation.sizes / self.federation.sizes.mean()]
        return play(self, *arguments)

    def send(self: Any, updates: torch.Tensor, clients: np.ndarray) -> Any:
        clip = bounding.clip
        weights = torch.from_numpy(sizes[0][clients]).to(updates).unsqueeze(1)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(bounding, "clip", lambda u, c: (b := clip(u, c))._replace(rows=b.rows * weights))
            return before(self, updates, clients)

    patch.setattr(RoundPlayer, "play_group", play_group)
    patch.setattr(send_passage.SendPassage, "send", send)


def noisy_memory_by_sums(patch: Patch) -> None:
    """privacy.memory=own_message, accounted as if sums were all that shows."""
    patch.setattr(views, "_scale", lambda releases, server: 1.0)


def sensitivity_of_one(patch: Patch) -> None:
    """C where 2C is meant."""
    patch.setattr(Privacy, "ratio", property(lambda self: 1))


def shuffled_cohorts(patch: Patch) -> None:
    """Each client once in M/m rounds, in place of a fresh draw."""

    def cohort(self: Schedule, index: int) -> np.ndarray:
        epoch, place = divmod(index * self.cohort_size, self.clients)
        order = np.random.default_rng([self.seed, epoch]).permutation(self.clients)
        return np.sort(order[place : place + self.cohort_size])

    patch.setattr(Schedule, "cohort", cohort)


def scalars_without_noise(patch: Patch) -> None:
    patch.setattr(noise_draws, "server_scalar", lambda *_: 0.0)


def accountant_too_low(patch: Patch) -> None:
    """It claims a tenth less than there is."""
    from dpfl_bench.privacy.accountants import exact

    wrapped(patch, exact, "eps_of_gaussian", lambda eps, *_: 0.9 * eps)
