"""What comes into each layer is noted on the way forward; with the gradients on the way back, its rule is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dpfl_bench.problems.bookkeeping.layers import Layers, Untappable, has_records
from dpfl_bench.problems.bookkeeping.recurrent import lstm
from dpfl_bench.problems.bookkeeping.rules import RULES
from dpfl_bench.problems.bookkeeping.sums import KEPT_NUMBERS, Found, Gradients, Room

WAITING_NUMBERS = 2**20  # of gradients: what few layers with small outputs have to do is cheaper done at once

Losses = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) -> (n,), of each record alone


class Trace:
    """One forward and backward pass of n records."""

    def __init__(self, layers: Layers, n: int):
        self.layers, self.n, self.room = layers, n, Room(KEPT_NUMBERS)
        self.parameters: list[Tensor] = [parameter for own in layers.values() for parameter in own]
        self.found: list[tuple[Tensor, Found]] = []
        self.called: set[nn.Module] = set()
        self.starts: list[GradientEdge] = []  # outputs that depend on no other layer's parameters
        self.waiting: list[Callable[[], Gradients]] = []  # for the backward pass to be over, WAITING_NUMBERS at most
        self.numbers = 0  # of what waits
        self.backward = False

    def run(self, module: nn.Module, losses: Losses, features: Tensor, targets: Tensor) -> None:
        """Parameters are constants inside their layers (`forward`): one that a gradient reaches has been used elsewhere."""
        with torch.enable_grad(), self._noting():
            found = losses(module(features.detach()), targets)
            if found.shape != (self.n,):
                raise ValueError(f"losses: expected one for each of {self.n} records, got shape {tuple(found.shape)}")
            self.backward = True
            ends: list[Any] = [*self.starts, *self.parameters]
            if found.requires_grad:
                reached = torch.autograd.grad(found.sum(), ends, allow_unused=True)[len(self.starts) :]
                if any(gradient is not None for gradient in reached):
                    raise Untappable("a parameter is used outside of its layer")
        self.starts = []
        self._settle()

    def forward(self, layer: nn.Module, *given: Any, **named: Any) -> Any:
        """In place of the layer's own."""
        if not torch.is_grad_enabled():
            return type(layer).forward(layer, *given, **named)
        if layer in self.called or self.backward:
            raise Untappable(f"{type(layer).__name__} is used twice")
        self.called.add(layer)
        x = next(iter((*given, *named.values())))
        if not isinstance(x, Tensor) or not has_records(layer, x):
            raise Untappable(f"{type(layer).__name__}: expected a tensor of records")
        _require(self.layers[layer], False)
        if isinstance(layer, nn.LSTM):
            out: Any = lstm(self.tap, self.room, layer, *given, **named)
        else:
            if x.is_floating_point() and not x.requires_grad:  # gradients begin here
                given, named = _with_first(x.detach().requires_grad_(), given, named)
            out = self.tap(type(layer).forward(layer, *given, **named), x, partial(RULES[type(layer)], self.room, layer))
        _require(self.layers[layer], True)
        return out

    def tap(self, out: Tensor, x: Tensor, gradients: Callable[[Tensor, Tensor], Gradients]) -> Tensor:
        """Note what gradients(x, g) finds, once the backward pass has come to g. x, out: (n, ...)."""
        if x.shape[0] != self.n:
            raise Untappable(f"expected {self.n} records first, got shape {tuple(x.shape)}")
        if not out.requires_grad:  # of tokens: written to in no place at all, for a leaf cannot be written to later
            out.narrow(0, 0, 0).add_(out.new_zeros((), requires_grad=True))
        if not x.requires_grad:
            self.starts.append(get_gradient_edge(out))
        x, version = x.detach(), x._version

        def note(g: Tensor) -> None:
            if x._version != version:
                raise Untappable("what came into a layer was overwritten")
            self.waiting.append(partial(gradients, x, g))
            self.numbers += g.numel()
            if self.numbers > WAITING_NUMBERS:
                self._settle()

        out.register_hook(note)  # type: ignore[no-untyped-call]
        return out

    def _settle(self) -> None:
        with torch.no_grad():
            for gradients in self.waiting:
                self.found.extend(gradients())
        self.waiting, self.numbers = [], 0

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """With parameters that autograd sees, outside of their layers."""
        before = [parameter.requires_grad for parameter in self.parameters]
        for layer in self.layers:
            vars(layer)["forward"] = partial(self.forward, layer)
        _require(self.parameters, True)
        try:
            yield
        finally:
            for layer in self.layers:
                del vars(layer)["forward"]
            for parameter, required in zip(self.parameters, before, strict=True):
                parameter.requires_grad_(required)


def _with_first(x: Tensor, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((x, *given[1:]), named) if given else ((), {**named, next(iter(named)): x})


def _require(parameters: Iterable[Tensor], flag: bool) -> None:
    for parameter in parameters:
        parameter.requires_grad_(flag)
