"""No record's gradient is longer than its bound; the norms of gradients, whatever their size."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers.odd_layers import LAYERS, MIXED, WAYS, Recurrent, after, go
from oracles.record_gradients import N, built, differs, drawn, each_alone, length, records, scales, score
from torch import Tensor, nn

from dpfl_bench.problems import tasks
from dpfl_bench.problems.bookkeeping import Tapped, convolutions, sums, supported
from dpfl_bench.problems.bookkeeping.recurrent import lstm
from dpfl_bench.problems.models.mlp import mlp

pytestmark = pytest.mark.one_in(8)

# dropout


@pytest.mark.parametrize("name", ["dropout", "in place", "between recurrent layers"])
def test_dropout(name: str) -> None:
    """Against the gradients of each record's loss in one forward pass with the same coins."""
    layers = (partial(nn.Dropout, 0.5, name == "in place"), partial(nn.Linear, 8, 3))
    module, x = built(after(partial(nn.Linear, 4, 8), *layers), torch.float64), records((4,), torch.float64)
    if name == "between recurrent layers":
        module, x = (
            built(partial(Recurrent, num_layers=3, dropout=0.5, batch_first=True), torch.float64),
            records((4, 0), torch.float64),
        )
    assert supported(module, x)
    targets, parameters = drawn(*module(x).shape), list(module.parameters())
    with torch.random.fork_rng(devices=[]):
        tapped = Tapped(module, score, x, targets)
    with torch.random.fork_rng(devices=[]):
        if isinstance(module, Recurrent):  # nn.LSTM would toss its coins in another order
            module.recurrent.forward = partial(lstm, lambda out, *_: out, sums.Room(0), module.recurrent)  # type: ignore[method-assign]
        losses = score(module(x), targets)
    rows = torch.stack(
        [
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])
            for loss in losses
        ]
    )
    torch.testing.assert_close(tapped.norms, rows.norm(dim=1), rtol=1e-10, atol=0)
    tapped.weighted(scales(N), out := torch.empty(rows.shape[1]).double())
    assert differs(out, scales(N) @ rows) < 1e-10


# the bound


def longest(tapped: Tapped, n: int, dimension: int, bound: float) -> float:
    """The longest that one record adds, clipped, over the bound."""
    factors, found = (bound / tapped.norms).clamp(max=1), []
    for r in range(n):
        tapped.weighted(factors * (torch.arange(n) == r), out := torch.empty(dimension))
        found.append(out.double().norm().item() / bound)
    return max(found)


@pytest.mark.parametrize("name", [*MIXED, "instance norm 2d", "group norm", "padding", "in place"])
def test_no_record_is_longer_than_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, shape = LAYERS[name]
    for way in WAYS:
        with monkeypatch.context() as patch:
            go(way, patch)
            module, x = built(make, torch.float32), records(shape, torch.float32)
            tapped = Tapped(module, score, x, drawn(*module(x).shape).float())
            dimension = sum(p.numel() for p in module.parameters())
            found = longest(tapped, N, dimension, tapped.norms.min().item() / 3)
            assert 1 - 1e-5 < found < 1 + 1e-5, way


