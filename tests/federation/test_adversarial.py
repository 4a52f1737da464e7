"""Finite data as bad as they come, at both doors: what leaves is finite, moves by the sensitivity
at most, and is never longer than C.

Numbers up to the ends of the format, denormals and -0 go in as data; what a model makes of them
(infinities, NaN) comes to the doors. Noise is the same on both sides of a comparison, so that what
differs is what the noise has to hide.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers.federations import CONF, Played, player_on, settings_of
from torch import Tensor, nn

from dpfl_bench.config.settings import Settings
from dpfl_bench.data.records import Records
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.doors.gradient import GradientDoor, GradientPassage
from dpfl_bench.federation.doors.quantile import Quantile
from dpfl_bench.federation.doors.send import SendDoor
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.workers import Workers
from dpfl_bench.machine import device
from dpfl_bench.privacy import bounding, noise_grid
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.privacy.privunit import PrivUnit
from dpfl_bench.problems import linear_problem
from dpfl_bench.problems.bookkeeping import rules, sums
from dpfl_bench.problems.linear_problem import LinearProblem
from dpfl_bench.problems.models.cnn import cnn
from dpfl_bench.problems.models.mlp import mlp
from dpfl_bench.problems.module import ModuleProblem
from dpfl_bench.problems.problem import Batch, Problem
from dpfl_bench.problems.tasks import classify

pytestmark = pytest.mark.one_in(12)

ROUNDING = 1 + 1e-6
FORMATS = [torch.float32, torch.float64]
LARGEST = {torch.float32: 3.4e38, torch.float64: 1.7e308}
TINY = {torch.float32: 1e-45, torch.float64: 5e-324}


def length(row: Tensor) -> float:
    """In float64, whatever its numbers."""
    wide = row.double()
    largest = wide.abs().max().item()
    return largest * (wide / largest).norm().item() if 0 < largest < math.inf else largest


# what bounds an update


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("bound", [1e-12, 1.2e-6, 0.3, 1e3, 1e30])
@pytest.mark.parametrize("dimension", [1, 30, 1000, 20_000])
def test_no_finite_update_is_longer_than_the_bound(dimension: int, bound: float, dtype: torch.dtype) -> None:
    """By either way of bounding; and one that was longer has that length still, for it is no NaN
    that counts as nothing.
    """
    draw = torch.from_numpy(np.random.default_rng(dimension).uniform(0.5, 1, (1, dimension))).to(dtype)
    sizes = [
        0.0,
        -0.0,
        TINY[dtype],
        1e-38,
        1e-20,
        1e-6,
        1.0,
        1e15,
        1e19,
        1e25,
        1e30,
        2e38,
        LARGEST[dtype],
        1e150,
        1e200,
    ]
    spiked = torch.full((1, dimension), 1e-10, dtype=dtype)
    spiked[0, -1] = LARGEST[dtype]
    rows = torch.cat([*(draw * size for size in sizes if size <= LARGEST[dtype]), spiked])
    before = [length(row) for row in rows]
    for bounded, _, blanked in (bounding.clip(rows, bound), bounding.normalise(rows, bound)):
        after = [length(row) for row in bounded]
        assert max(after) <= bound * ROUNDING
        assert blanked == 0
        assert (
            min(found / bound for found, was in zip(after, before, strict=True) if was > bound * ROUNDING)
            >= 1 / ROUNDING
        )
    short = torch.tensor([was <= bound for was in before])
    torch.testing.assert_close(bounding.clip(rows, bound).rows[short], rows[short], rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_counts_as_zero(bad: float, dtype: torch.dtype) -> None:
    rows = torch.ones(4, 9, dtype=dtype)
    rows[1, 3] = bad
    rows[2] = bad
    clipped, normalised = bounding.clip(rows, 0.3), bounding.normalise(rows, 0.3)
    rows[1:3] = 0
    for found, expected in ((clipped, bounding.clip(rows, 0.3)), (normalised, bounding.normalise(rows, 0.3))):
        assert torch.equal(found.rows, expected.rows)
        assert found.norms.tolist() == [3.0, 0.0, 0.0, 3.0]
        assert (found.blanked, expected.blanked) == (2, 0)


def test_rows_are_normalised_alike_in_any_company(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that go through a cache together share nothing: every bit is the same one by one. Zero,
    tiny, huge and broken rows stand between the others.
    """
    rows = torch.randn(40, 300, generator=torch.Generator().manual_seed(5))
    rows[3], rows[11, 5], rows[20], rows[30] = 0, math.nan, rows[20] * 1e-42, rows[30].sign() * 1e38
    together = bounding.normalise(rows, 0.3)
    for bytes_at_once in (1, 5000, 2**30):
        monkeypatch.setattr(device, "CACHED", bytes_at_once)
        again = bounding.normalise(rows, 0.3)
        assert torch.equal(again.rows.view(torch.int32), together.rows.view(torch.int32))
        assert torch.equal(again.norms, together.norms)
    largest = rows.double().nan_to_num(0, 0).abs().amax(1, keepdim=True)
    directions = (rows.double() / largest.clamp(min=1e-300)).numpy()
    directions[[3, 11]] = 1.0  # the direction of 0
    expected = 0.3 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    assert together.rows.numpy() == pytest.approx(expected, rel=1e-5, abs=1e-9)


