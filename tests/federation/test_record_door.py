"""Record level: how far one record moves what its client releases, how much noise hides that, and
whose noise it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from helpers.federations import Played, player_on, settings_of

from dpfl_bench.data.records import Records
from dpfl_bench.federation.doors.gradient import GradientDoor, GradientPassage
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.privacy import noise_draws
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.problems.problem import Batch, Factors

CLIENTS, RECORDS, FEATURES, CLIP = 3, 8, 6, 0.8
LOTS = {
    "full": ("privacy.neighbours=replace_one",),
    "full-zero-out": ("privacy.neighbours=add_remove_one",),
    "fixed": ("privacy.neighbours=replace_one", "batch_size=3"),
    "poisson": ("privacy.neighbours=add_remove_one", "sample_rate=0.4"),
}
EXPECTED = {
    "full": 2 * CLIP / 8,
    "full-zero-out": CLIP / 8,
    "fixed": 2 * CLIP / 3,
    "poisson": CLIP / (0.4 * 8),
}  # S, from the papers


def prepared(
    x: np.ndarray,
    y: np.ndarray,
    *overrides: str,
    rounds: int = 1,
    steps: int = 1,
    start: np.ndarray | None = None,
) -> Played:
    """x: (clients, n, d), y: (clients, n)."""
    settings = settings_of(
        "algo=dp_fedavg", "privacy=record", f"privacy.clip={CLIP}",
        "dataset=quadratics", f"dataset.clients={len(x)}", f"clients={len(x)}", "lr=1", f"rounds={rounds}",
        f"local_steps={steps}", "dtype=float64", "device=cpu", "privacy.calibration=fixed",
        "privacy.noise_multiplier=1.5", *overrides,
    )  # fmt: skip
    flat = x.reshape(-1, x.shape[2]).astype(np.float32)
    records = Records(flat, y.reshape(-1).astype(np.float32), flat[:0], y[0, :0], None, 0, "test", None)
    return player_on(settings, records, list(np.arange(len(flat)).reshape(len(x), -1)), start)


def data(clients: int = CLIENTS, features: int = FEATURES) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(clients, RECORDS, features)), draw.normal(size=(clients, RECORDS))


def released(played: Played) -> np.ndarray:
    """The first client's mean gradient in the first round, made of what the server sees (lr=1, one
    step).
    """
    end = played.play(played.start, played.schedule.round(0))[0].server.x
    return (played.start.server.x - end).numpy() * CLIENTS


# how far a record moves a lot's mean


class Silence:
    """A stream of zeros, through a door that is private all the same."""

    def __init__(self, seed: int, round: int, clients: Sequence[int]) -> None:
        self.clients = len(clients)

    def draw(self, dimension: int, dtype: object) -> np.ndarray:
        return np.zeros((self.clients, dimension))


@pytest.mark.parametrize("lots", LOTS)
def test_one_record_moves_a_lot_by_the_sensitivity_and_no_further(
    lots: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise_draws, "RecordGaussian", Silence)
    x, y = data()
    moves = []
    for record in range(RECORDS):  # whichever one it is: only those in the lot move it
        pulls = []
        for target in (1e9, -1e9):
            pulled = y.copy()
            pulled[0, record] = target
            pulls.append(released(prepared(x, pulled, *LOTS[lots])))
        silent = x.copy()
        silent[0, record] = 0.0  # a record without features has no gradient: it counts for nothing
        others = [released(prepared(silent, y, *LOTS[lots]))] if "add_remove" in LOTS[lots][0] else pulls
        moves.append(max(float(np.linalg.norm(one - other)) for one in pulls for other in others))
    assert max(moves) <= EXPECTED[lots] * (1 + 1e-6)
    assert max(moves) >= EXPECTED[lots] * (1 - 1e-6)
    assert (min(moves) == 0) == (lots in ("fixed", "poisson"))


# how much noise


def noise_of(played: Played, rounds: int) -> np.ndarray:
    """What noise adds to the model in each of many rounds from the same start, (rounds, d)."""
    ends = [played.play(played.start, played.schedule.round(k))[0].server.x.numpy() for k in range(rounds)]
    return np.stack(ends)


@pytest.mark.parametrize("lots", LOTS)
def test_the_mean_of_m_clients_carries_the_noise_of_one_over_root_m(lots: str) -> None:
    """Records without gradients: nothing but noise. 5 standard errors of a standard deviation of n
    numbers; 10 % off is rejected.
    """
    clients, features, rounds = 4, 64, 120
    x, y = np.zeros((clients, RECORDS, features)), np.zeros((clients, RECORDS))
    noise = noise_of(prepared(x, y, *LOTS[lots], rounds=rounds), rounds)
    expected = 1.5 * EXPECTED[lots] / math.sqrt(clients)
    error = 5 / math.sqrt(2 * noise.size)
    found = math.sqrt(float((noise**2).mean()))
    assert abs(found / expected - 1) < error
    assert error < 0.05 < abs(found / (1.1 * expected) - 1)
    assert abs(noise.mean()) < 5 * expected / math.sqrt(noise.size)


def test_every_local_step_of_every_client_has_its_own_noise() -> None:
    """A stream's draws, and those of other clients, rounds and seeds: no number twice, no
    correlation beyond 5 standard errors.
    """
    size = 4096
    drawn = {}
    for seed in (0, 1):
        for round in (0, 1):
            stream = noise_draws.RecordGaussian(seed, round, [0, 1, 5])
            drawn |= {
                (seed, round, step, i): row
                for step in range(2)
                for i, row in enumerate(stream.draw(size, np.float32))
            }
    drawn["messages"] = noise_draws.client_gaussian(0, 0, [0], size, 1.0, np.float32)[0]
    rows = np.stack(list(drawn.values()))
    assert len(np.unique(rows)) > 0.99 * rows.size  # float32 values coincide now and then
    correlations = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlations).max() < 5 / math.sqrt(size)
    mixed = np.stack([rows[0], rows[1] + 0.1 * rows[0]])
    assert np.corrcoef(mixed)[0, 1] > 5 / math.sqrt(size)  # the control


def test_a_clients_noise_does_not_depend_on_its_company() -> None:
    together, alone = (
        noise_draws.RecordGaussian(0, 3, [4, 9, 2]),
        [noise_draws.RecordGaussian(0, 3, [i]) for i in (4, 9, 2)],
    )
    for _ in range(3):
        assert np.array_equal(
            together.draw(10, np.float32), np.stack([stream.draw(10, np.float32)[0] for stream in alone])
        )


def test_an_empty_lot_is_noised_like_any_other() -> None:
    """Its absence of records is a record's secret too."""
    rule = LotRule(sample_rate=0.02)
    x, y = data(1, 64)
    empty = next(seed for seed in range(50) if not len(rule.draw(seed, 0, 0, RECORDS, 1)[0]))
    played = prepared(x, y, "privacy.neighbours=add_remove_one", "sample_rate=0.02", f"seed={empty}")
    moved = played.play(played.start, played.schedule.round(0))[0].server.x - played.start.server.x
    expected = 1.5 * CLIP / (0.02 * RECORDS)
    assert abs(moved.square().mean().sqrt().item() / expected - 1) < 5 / math.sqrt(2 * 64)


