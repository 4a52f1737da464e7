"""Clipped sums of records' gradients against a loop over single records in float64, and against
Opacus; the bound itself in float32.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl_bench.problems.backends import loop
from dpfl_bench.problems.backends.loop import Loop
from dpfl_bench.problems.backends.vmap import Vmap
from dpfl_bench.problems.linear_problem import LinearProblem
from dpfl_bench.problems.models.cnn import cnn
from dpfl_bench.problems.models.mlp import mlp
from dpfl_bench.problems.module import ModuleProblem
from dpfl_bench.problems.problem import Batch, Problem

pytestmark = pytest.mark.one_in(3)

CLIENTS, LOT, CLASSES, TOKENS = 4, 6, 3, 5
DTYPES = {torch.float32: 1e-5, torch.float64: 1e-10}
Make = Callable[[], nn.Module]


class TemperedSigmoid(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * torch.sigmoid(2 * x) - 1


class Recurrent(nn.Module):
    """The last output of a recurrent layer, classified."""

    def __init__(self, layer: Callable[..., nn.Module], **how: Any):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 4, padding_idx=0)
        self.recurrent = layer(4, 5, batch_first=True, **how)
        self.out = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.recurrent(self.embedding(x))[0][:, -1])


class Branching(nn.Module):
    """Looks at its numbers, which vmap cannot do."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if x.isnan().any():
            raise ValueError("expected numbers")
        return self.out(x)


def flat(inputs: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(inputs, CLASSES)]


NETWORKS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "mlp": (partial(mlp, [1, 6, 6], CLASSES, [7, 5]), (1, 6, 6)),
    "cnn": (partial(cnn, [1, 6, 6], CLASSES, [4, 8], 3, "group"), (1, 6, 6)),
    "conv1d": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 3, 2, 1), nn.ReLU(), nn.MaxPool1d(2), nn.AvgPool1d(2), *flat(8)
        ),
        (2, 16),
    ),
    "conv2d": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, 2, 1, groups=2), TemperedSigmoid(), nn.AvgPool2d(2), *flat(32)
        ),
        (4, 8, 8),
    ),
    "conv3d": (
        lambda: nn.Sequential(nn.Conv3d(1, 3, 2), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(3, 2, 1), *flat(16)),
        (1, 5, 5, 5),
    ),
    "tempered": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), TemperedSigmoid(), nn.MaxPool2d(2, 1), *flat(16)),
        (1, 6, 6),
    ),
    "layer_norm": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, CLASSES)),
        (4,),
    ),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(TOKENS, 4, padding_idx=0), TemperedSigmoid(), *flat(28)),
        (7,),
    ),
    "lstm": (partial(Recurrent, nn.LSTM, num_layers=2), (7,)),
    "gru": (partial(Recurrent, nn.GRU), (7,)),
    "branching": (Branching, (4,)),
}
WITH_TOKENS = {"embedding", "lstm", "gru"}  # more places than tokens: every record repeats some


def batch_of(name: str, dtype: torch.dtype, classes: int = CLASSES) -> Batch:
    """Uneven weights; the second client's last two rows are padding, the third's lot is empty."""
    draw, shape = np.random.default_rng(0), (CLIENTS, LOT, *NETWORKS[name][1])
    features = draw.integers(0, TOKENS, shape) if name in WITH_TOKENS else draw.normal(size=shape)
    targets = draw.integers(0, classes, shape[:2]) if classes else draw.normal(size=shape[:2])
    weights = draw.uniform(0.1, 1, shape[:2])
    features[1, 4:], targets[1, 4:], weights[1, 4:] = features[1, 0], targets[1, 0], 0
    weights[2] = 0
    tensors = [torch.from_numpy(values) for values in (features, targets, weights)]
    return Batch(*(t.to(dtype) if t.is_floating_point() else t for t in tensors))


def in_double(batch: Batch) -> Batch:
    features, targets = (t.double() if t.is_floating_point() else t for t in (batch.features, batch.targets))
    return Batch(features, targets, batch.weights.double())


def rows_near(start: Tensor, scale: float = 0.3) -> Tensor:
    """A row for each client, none alike."""
    return start + scale * torch.from_numpy(np.random.default_rng(1).normal(size=(CLIENTS, len(start)))).to(
        start
    )