# the send door

CLIENTS, DIMENSION, CLIP = 5, 40, 0.3
ALL = PlannedRound(index=2, steps=1, lr=1.0, p=1.0, cohort=np.arange(CLIENTS), divisor=CLIENTS)


@cache
def updates(dtype: torch.dtype) -> dict[str, Tensor]:
    """One client's. The last three are what a model makes of finite data."""
    draw = torch.from_numpy(np.random.default_rng(1).normal(size=DIMENSION)).to(dtype)
    found = {f"{size:g}": draw * size for size in (0.0, 1e-40, 1e-3, 1.0, 1e15, 1e19, 1e30, 5e37)}
    mixed = draw.clone()
    mixed[::3], mixed[1::3] = LARGEST[dtype], -0.0
    one, nan, inf = draw.clone(), draw.clone(), draw.clone()
    one[7], nan[7], inf[7] = -math.inf, math.nan, math.inf
    largest = torch.full_like(draw, LARGEST[dtype])
    return {
        **found,
        "-": -draw * 1e15,
        "mixed": mixed,
        "largest": largest,
        "-inf": one,
        "nan": nan,
        "inf": inf,
    }


def door_of(trust: str, bound: str, mechanism: str, memory: str) -> SendDoor:
    privunit = PrivUnit(1.0, 1.0, 1.0, 1.0, DIMENSION) if mechanism == "privunit" else None
    quantile = None if privunit else Quantile(0.5, 0.2, 1.0)
    return SendDoor(
        bound,
        trust,
        0.0 if privunit else 0.4,
        memory,
        3,
        False,
        quantile,
        privunit,
        0.5,
        mechanism == "discrete",
    )


def passed(door: SendDoor, rows: Tensor) -> tuple[SendPassage, Tensor]:
    passage = SendPassage(door, ALL, CLIP, torch.zeros_like(rows[0]))
    return passage, torch.cat(
        [passage.send(rows[:3], np.arange(3)), passage.send(rows[3:], np.arange(3, CLIENTS))]
    )


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("memory", ["own_message", "own_update"])
@pytest.mark.parametrize("bound", ["clip", "normalise"])
@pytest.mark.parametrize(
    ("trust", "mechanism"),
    [*itertools.product(("local", "secagg", "central"), ("gaussian", "discrete")), ("local", "privunit")],
)
def test_one_client_at_the_send_door(
    trust: str, mechanism: str, bound: str, memory: str, dtype: torch.dtype
) -> None:
    """Whatever it offers: all is finite, the others' messages stay to the bit, and everything moves
    by its sensitivity at most.
    """
    door = door_of(trust, bound, mechanism, memory)
    others = torch.from_numpy(np.random.default_rng(2).normal(size=(CLIENTS, DIMENSION))).to(dtype)
    found: dict[str, tuple[SendPassage, Tensor]] = {}
    for name, row in updates(dtype).items():
        rows = others.clone()
        rows[1] = row
        passage, own = found[name] = passed(door, rows)
        sent = passage.sent(Ledger(CLIENTS))
        for tensor in (passage.total, own, sent.mean, sent.mean_square_norm, sent.naive_square_norm):
            assert torch.isfinite(tensor).all(), name
        assert math.isfinite(float(passage.below))
        assert math.isfinite(passage.next_clip())
        assert passage.blanked == (name in ("-inf", "nan", "inf"))
        assert torch.equal(own[[0, 2, 3, 4]], found["0"][1][[0, 2, 3, 4]]), name
    for (_, (one, _)), (_, (other, _)) in itertools.combinations(found.items(), 2):
        if door.privunit is None:
            slack = 3e-6 if dtype == torch.float32 else 1e-12  # of the sums of five clients
            assert length(one.total - other.total) <= 2 * CLIP * ROUNDING + slack
            if trust != "local":
                assert abs(float(one.squares - other.squares)) <= CLIP**2 * (1 + 3e-6)
        assert abs(float(one.below) - float(other.below)) <= 1


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_median_of_norms_is_finite(dtype: torch.dtype) -> None:
    """An update without a length counts as 0 there too."""
    rows = torch.stack([updates(dtype)[name] for name in ("1", "1", "nan", "inf", "1")])
    assert bounding.measured(rows).norms.quantile(0.5).item() == pytest.approx(length(updates(dtype)["1"]))