def test_the_ridge_and_weight_decay_are_neither_clipped_nor_noised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_draws, "RecordGaussian", Silence)
    x, y = np.zeros((CLIENTS, RECORDS, FEATURES)), np.zeros((CLIENTS, RECORDS))
    start = np.full(FEATURES, 100.0)
    played = prepared(
        x,
        y,
        "model.l2=0.5",
        "weight_decay=0.25",
        "privacy.neighbours=add_remove_one",
        "sample_rate=0.3",
        start=start,
    )
    end = played.play(played.start, played.schedule.round(0))[0].server.x
    torch.testing.assert_close(end, torch.full((FEATURES,), 25.0, dtype=torch.float64))


def test_a_gradient_far_beyond_the_bound_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """C over its length, times its weight, would be one of the last numbers above 0 of float32,
    which round by a half and more.
    """
    monkeypatch.setattr(noise_draws, "RecordGaussian", Silence)
    x, y = data()
    moved = []
    for size in (0.0, 1e20, 1e37):
        y[0, 0] = size
        played = prepared(x, y, "privacy.neighbours=add_remove_one", "privacy.clip=1e-3", "dtype=float32")
        moved.append(released(played))
    lengths = [float(np.linalg.norm(one - moved[0])) for one in moved]
    assert lengths[1] <= 2 * 1e-3 / RECORDS * (1 + 1e-5)
    assert lengths[2] <= 2 * 1e-3 / RECORDS * (1 + 1e-5)


def test_the_median_of_each_lot_clips_half_of_it() -> None:
    x, y = data()
    played = prepared(x, y, "privacy.clip=median", "privacy.noise_multiplier=1e-9")
    _, diagnostics = played.play(played.start, played.schedule.round(0))
    assert diagnostics.clipped_fraction == 0.5
    assert math.isnan(diagnostics.clip)


# what a record's gradient is scaled by


def test_what_cannot_be_measured_counts_nothing() -> None:
    """No length, an endless one, one next to which nothing is left; and the others are scaled down
    to C, or left as they are.
    """
    norms = torch.tensor([[math.nan, math.inf, 1e30, 4 * CLIP, CLIP / 2, 0.0]])
    found: list[torch.Tensor] = []

    class Asks:
        def clipped_gradient(
            self, y: torch.Tensor, batch: Batch, factors: Factors
        ) -> tuple[torch.Tensor, torch.Tensor]:
            found.append(factors(norms, batch.weights))
            return torch.zeros_like(y), norms

    door, ledger = GradientDoor(CLIP, 0.0, 0), Ledger(1)
    passage = GradientPassage(
        door, np.arange(1), torch.ones(1), noise_draws.RecordGaussian(0, 0, [0]), ledger
    )
    batch = Batch(torch.zeros(1, 6, 2), torch.zeros(1, 6), torch.ones(1, 6))
    passage.gradient(Asks(), torch.zeros(1, 2), batch)  # type: ignore[arg-type]
    torch.testing.assert_close(found[0], torch.tensor([[0.0, 0.0, 0.0, 0.25, 1.0, 1.0]]))