def each_alone(make: Make, y: Tensor, batch: Batch) -> Tensor:
    """Every record's gradient through an ordinary float64 module: (c, b, d)."""
    module, found = make().double(), []
    for row, features, targets in zip(y.double(), batch.features, batch.targets, strict=True):
        nn.utils.vector_to_parameters(row, module.parameters())
        for record, target in zip(features, targets, strict=True):
            module.zero_grad()
            record = record.double() if record.is_floating_point() else record
            (-functional.log_softmax(module(record[None])[0], 0)[target]).backward()
            found.append(torch.cat([p.grad.flatten() for p in module.parameters()]))  # type: ignore[union-attr]
    return torch.stack(found).reshape(*batch.weights.shape, -1)


def summed(gradients: Tensor, y: Tensor, batch: Batch, l2: float, bound: Tensor) -> tuple[Tensor, Tensor]:
    """What is to be found: clipped and weighted, record after record; and the norms."""
    total, norms = l2 * y.double(), torch.zeros(batch.weights.shape, dtype=torch.float64)
    for i, r in batch.weights.nonzero().tolist():
        norms[i, r] = gradients[i, r].square().sum().sqrt()
        total[i] += (
            batch.weights[i, r].double()
            * gradients[i, r]
            * (1 if norms[i, r] <= bound[i] else bound[i] / norms[i, r])
        )
    return total, norms


def medians(gradients: Tensor, batch: Batch) -> Tensor:
    """A bound for each client: half of its records are below and half above; 1 where there are
    none.
    """
    return torch.stack(
        [
            g[w > 0].norm(dim=1).quantile(0.5) if w.any() else g.new_ones(())
            for g, w in zip(gradients, batch.weights, strict=True)
        ]
    )