# the gradient door

RECORDS, SHAPE, CLASSES = 4, (1, 6, 6), 3


class OfNumbers(nn.Module):
    """Recurrent, over rows of pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(6, 5, 2, batch_first=True)
        self.out = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.recurrent(x[:, 0])[0][:, -1])
        return found


class Embedded(nn.Module):
    """Over tokens: what is not finite can come from the model alone."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.recurrent, self.out = (
            nn.Embedding(9, 4),
            nn.LSTM(4, 5, batch_first=True),
            nn.Linear(5, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.recurrent(self.embedding(x))[0][:, -1])
        return found


def modules(kind: str) -> Callable[[], nn.Module]:
    norms = {
        "layer norm": lambda: nn.LayerNorm(8),
        "rms norm": lambda: nn.RMSNorm(8),
        "prelu": lambda: nn.PReLU(),
    }
    if kind in norms:
        return lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(36, 8), norms[kind](), nn.ReLU(), nn.Linear(8, CLASSES)
        )
    image = list(SHAPE)
    return {
        "mlp": partial(mlp, image, CLASSES, [300, 7]),
        "cnn": partial(cnn, image, CLASSES, [4], 3, "none"),
        "group norm": partial(cnn, image, CLASSES, [4, 8], 3, "group"),
        "lstm": OfNumbers,
        "deep": lambda: nn.Sequential(
            nn.Flatten(), *(layer for _ in range(3) for layer in (nn.Linear(36, 36), nn.Tanh()))
        ),
        "transposed": lambda: nn.Sequential(
            nn.ConvTranspose2d(1, 3, 2, 2), nn.Flatten(), nn.Linear(432, CLASSES)
        ),
        "large positions": lambda: nn.Sequential(
            nn.Flatten(1, 2), nn.Linear(6, 40), nn.ReLU(), nn.Flatten(), nn.Linear(240, CLASSES)
        ),
    }[kind]


MODULES = [
    "mlp",
    "cnn",
    "group norm",
    "lstm",
    "deep",
    "transposed",
    "large positions",
    "layer norm",
    "rms norm",
    "prelu",
]
LINEAR = {"two classes": (2, False), "softmax": (3, True), "squares": (0, True)}


def problems() -> list[tuple[str, str]]:
    return [
        *((kind, backend) for kind in MODULES for backend in ("loop", "flat", "vmap")),
        *((kind, "closed form") for kind in LINEAR),
    ]


@cache
def problem_of(kind: str, backend: str) -> Problem:
    if kind in LINEAR:
        classes, bias = LINEAR[kind]
        return LinearProblem(math.prod(SHAPE), classes, bias, 0.01)
    return ModuleProblem(modules(kind), CLASSES, 0.01, classify(), backend)


def features(dtype: torch.dtype) -> dict[str, Tensor]:
    """Of one record."""
    draw = torch.from_numpy(np.random.default_rng(4).normal(size=SHAPE)).to(dtype)
    found = {f"{size:g}": draw * size for size in (0.0, 1e-40, 1.0, 1e12, 1e15, 1e16, 1e20, 1e30, 1e38)}
    mixed, one = draw.clone(), torch.zeros_like(draw)
    mixed[..., ::2], one[0, 2, 3] = -0.0, 3.4e38
    mixed[0, 1] = 3.4e38
    return {**found, "-": -1e20 * draw, "mixed": mixed, "one": one, "largest": torch.full_like(draw, 3.4e38)}


