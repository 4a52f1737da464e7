"""What is left behind: sums, the module, memory, and nothing for the garbage collector."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from helpers.odd_layers import LAYERS, go
from oracles.record_gradients import Make, N, built, drawn, errors, records, scales, score
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpfl_bench.problems.bookkeeping import Tapped
from dpfl_bench.problems.models.mlp import mlp


def test_sums_add_up_or_overwrite() -> None:
    module, x = built(partial(mlp, [4], 3, [5]), torch.float32), records((4,), torch.float32)
    targets = drawn(N, 3).float()
    whole, pieces = (
        Tapped(module, score, x, targets),
        [Tapped(module, score, x[s], targets[s]) for s in (slice(0, 2), slice(2, N))],
    )
    torch.testing.assert_close(torch.cat([piece.norms for piece in pieces]), whole.norms)
    c = scales(N)
    whole.weighted(c, expected := torch.full((43,), torch.nan))
    found = torch.ones(43)
    for piece, part in zip(pieces, c.split([2, 3]), strict=True):
        piece.add(part, found)
    torch.testing.assert_close(found, 1 + expected)
    assert not expected.requires_grad
    assert whole.norms.dtype == torch.float64


def test_a_lot_of_none() -> None:
    module = nn.Conv2d(1, 2, 3)
    tapped = Tapped(module, score, torch.zeros(0, 1, 5, 5), torch.zeros(0, 18))
    assert tapped.norms.shape == (0,)
    tapped.weighted(torch.zeros(0), out := torch.full((20,), torch.nan))
    assert not out.any()


@pytest.mark.parametrize("required", [False, True])
def test_the_module_is_left_as_it_was(required: bool) -> None:
    """And nothing is learnt of how the caller calls it: without gradients, with features that need
    some.
    """
    module = built(partial(mlp, [4], 3, [5]), torch.float32).requires_grad_(required)
    kept, x = copy.deepcopy(module.state_dict()), records((4,), torch.float32).requires_grad_()
    with torch.no_grad():
        Tapped(module, score, x, drawn(N, 3).float())
    assert x.grad is None
    assert all(p.requires_grad == required and p.grad is None for p in module.parameters())
    assert all(torch.equal(value, kept[key]) for key, value in module.state_dict().items())
    assert not any("forward" in vars(layer) or layer._forward_hooks for layer in module.modules())


def test_an_error_on_the_way_leaves_the_module_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Tapped(module, score, torch.zeros(2, 4), torch.zeros(2, 2))
    assert all(p.requires_grad for p in module.parameters())
    assert not any("forward" in vars(layer) for layer in module.modules())


@pytest.mark.parametrize(
    "name", ["conv2d", "few patches", "group norm", "instance norm 2d", "transposed 2d", "same"]
)
@pytest.mark.parametrize("way", ["kept", "not kept", "gram"])
def test_channels_last(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go(way, monkeypatch)
    make, shape = LAYERS[name]
    module = built(make, torch.float64)
    assert errors(module, records(shape, torch.float64).contiguous(memory_format=torch.channels_last)) < 1e-10
    module = module.to(memory_format=torch.channels_last)
    assert errors(module, records(shape, torch.float64).contiguous(memory_format=torch.channels_last)) < 1e-10


class Largest(TorchDispatchMode):
    """Numbers of the largest tensor that any operation makes."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else [found]:
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return found


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 3)), (300,)),
        (
            lambda: nn.Sequential(
                nn.Conv2d(30, 40, 5, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(640, 3)
            ),
            (30, 4, 4),
        ),
        (lambda: nn.Sequential(nn.Embedding(20_000, 5), nn.Flatten(), nn.Linear(20, 3)), (4, 0)),
        (lambda: nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 3)), (3, 300)),
    ],
)
def test_no_tensor_of_all_gradients(
    make: Make, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    go("one record at a time, not kept", monkeypatch)
    module, x = built(make, torch.float32), records(shape, torch.float32, 16)
    targets = drawn(*module(x).shape).float()
    d = sum(p.numel() for p in module.parameters())
    out = torch.empty(d)
    with Largest() as largest:
        Tapped(module, score, x, targets).weighted(torch.ones(16), out)
    assert d <= largest.numbers < 5 * d  # of 16 d


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("uncollected")
def test_nothing_waits_for_the_garbage_collector() -> None:
    module, x = built(LAYERS["conv2d"][0], torch.float32), records(LAYERS["conv2d"][1], torch.float32)
    targets, out = torch.ones_like(module(x)), torch.empty(sum(p.numel() for p in module.parameters()))
    gc.collect()
    Tapped(module, score, x, targets).weighted(torch.ones(N), out)
    assert gc.collect() == 0