def clip(bound: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """min(1, C / norm). bound: (c,)"""
    return lambda norms, weights: bound[:, None].to(norms) / norms.clamp(min=bound[:, None].to(norms))


def differs(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a part of the client's largest entry."""
    return ((found.double() - expected).abs().amax(1) / expected.abs().amax(1).clamp(min=1e-30)).max().item()


@pytest.mark.usefixtures("multiplies")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("name", NETWORKS)
def test_modules(name: str, l2: float, dtype: torch.dtype) -> None:
    make, batch = NETWORKS[name][0], batch_of(name, dtype)
    problem: Problem = ModuleProblem(make, CLASSES, l2)
    y = rows_near(problem.start(3, torch.empty(0, dtype=dtype)))
    alone = each_alone(make, y, batch)
    bound = medians(alone, batch)
    expected, lengths = summed(alone, y, batch, l2, bound)
    assert all(
        (lengths[i] > 1.01 * bound[i]).any() and ((lengths[i] > 0) & (lengths[i] < 0.99 * bound[i])).any()
        for i in (0, 1, 3)
    )
    found, norms = problem.clipped_gradient(y, batch, clip(bound))
    assert found.dtype == norms.dtype == dtype
    assert differs(found, expected) < DTYPES[dtype]
    assert differs(norms, lengths) < DTYPES[dtype]
    assert torch.equal(found[2], l2 * y[2])  # an empty lot
    assert not norms[batch.weights == 0].any()
    everything = problem.clipped_gradient(y, batch, lambda norms, weights: torch.ones_like(norms))[0]
    assert differs(everything, problem.gradient(y, batch).double()) < DTYPES[dtype]  # nothing clipped


@pytest.mark.usefixtures("multiplies")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_linear(classes: int, bias: bool, dtype: torch.dtype) -> None:
    batch, problem = batch_of("mlp", dtype, classes), LinearProblem(36, classes, bias, 0.3)
    y = rows_near(torch.zeros(problem.dimension, dtype=dtype), 0.1)
    alone = torch.stack(
        [by_formula(y[i], batch.features[i], batch.targets[i], classes, bias) for i in range(CLIENTS)]
    )
    bound = medians(alone, batch)
    expected, lengths = summed(alone, y, batch, 0.3, bound)
    found, norms = problem.clipped_gradient(y, batch, clip(bound))
    assert found.dtype == norms.dtype == dtype
    assert differs(found, expected) < DTYPES[dtype]
    assert differs(norms, lengths) < DTYPES[dtype]
    assert torch.equal(found[2], 0.3 * y[2])
    reweighted = Batch(batch.features, batch.targets, batch.weights * clip(bound)(norms, batch.weights))
    assert differs(found, problem.gradient(y, reweighted).double()) < DTYPES[dtype]


def by_formula(flat: Tensor, features: Tensor, targets: Tensor, classes: int, bias: bool) -> Tensor:
    """(b, d): the outer products of (prediction - target) and (x, 1), in numpy; weights first, then
    biases.
    """
    outputs, parameters, found = classes if classes > 2 else 1, flat.double().numpy(), []
    weight, shift = (
        parameters[: 36 * outputs].reshape(outputs, 36),
        parameters[36 * outputs :] if bias else np.zeros(outputs),
    )
    for x, target in zip(features.double().flatten(1).numpy(), targets.numpy(), strict=True):
        scores = weight @ x + shift
        odds = np.exp(scores)
        predicted = {0: scores, 2: odds / (1 + odds)}.get(classes, odds / odds.sum())
        residual = predicted - (np.eye(classes)[target] if classes > 2 else target)
        found.append(np.concatenate([np.outer(residual, x).ravel(), residual if bias else []]))
    return torch.from_numpy(np.stack(found))


def test_what_else_could_be_computed_is_told_apart() -> None:
    """The mean clipped, each layer clipped, l2 clipped with its record, padding counted: far from
    what the tests above accept.
    """
    make, batch = NETWORKS["cnn"][0], batch_of("cnn", torch.float64)
    problem = ModuleProblem(make, CLASSES, 0.3)
    y = rows_near(problem.start(3, torch.empty(0, dtype=torch.float64)))
    alone = each_alone(make, y, batch)
    bound = medians(alone, batch)
    found = problem.clipped_gradient(y, batch, clip(bound))[0]

    def shorter(gradients: Tensor) -> Tensor:
        return gradients * (bound[:, None, None] / gradients.norm(dim=2, keepdim=True)).clamp(max=1)

    weights, ridge = batch.weights[:, :, None], 0.3 * y
    mean = (weights * alone).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp(min=1e-9)
    layers = alone.split([p.numel() for p in make().parameters()], 2)
    padded = torch.where(batch.weights[:, :1] > 0, batch.weights.clamp(min=0.1), 0)[:, :, None]
    right = (weights * shorter(alone)).sum(1) + ridge
    wrong = {
        "mean": shorter(mean)[:, 0] * weights.sum(1) + ridge,
        "layers": (weights * torch.cat([shorter(layer) for layer in layers], 2)).sum(1) + ridge,
        "layers' share": (
            weights * torch.cat([shorter(layer * len(layers) ** 0.5) for layer in layers], 2)
        ).sum(1)
        + ridge,
        "l2": (weights * shorter(alone + ridge[:, None])).sum(1),
        "padding": (padded * shorter(alone)).sum(1) + ridge,
    }
    assert differs(found, right) < 1e-10
    assert {name: differs(found, value) > 1e-2 for name, value in wrong.items()} == dict.fromkeys(wrong, True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_zero(dtype: torch.dtype) -> None:
    """A bias so large that the first class is certain: its records have no gradient, the others a
    large one.
    """
    batch = batch_of("mlp", dtype)
    batch.targets[:, :2] = torch.tensor([0, 1])
    make = NETWORKS["mlp"][0]
    problems: list[Problem] = [ModuleProblem(make, CLASSES), LinearProblem(36, CLASSES, True, 0.0)]
    for problem in problems:
        y = rows_near(problem.start(3, torch.empty(0, dtype=dtype)), 0.1)
        y[:, -CLASSES] = 1e4
        found, norms = problem.clipped_gradient(y, batch, clip(torch.ones(CLIENTS)))
        assert torch.equal(norms > 0, (batch.targets > 0) & (batch.weights > 0))
        torch.testing.assert_close(
            found.norm(dim=1) <= (batch.weights * (norms > 0)).sum(1) * (1 + 1e-6), torch.ones(CLIENTS).bool()
        )
        zero = Batch(batch.features, torch.zeros_like(batch.targets), batch.weights)
        assert not problem.clipped_gradient(y, zero, clip(torch.ones(CLIENTS)))[0].any()


def test_a_rule_sees_whole_lots_once() -> None:
    batch, calls = batch_of("mlp", torch.float64), []
    for problem in (ModuleProblem(NETWORKS["mlp"][0], CLASSES), LinearProblem(36, CLASSES, True, 0.0)):
        y = rows_near(problem.start(3, torch.empty(0, dtype=torch.float64)), 0.1)

        def ranks(norms: Tensor, weights: Tensor) -> Tensor:
            calls.append(norms.clone())
            assert torch.equal(weights, batch.weights)
            return norms.argsort(1).argsort(1).to(norms)

        found, norms = problem.clipped_gradient(y, batch, ranks)
        assert torch.equal(calls.pop(), norms)
        assert not calls
        reweighted = Batch(batch.features, batch.targets, batch.weights * norms.argsort(1).argsort(1))
        assert differs(found, problem.gradient(y, reweighted)) < 1e-10


# how modules get there


@pytest.mark.parametrize("name", ["cnn", "lstm", "branching"])
def test_chunks_and_what_is_held_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, batch = NETWORKS[name][0], batch_of(name, torch.float64)
    problem = ModuleProblem(make, CLASSES, 0.3, backend="vmap")
    y, bound = rows_near(problem.start(3, torch.empty(0, dtype=torch.float64))), torch.ones(CLIENTS)
    whole = problem.clipped_gradient(y, batch, clip(bound))
    sizes: list[int] = []
    piece = Vmap.piece
    monkeypatch.setattr(Vmap, "piece", lambda self, y, x, t: sizes.append(len(x)) or piece(self, y, x, t))
    for chunk, held, passes in ((4, 100, 1), (4, 0, 2), (0, 0, 2)):
        sizes.clear()
        monkeypatch.setattr(loop, "CHUNK_NUMBERS", chunk * problem.dimension)
        monkeypatch.setattr(loop, "HELD_NUMBERS", held * problem.dimension)
        for found, expected in zip(problem.clipped_gradient(y, batch, clip(bound)), whole, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)
        assert sizes == ([4, 2, 4, 4, 2] if chunk else [1] * 16) * passes


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_a_round_begins_with_one_row_for_all(l2: float) -> None:
    """An expanded tensor: sums of several clients must not share its memory."""
    batch = batch_of("cnn", torch.float64)
    for problem in (ModuleProblem(NETWORKS["cnn"][0], CLASSES, l2), LinearProblem(36, CLASSES, True, l2)):
        y = (problem.start(3, torch.empty(0, dtype=torch.float64)) + 0.1).expand(CLIENTS, -1)
        found, expected = (
            problem.clipped_gradient(rows, batch, clip(torch.ones(CLIENTS)))[0] for rows in (y, y.clone())
        )
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", NETWORKS)
def test_who_goes_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recurrent layers and what vmap refuses; nothing else, although the module is first made on
    the way.
    """
    looped: list[int] = []
    weighted = Loop._weighted
    monkeypatch.setattr(
        Loop,
        "_weighted",
        lambda self, *given: looped.append(len(given[1])) or weighted(self, *given),
    )
    problem = ModuleProblem(NETWORKS[name][0], CLASSES, backend="vmap")
    y = rows_near(problem.start(3, torch.empty(0, dtype=torch.float64)))
    problem.clipped_gradient(y, batch_of(name, torch.float64), clip(torch.ones(CLIENTS)))
    assert looped == ([1] * 16 if name in ("lstm", "gru", "branching") else [])


# the bound


def longest(problem: Problem, y: Tensor, batch: Batch, rule: Callable[[Tensor, Tensor], Tensor]) -> float:
    """The longest that one record adds, over its weight. batch: one client."""
    records = range(batch.weights.shape[1])
    alone = [
        problem.clipped_gradient(y, batch, lambda n, w, r=r: rule(n, w) * (torch.arange(len(records)) == r))
        for r in records
    ]
    return max((found[0].double().norm() / batch.weights[0, r]).item() for r, (found, _) in enumerate(alone))


@pytest.mark.parametrize("held", [0, 2**26])
@pytest.mark.parametrize(
    "sharpness", [1.0, 6.0]
)  # 6: sure of most records, where softmax(outputs) - 1 cancels
@pytest.mark.parametrize("name", ["mlp", "cnn", "conv2d", "tempered", "embedding", "lstm"])
def test_no_record_is_longer_than_the_bound(
    name: str, sharpness: float, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "HELD_NUMBERS", held)
    problem, batch = ModuleProblem(NETWORKS[name][0], CLASSES, backend="vmap"), batch_of(name, torch.float32)
    client = Batch(batch.features[:1], batch.targets[:1], batch.weights[:1])
    y = sharpness * problem.start(3, torch.empty(0))[None]
    norms = problem.clipped_gradient(y, client, clip(torch.ones(1)))[1]
    bound = norms.min() / 3  # all are clipped
    assert 1 - 1e-6 < longest(problem, y, client, clip(bound[None])) / bound.item() < 1 + 1e-6


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_no_long_row_is_longer_than_the_bound(classes: int) -> None:
    """300,000 features: a float32 sum of their squares is no longer good enough."""
    draw, features = np.random.default_rng(0), 300_000
    x = torch.from_numpy(draw.uniform(0, 1, (1, 3, features)).astype(np.float32))
    targets = torch.from_numpy(
        draw.integers(0, classes, (1, 3)) if classes else draw.normal(size=(1, 3)).astype(np.float32)
    )
    problem = LinearProblem(features, classes, True, 0.0)
    y = torch.from_numpy(draw.normal(size=(1, problem.dimension)).astype(np.float32)) / features
    assert (
        1 - 1e-6
        < longest(problem, y, Batch(x, targets, torch.ones(1, 3)), clip(torch.full((1,), 0.1))) / 0.1
        < 1 + 1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("held", [0, 2**26])
def test_records_on_a_kink(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a ReLU's kink rounding decides which gradient a record has: only the very gradient that
    was measured is bounded.
    """
    monkeypatch.setattr(loop, "HELD_NUMBERS", held)
    problem = ModuleProblem(partial(mlp, [50], CLASSES, [8]), CLASSES, backend="vmap")
    y = problem.start(3, torch.empty(0))[None]
    weight, shift = y[0, :50], y[0, 400]  # of the first hidden unit, whose outgoing weights are huge
    y[0, 408:432:8] *= 1e4
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 50))).float()
    for _ in range(4):
        x = (
            x
            - ((x.double() @ weight.double() + shift) / weight.double().square().sum()).float()[:, None]
            * weight
        )
    batch = Batch(x[None], torch.arange(64)[None] % CLASSES, torch.ones(1, 64))
    bound = torch.full((1,), 0.1)
    assert longest(problem, y, batch, clip(bound)) < 0.1 * (1 + 1e-6)
    elsewhere = problem.clipped_gradient(y.double(), in_double(batch), clip(bound))[
        1
    ].float()  # measured with other rounding
    assert longest(problem, y, batch, lambda norms, weights: clip(bound)(elsewhere, weights)) > 1


