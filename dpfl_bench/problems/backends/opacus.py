"""Records' gradients by Opacus' GradSampleModule: for comparison, and for layers that book-keeping
has no rule for.

Opacus hooks into a module's layers. It has a formula for common layers and takes vmap for the
others. The hooked module is this backend's own: the network's module stays as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from dpfl_bench import rng
from dpfl_bench.problems.backends.loop import Loop, Piece, Rows
from dpfl_bench.problems.network import Network

AGREES = 1e-3  # relative: float32 gradients, summed in another order
Losses = Callable[[Tensor], Tensor]  # outputs of n records -> one loss each, (n,)


@dataclass(frozen=True)
class Opacus(Loop):
    """`gradient`, which no door bounds, is `Loop`'s."""

    def piece(self, y: Tensor, features: Tensor, targets: Tensor) -> Piece:
        hooked = self._hooked(y)
        hooked.parameters.copy_(y)
        return Rows(hooked.gradients(features, lambda outputs: self.network.task.losses(outputs, targets))[0])

    def _hooked(self, like: Tensor) -> _Hooked:
        """Made once in each process, for each number format and device; anew after an error, which
        may leave half a pass in the hooks.
        """
        kind = (like.dtype, like.device)
        if kind not in self._by_kind or self._by_kind[kind].broken:
            self._by_kind[kind] = _Hooked(self.network, like.new_zeros(like.shape[-1]))
        return self._by_kind[kind]

    @cached_property
    def _by_kind(self) -> dict[tuple[torch.dtype, torch.device], _Hooked]:
        return {}


class _Hooked:
    """A module with Opacus' hooks, whose parameters are views of a flat vector, (d,)."""

    def __init__(self, network: Network, parameters: Tensor):
        from opacus import GradSampleModule

        self.parameters, self.broken = parameters, False
        module = network.bound(parameters)
        for parameter in module.parameters():
            parameter.requires_grad_()
        with _quiet():
            self.module: Any = GradSampleModule(module, loss_reduction="sum")
        self._own: list[Any] = list(module.parameters())

    def gradients(self, features: Tensor, losses: Losses) -> tuple[Tensor, Tensor]:
        """Each record's gradient, (n, d), and autograd's gradient of the losses' sum, (d,).

        features: (n, *shape). Nothing of this pass is left in the module.
        """
        self.broken = True
        with _quiet(), torch.enable_grad():
            each = losses(self.module(features))
            torch.autograd.backward(each.sum())
        rows, total = [], []
        for p in self._own:
            rows.append(each.new_zeros(len(each), p.numel()) if p.grad_sample is None else _rows(p))
            total.append(each.new_zeros(p.numel()) if p.grad is None else p.grad.flatten())
            p.grad_sample = p.grad = None
        self.broken = False
        return torch.cat(rows, 1), torch.cat(total)


def _rows(parameter: Any) -> Tensor:
    """A parameter's gradients by record, (n, numbers)."""
    rows: Tensor = parameter.grad_sample.flatten(1)
    return rows


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warning that features need no gradient, and Opacus' own on old hooks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check_opacus(make: Callable[[], nn.Module], shape: list[int], tokens: int) -> None:
    """Raise ValueError, in a few words, where Opacus cannot compute each record's own gradient.

    Tried on two random records of this shape; tokens: how many there are, 0 if features are
    numbers. Records must stay apart, and their gradients must add up to autograd's.
    """
    network, draw = Network(make), rng.generator(0, "probe")
    for layer in network.module.modules():
        _check_layer(layer)
    x = torch.from_numpy(draw.normal(0, 0.1, network.dimension)).float()
    if tokens:
        pair = torch.from_numpy(draw.integers(0, tokens, (2, *shape)))
    else:
        pair = torch.from_numpy(draw.normal(size=(2, *shape))).float()
    try:
        hooked = _Hooked(network, x)
        apart = all(_stays_alone(hooked, pair, record) for record in (0, 1))
        agrees = _adds_up(hooked, pair)
    except (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"Opacus refuses it ({' '.join(str(error).split())[:200]})") from None
    if not apart:
        raise ValueError("it mixes the records of a batch")
    if not agrees:
        raise ValueError("Opacus' gradients of its records do not add up to torch's")


def _check_layer(layer: nn.Module) -> None:
    """Layers whose gradients Opacus computes in another way than torch, or not at all."""
    name = type(layer).__name__
    if isinstance(layer, nn.RNNBase):
        raise ValueError(f"Opacus has no gradients for {name}")
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        raise ValueError(f"{name} mixes the records of a batch")
    if isinstance(layer, nn.Embedding):
        for setting in ("padding_idx", "max_norm", "scale_grad_by_freq"):
            value = getattr(layer, setting)
            if value is not None and value is not False:
                raise ValueError(f"Opacus takes no heed of {name}'s {setting}")


def _stays_alone(hooked: _Hooked, pair: Tensor, record: int) -> bool:
    """Whether the gradient of this one of two records has nothing to do with the other."""
    other = pair.clone()
    other[1 - record] = 0
    before, after = (_drawing_alike(hooked, features, record) for features in (pair, other))
    return not before[1 - record].any() and _alike(after[record], before[record])


def _drawing_alike(hooked: _Hooked, features: Tensor, record: int) -> Tensor:
    """Both records' gradients by one record's loss, (2, d), with the random numbers (Dropout's)
    that any other call gets.
    """
    counted = torch.eye(2)[record]
    with torch.random.fork_rng():
        return hooked.gradients(features, lambda outputs: outputs.square().flatten(1).sum(1) * counted)[0]


def _adds_up(hooked: _Hooked, pair: Tensor) -> bool:
    rows, total = hooked.gradients(pair, lambda outputs: outputs.square().flatten(1).sum(1))
    return _alike(rows.sum(0), total)


def _alike(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).norm() <= AGREES * other.norm())
