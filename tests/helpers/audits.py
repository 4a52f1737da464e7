"""Audits of small runs, and faults that are planted into the product from outside."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpfl_bench.audit import record_plays, scalars, whole_audit
from dpfl_bench.audit.audited_run import Asked
from dpfl_bench.config.settings import Privacy
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.doors import send_passage
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.privacy import bounding, noise_draws, privunit
from dpfl_bench.privacy.privunit import PrivUnit
from dpfl_bench.privacy.released import views
from dpfl_bench.privacy.scalar_dp import ScalarDP
from dpfl_bench.problems.linear_problem import LinearProblem
from dpfl_bench.results.folder import RunFolder
from helpers.federations import TINY, settings_of

Patch = pytest.MonkeyPatch
Report = dict[str, Any]
CONFIDENCE = 0.95
# many parameters: a round releases as many numbers, and fewer rounds tell as much of the noise
WIDE = (*TINY, "dataset.dimension=40")


def audit_of(*overrides: str, canaries: int = 500, base: tuple[str, ...] = WIDE) -> Report:
    """Of settings that were not run, by default on a small federation. Fewer lots and fewer draws
    of scalars than a user's audit has.
    """
    settings = settings_of(*base, *overrides)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_plays, "LEAST_LOTS", 1000)
        patch.setattr(record_plays, "LEAST_NUMBERS", 20_000)
        patch.setattr(scalars, "DRAWS", 4000)
        return whole_audit.audit(Asked(settings, RunFolder(Path("nowhere")), None), CONFIDENCE, canaries)


def part(report: Report, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in report["parts"] if each["part"] == name)
    return found


def least_p(report: Report) -> float:
    return min(each["p"] for each in report["parts"] if each["p"] is not None)


Fault = Callable[[Patch], None]


def assert_seen(report: Report, by: str) -> None:
    """By one part at least, and beyond doubt."""
    assert report["verdict"] == "violated", report
    assert part(report, by)["verdict"] == "violated", report
    assert least_p(report) < 1e-6


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


def noise_of_the_first_process(patch: Patch) -> None:
    """Workers add none."""
    first = os.getpid()
    wrapped(patch, noise_draws, "client_gaussian", lambda drawn, *_: drawn * (os.getpid() == first))


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


# at record level


def record_noise_too_small(patch: Patch, factor: float = 0.95) -> None:
    wrapped(patch, noise_draws.RecordGaussian, "draw", lambda drawn, *_: drawn * drawn.dtype.type(factor))


def uniform_record_noise(patch: Patch) -> None:
    from scipy.special import ndtr

    def uniform(drawn: np.ndarray, *_: Any) -> np.ndarray:
        return ((2 * ndtr(drawn) - 1) * math.sqrt(3)).astype(drawn.dtype)

    wrapped(patch, noise_draws.RecordGaussian, "draw", uniform)


def _streams_of(patch: Patch, change: Callable[[int, int, Any], tuple[int, int, Any]]) -> None:
    """The noise of other seeds, rounds or clients."""
    before = noise_draws.RecordGaussian.__init__
    patch.setattr(
        noise_draws.RecordGaussian, "__init__", lambda self, s, r, c: before(self, *change(s, r, list(c)))
    )


def record_noise_of_one_client(patch: Patch) -> None:
    _streams_of(patch, lambda seed, round, clients: (seed, round, [0] * len(clients)))


def record_noise_of_one_round(patch: Patch) -> None:
    _streams_of(patch, lambda seed, round, clients: (seed, 0, clients))


def record_noise_of_one_seed(patch: Patch) -> None:
    _streams_of(patch, lambda seed, round, clients: (0, round, clients))


def record_noise_of_one_step(patch: Patch) -> None:
    before = noise_draws.RecordGaussian.draw

    def draw(self: Any, *arguments: Any) -> np.ndarray:
        if not hasattr(self, "kept"):
            self.kept = before(self, *arguments)
        return self.kept.copy()

    patch.setattr(noise_draws.RecordGaussian, "draw", draw)


Draw = Callable[[np.random.Generator, int, float, int], list[np.ndarray]]


def _lots(patch: Patch, draw: Draw) -> None:
    """draw: (generator, records, rate, steps) -> lots."""

    def drawn(self: LotRule, seed: int, round: int, client: int, records: int, steps: int) -> Any:
        generator = np.random.default_rng([seed, round, client])
        return draw(generator, records, 1 / (self.weight(records) * records), steps)

    patch.setattr(LotRule, "draw", drawn)


def fixed_lots(patch: Patch) -> None:
    """In place of Poisson lots."""
    _lots(
        patch,
        lambda draw, n, rate, steps: [np.sort(draw.permutation(n)[: round(rate * n)]) for _ in range(steps)],
    )


def shuffled_lots(patch: Patch) -> None:
    """Through all records before any comes again."""

    def drawn(draw: np.random.Generator, n: int, rate: float, steps: int) -> list[np.ndarray]:
        size = round(rate * n)
        order = np.concatenate([draw.permutation(n)[: n // size * size] for _ in range(steps)])
        return [np.sort(order[k * size : (k + 1) * size]) for k in range(steps)]

    _lots(patch, drawn)


def one_lot_a_round(patch: Patch) -> None:
    _lots(patch, lambda draw, n, rate, steps: [np.sort(draw.permutation(n)[: round(rate * n)])] * steps)


def poisson_lots_too_large(patch: Patch) -> None:
    """By a quarter."""
    _lots(
        patch,
        lambda draw, n, rate, steps: [np.flatnonzero(draw.random(n) < 1.25 * rate) for _ in range(steps)],
    )


def clip_records_after_summing(patch: Patch) -> None:
    """Gradients pass as they are; the sum of b is cut to b C."""
    patch.setattr(bounding, "scales", lambda norms, bound: torch.ones_like(norms))
    before = LinearProblem.clipped_gradient

    def clipped(self: Any, y: torch.Tensor, batch: Any, factors: Any) -> Any:
        gradient, norms = before(self, y, batch, factors)
        return gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1), norms  # C is 1, weights 1 / b

    patch.setattr(LinearProblem, "clipped_gradient", clipped)


def lots_weighted_by_records(patch: Patch) -> None:
    """A client's gradients count times its records over the mean number."""
    before = Federation._weights

    def weights(self: Federation, clients: np.ndarray) -> np.ndarray:
        return before(self, clients) * self.sizes[clients] / self.sizes.mean()

    patch.setattr(Federation, "_weights", weights)