def test_a_gradient_that_changes_between_its_measuring_and_its_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout draws anew if the gradients do not fit."""
    monkeypatch.setattr(loop, "HELD_NUMBERS", 0)
    problem = ModuleProblem(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(), nn.Linear(6, CLASSES)), CLASSES, backend="vmap"
    )
    batch = batch_of("layer_norm", torch.float32)
    client = Batch(batch.features[:1], batch.targets[:1], batch.weights[:1])
    with torch.random.fork_rng(devices=[]):
        assert longest(
            problem, problem.start(3, torch.empty(0))[None], client, clip(torch.full((1,), 0.1))
        ) < 0.1 * (1 + 1e-6)


# Opacus


@pytest.fixture(scope="module")
def opacus() -> Any:
    return pytest.importorskip("opacus")


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ("gru", "branching")])
def test_opacus_agrees(name: str, opacus: Any) -> None:
    from opacus.layers import DPLSTM

    make, batch = NETWORKS[name][0], batch_of(name, torch.float64)
    problem = ModuleProblem(make, CLASSES)
    y = rows_near(problem.start(3, torch.empty(0, dtype=torch.float64)))[:1]
    module = make().double()
    nn.utils.vector_to_parameters(y[0], module.parameters())
    theirs = Recurrent(DPLSTM, num_layers=2).double() if name == "lstm" else module
    for (_, part), (_, source) in zip(theirs.named_children(), module.named_children(), strict=True):
        part.load_state_dict(source.state_dict())  # DPLSTM knows the names of nn.LSTM
    wrapped = opacus.GradSampleModule(theirs, loss_reduction="sum")
    functional.cross_entropy(wrapped(batch.features[0]), batch.targets[0], reduction="sum").backward()
    named = {
        re.sub(r"l(\d)\.(ih|hh)\.(\w+)", r"\3_\2_l\1", key): p.grad_sample.flatten(1)
        for key, p in theirs.named_parameters()
    }
    if name in WITH_TOKENS:
        next(iter(named.values()))[:, :4] = 0  # torch does not learn the row of padding_idx, Opacus 1.6 does
    samples = torch.cat([named[key] for key, _ in module.named_parameters()], 1)
    lengths = samples.norm(dim=1)
    bound = lengths.quantile(0.5)
    expected = ((batch.weights[0] * (bound / lengths).clamp(max=1)) @ samples)[None]
    found, norms = problem.clipped_gradient(
        y, Batch(batch.features[:1], batch.targets[:1], batch.weights[:1]), clip(bound[None])
    )
    assert differs(norms, lengths[None]) < 1e-10
    assert differs(found, expected) < 1e-10