@pytest.mark.parametrize("way", ["kept", "not kept", "gram"])
def test_records_on_a_kink(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a ReLU's kink rounding decides which gradient a record has: only the one that was measured
    is bounded.
    """
    go(way, monkeypatch)
    module = built(partial(mlp, [50], 3, [8]), torch.float32)
    first, last = module[1], module[3]  # type: ignore[index]
    last.weight.data[:, 0] *= 1e4  # of the hidden unit on whose kink all records are
    weight, shift = first.weight.data[0].double(), first.bias.data[0].double()
    x = drawn(64, 50)
    for _ in range(4):
        x = x - ((x @ weight + shift) / weight.square().sum())[:, None] * weight
    x, targets = x.float(), torch.arange(64) % 3
    losses = tasks.classify().losses
    tapped = Tapped(module, losses, x, targets)
    assert longest(tapped, 64, sum(p.numel() for p in module.parameters()), 0.1) < 1 + 1e-5
    elsewhere = each_alone(module, x, targets, losses).norm(dim=1)  # measured with other rounding
    assert (tapped.norms / elsewhere).max() > 10


def test_gradients_of_zero() -> None:
    module = built(partial(mlp, [4], 3, [5]), torch.float32)
    module[3].bias.data[0] = 1e4  # type: ignore[index]
    tapped = Tapped(
        module, tasks.classify().losses, records((4,), torch.float32), torch.tensor([0, 0, 1, 0, 2])
    )
    assert torch.equal(tapped.norms > 0, torch.tensor([False, False, True, False, True]))
    tapped.weighted(torch.tensor([1.0, 1, 0, 1, 0]), out := torch.full((43,), torch.nan))
    assert not out.any()


# norms


@pytest.mark.parametrize("numbers", [3, 255, 256, 257, 512, 1025, 5000, 3_000_001])
@pytest.mark.parametrize("size", [1.0, 1e-15, 1e15])
def test_lengths(numbers: int, size: float) -> None:
    """A float32 sum of millions of squares errs by 1e-5 and more."""
    draw = np.random.default_rng(0)
    rows = torch.from_numpy(
        (size * draw.uniform(0.5, 1, (3, numbers)) * draw.choice([1, 1e-3], (3, 1))).astype(np.float32)
    )
    rows[1] = 0
    found = length(sums.ParameterGradients(sums.lengths_of(rows), lambda *_: None))
    torch.testing.assert_close(found, rows.double().norm(dim=1), rtol=2e-7, atol=0)


def test_terms_that_cancel() -> None:
    """Few positions whose gradients nearly add up to zero: float32 Gram matrices would find nothing
    like the norm.
    """
    a = 1 + 1e-3 * drawn(2, 4, 50)
    g = drawn(2, 4, 60, seed=1)
    g = g - g.mean(1, keepdim=True)
    a, g = a.float(), g.float()
    exact = (g.double().transpose(1, 2) @ a.double()).square().sum((1, 2))
    positions = sums.Positions(g, a.__getitem__, a.shape[2])
    found = length(sums.over_positions(positions, sums.Room(0))).square()
    torch.testing.assert_close(found, exact, rtol=2e-6, atol=0)
    narrow = ((g @ g.transpose(1, 2)) * (a @ a.transpose(1, 2))).sum((1, 2))
    assert ((narrow.double() - exact).abs() / exact).max() > 1e-4


@pytest.mark.parametrize("way", ["gram", "not kept"])
def test_what_rounding_leaves_of_cancelling_positions_is_bounded_too(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum is taken in float32, where a gradient that is nothing beside its terms comes out
    longer than it is.
    """
    go(way, monkeypatch)
    a, g = 1e7 * (1 + 1e-7 * drawn(3, 8, 64)), drawn(3, 8, 64, seed=1)
    g = g - g.mean(1, keepdim=True)
    positions = sums.Positions(g.float(), a.float().__getitem__, a.shape[2])
    found = sums.over_positions(positions, sums.Room(0))
    for r in range(3):
        scales = 0.1 / length(found) * (torch.arange(3) == r)
        found.add(scales.float(), out := torch.zeros(64 * 64))
        assert out.double().norm() < 0.1 * (1 + 1e-6)
    exact = (g.float().double().transpose(1, 2) @ a.float().double()).square().sum((1, 2))
    alone = (0.1 / exact.sqrt()).float()  # the negative control
    found.add(alone * (torch.arange(3) == 0), out := torch.zeros(64 * 64))
    assert out.double().norm() > 0.1 * (1 + 1e-5)


@pytest.mark.parametrize(
    "layer", [nn.Conv1d(2, 3, 5), nn.ConvTranspose1d(2, 3, 5), nn.Conv1d(2, 4, 3, 2, groups=2)]
)
def test_the_same_of_convolutions(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which gradients are summed again where they are not kept."""
    go("records as groups, not kept", monkeypatch)
    x = drawn(3, 2, 60)
    g = drawn(*layer.double()(x).shape, seed=1)
    large, other = (g, x) if layer.transposed else (x, g)  # patches of the one meet the other's positions
    large.copy_(1e7 * (1 + 1e-7 * large))
    other -= other.mean(2, keepdim=True)
    x, g = x.float(), g.float()
    with torch.no_grad():
        exact = each_gradient(layer, x.double(), g.double())
        found = dict(convolutions.convolution(sums.Room(0), layer.float(), x, g))["weight"]
    for r in range(3):
        scales = 0.1 / length(found) * (torch.arange(3) == r)
        found.add(scales.float(), out := torch.zeros(layer.weight.numel()))
        assert out.double().norm() < 0.1 * (1 + 1e-6)
    alone = [
        (0.1 / exact[r].norm() * (torch.arange(3) == r)).float() for r in range(3)
    ]  # the negative control
    added = [torch.zeros(layer.weight.numel()) for _ in alone]
    for scales, out in zip(alone, added, strict=True):
        found.add(scales, out)
    assert max(out.double().norm() for out in added) > 0.1 * (1 + 1e-5)


def each_gradient(layer: Any, x: Tensor, g: Tensor) -> Tensor:
    """Of the weight alone: (n, numbers)."""
    with torch.enable_grad():
        rows = [
            torch.autograd.grad(layer(x[r : r + 1]), layer.weight, g[r : r + 1])[0].flatten()
            for r in range(len(x))
        ]
    return torch.stack(rows)