def divided_by_the_realised_size(patch: Patch) -> None:
    """In place of the expected one."""
    before = Federation._padded

    def padded(self: Federation, lots: Any, clients: np.ndarray) -> Any:
        rows, weights, sizes = before(self, lots, clients)
        real = torch.from_numpy(np.maximum(sizes, 1)).to(weights).unsqueeze(2)
        return rows, (weights > 0) / real, sizes

    patch.setattr(Federation, "_padded", padded)


def not_finite_records_pass(patch: Patch) -> None:
    """Longer than C where the norm cannot be told: the factor is 1."""
    wrapped(patch, bounding, "scales", lambda found, norms, bound: found.where(norms.isfinite(), 1))


def records_past_the_door(patch: Patch) -> None:
    """A hundredth of the gradient without noise is added to what the clients go on from."""
    from dpfl_bench.federation.doors.gradient import GradientPassage

    before = GradientPassage.gradient

    def gradient(self: Any, problem: Any, y: torch.Tensor, batch: Any) -> torch.Tensor:
        return before(self, problem, y, batch) + 0.01 * problem.gradient(y, batch)

    patch.setattr(GradientPassage, "gradient", gradient)


def local_steps_past_the_door(patch: Patch) -> None:
    """The same, behind the door."""
    from dpfl_bench.federation.local import LocalOracle

    before = LocalOracle.gradient

    def gradient(self: Any, y: torch.Tensor) -> torch.Tensor:
        released, kept = before(self, y), []
        batches = self._batches

        def noted() -> Any:
            for batch in batches:
                kept.append(batch)
                yield batch

        if not hasattr(self, "noted"):
            self._batches, self.noted = noted(), kept
        return released + (0.01 * self._problem.gradient(y, self.noted[-1]) if self.noted else 0)

    patch.setattr(LocalOracle, "gradient", gradient)


# PrivUnit


def cap_too_often(patch: Patch) -> None:
    """By a quarter of eps0; messages are as long as they should be."""
    patch.setattr(PrivUnit, "cap_rate", property(lambda self: 1 / (1 + math.exp(-1.25 * self.eps0))))


def cap_too_small(patch: Patch) -> None:
    patch.setattr(
        PrivUnit, "heights", lambda self, sides, draws: _heights_of(self, sides, draws, 0.8 * self.cap)
    )


def _heights_of(self: PrivUnit, sides: np.ndarray, draws: np.ndarray, cap: float) -> Any:
    from scipy.special import betaincinv

    above = np.where(sides < self.cap_rate, cap * draws, self.cap + (1 - self.cap) * draws)
    alpha = (self.dimension - 1) / 2
    heights = 1 - 2 * betaincinv(alpha, alpha, above)
    return heights, np.sqrt(1 - heights**2)


def norm_in_the_clear(patch: Patch) -> None:
    """One time in five it is told as it is."""
    before = ScalarDP.randomise

    def randomise(self: ScalarDP, norms: np.ndarray, draws: np.ndarray) -> np.ndarray:
        index = np.floor(self.k * (np.minimum(norms, self.clip) / self.clip))
        return np.where(draws[1] % 0.1 < 0.02, self.value(index), before(self, norms, draws))

    patch.setattr(ScalarDP, "randomise", randomise)


def _privunit_streams(patch: Patch, change: Callable[[int, int, Any], tuple[int, int, Any]]) -> None:
    before = noise_draws.privunit_streams
    patch.setattr(noise_draws, "privunit_streams", lambda s, r, c: before(*change(s, r, list(c))))


def privunit_of_one_client(patch: Patch) -> None:
    _privunit_streams(patch, lambda seed, round, clients: (seed, round, [0] * len(clients)))


def privunit_of_one_round(patch: Patch) -> None:
    _privunit_streams(patch, lambda seed, round, clients: (seed, 0, clients))


def privunit_of_one_seed(patch: Patch) -> None:
    _privunit_streams(patch, lambda seed, round, clients: (0, round, clients))


def flat_directions(patch: Patch) -> None:
    """What is orthogonal to an update keeps to one side."""
    wrapped(patch, privunit, "_orthogonal", lambda drawn, *_: np.abs(drawn))


def privunit_claims_less(patch: Patch) -> None:
    """By a twentieth."""
    before = PrivUnit.release_eps.func  # type: ignore[attr-defined]
    patch.setattr(PrivUnit, "release_eps", property(lambda self: 0.95 * before(self)))