def lot(kind: str, record: Tensor, target: int | float, dtype: torch.dtype, clients: int = 2) -> Batch:
    """Where this record is the first client's second one, and a shorter lot beside it."""
    draw = np.random.default_rng(5)
    x = torch.from_numpy(draw.normal(size=(2, RECORDS, *SHAPE))).to(dtype)
    y = torch.from_numpy(draw.integers(0, max(2, LINEAR.get(kind, (CLASSES,))[0]), (2, RECORDS)))
    x[0, 1], y[0, 1] = record, int(target)
    targets = y.to(dtype) if kind == "squares" else y
    weights = torch.full((2, RECORDS), 1 / RECORDS, dtype=dtype)
    weights[1, 3:] = 0
    return Batch(x[:clients], targets[:clients], weights[:clients])


class Silence:
    """Noise of zeros, for so many clients of a door that is private."""

    def __init__(self, clients: int):
        self.clients = clients

    def draw(self, dimension: int, dtype: object) -> np.ndarray:
        return np.zeros((self.clients, dimension), np.float32)


def released(problem: Problem, batch: Batch, y: Tensor, clip: float | None) -> tuple[Tensor, GradientPassage]:
    door = GradientDoor(clip, 1.0, 0)
    passage = GradientPassage(door, np.arange(len(y)), batch.weights.amax(1), Silence(len(y)), Ledger(2))  # type: ignore[arg-type]
    return passage.gradient(problem, y, batch), passage


# C and the size of the model; the backends that `auto` takes on a CPU see all four pairs
PAIRS = [(1e-6, 1e3), (0.8, 1.0), (1e-6, 1.0), (0.8, 1e3)]


@pytest.mark.parametrize(
    ("kind", "backend", "clip", "size"),
    [
        (kind, backend, *pair)
        for kind, backend in problems()
        for pair in PAIRS[: 4 if backend in ("flat", "closed form") else 2]
    ],
)
def test_one_record_at_the_gradient_door(kind: str, backend: str, clip: float, size: float) -> None:
    """Whatever it holds, at a model of usual numbers and at one of large ones."""
    problem, dtype = problem_of(kind, backend), torch.float32
    y = size * problem.start(0, torch.empty(0)).add(torch.linspace(-0.1, 0.1, problem.dimension)).expand(
        2, -1
    )
    moved = {}
    for name, record in features(dtype).items():
        for target in (0, 1):
            moved[name, target], passage = released(problem, lot(kind, record, target, dtype), y, clip)
            assert torch.isfinite(moved[name, target]).all(), name
            assert torch.equal(moved[name, target][1], moved["0", 0][1]), "the other client's"
            assert passage.counts.blanked in (0, 1)
            assert passage.counts.all == 2 * RECORDS - 1
    slack = 3e-7 * (
        clip + length(0.01 * y[0])
    )  # of what float32 adds up: the others' gradients, and the ridge
    for one, other in itertools.combinations(moved.values(), 2):
        assert length((one - other)[0]) <= 2 * clip / RECORDS * ROUNDING + slack


@pytest.mark.parametrize("clip", [1e-6, 0.8])
@pytest.mark.parametrize(("kind", "backend"), problems())
def test_no_record_adds_more_than_the_bound(kind: str, backend: str, clip: float) -> None:
    """Each alone in its lot."""
    problem = replace(problem_of(kind, backend), l2=0.0)  # type: ignore[type-var]
    y = problem.start(0, torch.empty(0)).add(torch.linspace(-0.1, 0.1, problem.dimension))[None]
    for name, record in features(torch.float32).items():
        target = torch.ones(1, 1) if kind == "squares" else torch.ones(1, 1, dtype=torch.long)
        found, passage = released(problem, Batch(record[None, None], target, torch.ones(1, 1)), y, clip)
        assert length(found[0]) <= clip * ROUNDING, name
        assert not passage.counts.blanked or not found.any()


