"""The device's own kernels, where the twin has a stand-in: torch's FakeTensorMode on the same
private-use device. It knows which kernels a device is asked for, their shapes and devices, and no
numbers. So it also shows that no gradient asks for a number.

The twin carries `vmap` over GroupNorm (`cnn`, `vgg` and `unet3d` in `test_another_device.py`). What
it cannot carry is in BY_HAND below. Two things no device carries: `vmap` and Opacus refuse
recurrent layers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from helpers import twin
from helpers.devices import CLOSED, MODELS, UNITS, on, played_by
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from dpfl_bench import rng
from dpfl_bench.privacy import bounding
from dpfl_bench.problems.module import ModuleProblem
from dpfl_bench.problems.problem import Batch, Problem

aten = torch.ops.aten
CELL = "torch fuses an LSTM's cell on devices; the CPU has no such kernel, so the twin adds it up by hand"
BY_HAND = {
    aten._thnn_fused_lstm_cell.default: CELL,
    aten._thnn_fused_lstm_cell_backward_impl.default: CELL,
}


class Noted(TorchDispatchMode):
    """Notes which operations come."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: set[Any] = set()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations.add(op)
        return op(*args, **(kwargs or {}))


def made_there(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """`rng.initialised`, without numbers."""
    with torch.device(twin.NAME):
        module = make()
    module.__dict__["to"] = lambda *_: module
    return module


def gradient_of(problem: Problem, batch: Batch, unit: str) -> tuple[Tensor, set[Any]]:
    """On the fake device, of as many clients and records; and the operations."""
    with ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setattr(rng, "initialised", made_there)
        stack.enter_context(FakeTensorMode())
        noted = stack.enter_context(Noted())
        features, targets, weights, y = (
            torch.empty(shape, dtype=kind, device=torch.device(twin.NAME, 0))
            for shape, kind in (
                *((t.shape, t.dtype) for t in (batch.features, batch.targets, batch.weights)),
                ((len(batch.sizes), problem.dimension), torch.float32),
            )
        )
        there = Batch(features, targets, weights, batch.sizes)
        if unit == "client":
            return problem.gradient(y, there), noted.operations
        if isinstance(problem, ModuleProblem) and problem.backend == "flat":
            # whether there are rules is tried once in a process, by numbers
            problem._backend._buffers(y).has_rules = True  # type: ignore[attr-defined]
        found, _ = problem.clipped_gradient(y, there, lambda norms, _: bounding.scales(norms, 0.5))
        return found, noted.operations


def at_work(name: str, unit: str) -> tuple[Problem, Batch]:
    """A model as `engine.backend=auto` plays it on a GPU, and the whole lots of three clients."""
    backend = "auto" if name in CLOSED else "flat" if name == "lstm" else "vmap"
    played = on("cpu", *played_by(name, unit, backend))
    return played.player.problem, played.player.federation._whole(np.arange(3))


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("name", "unit"), [(name, unit) for name in MODELS for unit in UNITS])
def test_every_model_asks_for_kernels_that_a_device_has(name: str, unit: str) -> None:
    problem, batch = at_work(name, unit)
    found, operations = gradient_of(problem, batch, unit)
    assert found.device == torch.device(twin.NAME, 0)
    assert found.shape == (3, problem.dimension)
    if (name, unit) == ("lstm", "client"):
        assert operations >= BY_HAND.keys()
    else:
        assert not operations & BY_HAND.keys()


def test_what_the_twin_does_by_hand_is_listed() -> None:
    assert twin.BY_HAND.keys() == BY_HAND.keys()


def test_the_cell_by_hand_has_the_kernel_s_results() -> None:
    sizes = [(2, 12), (2, 12), (2, 3), (12,), (12,)]
    with FakeTensorMode():
        given = [torch.empty(size, device=torch.device(twin.NAME, 0)) for size in sizes]
        expected = aten._thnn_fused_lstm_cell.default(*given)
    found = aten._thnn_fused_lstm_cell.default(*(torch.ones(size).to(twin.NAME) for size in sizes))
    assert [(t.shape, t.dtype) for t in found] == [(t.shape, t.dtype) for t in expected]


class Mixes(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.ones(3, device="cpu")


class Asks(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * x.sum().item()


@pytest.mark.parametrize(
    ("layer", "error", "words"),
    [
        (
            Mixes,
            RuntimeError,
            r"two devices, privateuseone:0 and cpu|two different devices privateuseone:0, cpu",
        ),
        (Asks, DataDependentOutputException, "_local_scalar_dense"),
    ],
)
def test_what_is_planted_is_found(layer: type[nn.Module], error: type[Exception], words: str) -> None:
    """The negative control."""
    problem = ModuleProblem(lambda: layer(5, 3), 3, backend="loop")  # type: ignore[call-arg]
    targets = torch.zeros(2, 4, dtype=torch.int64)
    batch = Batch(torch.zeros(2, 4, 5), targets, torch.ones(2, 4), [4, 4])
    with pytest.raises(error, match=words):
        gradient_of(problem, batch, "client")