@pytest.mark.parametrize("clip", [1.2e-6, 1e-3])
@pytest.mark.parametrize("kind", ["two classes", "one layer", "positions"])
def test_a_long_record_with_a_short_residual(kind: str, clip: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose product is of a usual length, while scales times the residual would be among float32's
    last numbers, which round by half.
    """
    long = torch.zeros(1, 1, *SHAPE)
    long.view(-1)[0] = 3e38
    y, target = torch.zeros(1, 72), torch.zeros(1, 1, dtype=torch.long)
    y[0, 36 if kind != "two classes" else 0] = -46.5 / 3e38  # a residual of 6e-21
    if kind == "two classes":
        problem: Problem = LinearProblem(36, 2, False, 0.0)
        y = y[:, :36]
    elif kind == "one layer":
        problem = ModuleProblem(
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 2, bias=False)), 2, 0.0, classify(), "flat"
        )
    else:  # one of two positions is met by the weights, so that the gradient is not kept
        problem = ModuleProblem(lambda: Summed(), 2, 0.0, classify(), "flat")
    batch = Batch(long[None], target, torch.ones(1, 1))
    assert length(released(problem, batch, y, clip)[0][0]) <= clip * ROUNDING
    for module in (rules, sums):  # the control: measured as if nothing were too long
        monkeypatch.setattr(module, "beyond", lambda inputs, dtype: inputs.to(dtype) * 0)
        monkeypatch.setattr(module, "LONGEST", {torch.float32: 1e40})
    monkeypatch.setattr(linear_problem, "LONGEST", {torch.float32: 1e40})
    assert length(released(problem, batch, y, clip)[0][0]) > clip * ROUNDING


class Summed(nn.Module):
    """Of the record and of nothing, each through the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Linear(36, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.weights(torch.stack([x.flatten(1), torch.zeros_like(x).flatten(1)], 1)).sum(1)
        return found


def of_one_overflow(problem: Problem, kind: str) -> tuple[Tensor, Batch]:
    record = features(torch.float32)["mixed"]
    return problem.start(0, torch.empty(0)).expand(2, -1) * 1e3, lot(kind, record, 1, torch.float32)


@pytest.mark.parametrize("backend", ["loop", "flat", "vmap"])
@pytest.mark.parametrize("kind", ["mlp", "group norm", "lstm"])
def test_a_blanked_record_is_left_out_to_the_bit(
    kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stays is the others' sum, whether the gradients are kept or computed twice."""
    problem = problem_of(kind, backend)
    y, batch = of_one_overflow(problem, kind)
    y = y.clone()
    y[0, -1] = (
        math.nan if kind == "lstm" else y[0, -1]
    )  # an LSTM's gates hold what comes in: its model has to be broken
    found, passage = released(problem, batch, y, 0.8)
    if kind == "lstm":
        assert passage.counts.blanked == RECORDS
        assert not (found[0] - 0.01 * y[0])[:-1].any()
    else:
        assert passage.counts.blanked == 1
    from dpfl_bench.problems.backends import loop

    monkeypatch.setattr(loop, "HELD_NUMBERS", 0)
    again, passage = released(problem, batch, y, 0.8)
    torch.testing.assert_close(again, found, equal_nan=True)


@pytest.mark.parametrize("backend", ["loop", "flat", "vmap"])
def test_a_broken_model_of_tokens(backend: str) -> None:
    """Every record is blanked, and nothing is left but noise."""
    problem = ModuleProblem(Embedded, CLASSES, 0.0, classify(), backend)
    y = problem.start(0, torch.empty(0)).expand(1, -1) * 1e38
    batch = Batch(torch.arange(8).view(1, 2, 4), torch.ones(1, 2, dtype=torch.long), torch.full((1, 2), 0.5))
    found, passage = released(problem, batch, y, 0.8)
    assert torch.isfinite(found).all()
    assert passage.counts.all == 2


def test_the_median_of_a_lots_norms_ignores_what_has_none() -> None:
    problem = problem_of("mlp", "flat")
    y, batch = of_one_overflow(problem, "mlp")
    found, passage = released(problem, batch, y, None)
    assert torch.isfinite(found).all()
    assert passage.counts.blanked == 1


# whole rounds

PRIVATE = [path.stem for path in sorted((CONF / "algo").glob("*.yaml")) if path.stem.startswith("dp_")]
SIZES = (1e15, 1e20, 3e38)


def settings_for(algo: str, model: str, place: str, *more: str) -> Settings:
    unit = (f"privacy={place}",) if place != "record" else ("privacy=record", "batch_size=2")
    naive = ("algo.naive=true",) if place == "record" and "fedexp" in algo else ()
    memory = ("privacy.memory=own_update",) if place == "central" else ()
    shape = ("dataset.shape=[5]", "dataset.classes=3", "partition=iid", "dataset.holds.natural=none")
    warm = ("algo.warm_rounds=1",) if algo == "dp_scaffold_warm" else ()
    return settings_of(
        f"algo={algo}", f"model={model}", *unit, *naive, *memory, *shape, *warm, "clients=4", "lr=0.5",
        "rounds=3", "local_steps=2",
        "device=cpu", "plot=false", "privacy.calibration=fixed", "privacy.noise_multiplier=0.5", *more,
    )  # fmt: skip


def evil(settings: Settings, size: float, who: slice = slice(0, 3)) -> Played:
    """Three records of the first client are that large, one of them all zeros but for a denormal
    and a -0.
    """
    draw = np.random.default_rng(6)
    x, y = draw.normal(size=(12, 5)).astype(np.float32), draw.integers(0, 3, 12)
    with np.errstate(over="ignore"):
        x[who] *= np.float32(size)
    x = np.clip(x, -3.4e38, 3.4e38)
    if who == slice(0, 3):
        x[1] = [0.0, 1e-40, -0.0, 3e38, 0.0]
    records = Records(x, y, x[3:], y[3:], None, 3, "test", None)
    return player_on(settings, records, list(np.arange(12).reshape(4, 3)))


@pytest.mark.parametrize("place", ["secagg", "local", "central", "record"])
@pytest.mark.parametrize("model", ["logreg", "mlp"])
@pytest.mark.parametrize("algo", PRIVATE)
def test_one_client_ends_no_run(algo: str, model: str, place: str) -> None:
    """Nor does it break what the others remember."""
    if algo == "dp_normfedavg" and place == "record":
        pytest.skip("bounds what is sent")
    settings = settings_for(algo, model, place)
    for size in SIZES:
        played = evil(settings, size)
        states = played.states()
        assert len(states) == 3
        for state in states:
            for tensor in (*state.server, *(t for t in (state.memory, state.velocity) if t is not None)):
                assert torch.isfinite(tensor).all()


@pytest.mark.parametrize("place", ["secagg", "record"])
def test_workers_count_alike(place: str) -> None:
    """What is blanked, and every bit of what is left."""
    settings = settings_for("dp_scaffold", "mlp", place, "engine.chunk=1")
    rounds: list[list[Any]] = []
    for crew in (Alone, partial(Workers, count=2)):
        played = evil(settings, 3e38)
        state = played.start
        with crew(played.player, state) if crew is not Alone else Alone(played.player) as working:  # type: ignore[call-arg]
            found = [played.player.play(state, played.schedule.round(0), working)]
        rounds.append([found[0][0].server.x.numpy().tobytes(), found[0][1].blanked])
    assert rounds[0] == rounds[1]
    assert rounds[0][1] > 0


@pytest.mark.parametrize("algo", ["dp_fedavg", "dp_scaffnew", "dp_fedexp"])
@pytest.mark.parametrize("place", ["secagg", "central"])
@pytest.mark.parametrize("model", ["logreg", "mlp"])
def test_a_round_moves_by_the_sensitivity(model: str, place: str, algo: str) -> None:
    """The cohort's sum in the first round, for any two sets of data of the first client; the noise
    is the same.
    """
    settings = settings_for(algo, model, place, "dtype=float64", "privacy.noise_multiplier=0.1")
    ends = []
    for size in (1.0, *SIZES):
        played = evil(settings, size)
        offered: list[Tensor] = []
        total = SendPassage.sent

        def spied(
            passage: SendPassage, ledger: Ledger, total: Any = total, offered: list[Tensor] = offered
        ) -> Any:
            offered.append(passage.total)
            return total(passage, ledger)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SendPassage, "sent", spied)
            played.play(played.start, played.schedule.round(0))
        ends += offered
    for one, other in itertools.combinations(ends, 2):
        assert length(one - other) <= 2 * settings.privacy.clip * ROUNDING  # type: ignore[operator]


@pytest.mark.parametrize("backend", ["loop", "flat", "vmap"])
def test_record_level_with_every_backend(backend: str) -> None:
    played = evil(settings_for("dp_scaffold", "mlp", "record", f"engine.backend={backend}"), 3e38)
    assert all(torch.isfinite(state.memory).all() for state in played.states() if state.memory is not None)


def test_the_grid_is_part_of_the_property() -> None:
    """The discrete door's messages are whole multiples of its spacing, whatever came in."""
    door = door_of("secagg", "clip", "discrete", "own_message")
    rows = torch.stack([updates(torch.float32)[name] for name in ("1", "nan", "mixed", "5e+37", "1e-40")])
    passage, _ = passed(door, rows)
    whole = passage.total / noise_grid.spacing(door.noise * CLIP * CLIENTS**-0.5)
    assert torch.equal(whole, whole.round())
