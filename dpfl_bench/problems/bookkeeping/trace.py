"""One forward and backward pass: notes each layer's input and the loss's gradient by its output,
then applies the layer's rule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from dpfl_bench.problems.bookkeeping.layers import Layers, Untappable
from dpfl_bench.problems.bookkeeping.recurrent import lstm
from dpfl_bench.problems.bookkeeping.rules import RULES
from dpfl_bench.problems.bookkeeping.sums import KEPT_NUMBERS, Gradients, ParameterGradients, Room

Losses = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) -> (n,), of each record alone
# (layer, its input x, x's version, the rule: (x, g) -> the gradients of the layer's parameters)
Tap = tuple[nn.Module, Tensor, int, Callable[[Tensor, Tensor], Gradients]]


class Trace:
    """One forward and backward pass of n records."""

    def __init__(self, layers: Layers, n: int):
        self.layers, self.n, self.room = layers, n, Room(KEPT_NUMBERS)
        # by layer and name, of the parameters that are used
        self.of_parameters: dict[tuple[nn.Module, str], ParameterGradients] = {}
        self.called: set[nn.Module] = set()
        self.taps: list[Tap] = []
        self.places: list[Any] = []  # autograd edges at the tapped outputs
        self.gradients: tuple[Tensor | None, ...] = ()  # g, the loss's gradients by the tapped outputs
        self.backward = False

    def run(self, module: nn.Module, losses: Losses, features: Tensor, targets: Tensor, tried: bool) -> None:
        """The forward and the backward pass. Raises Untappable where the rules do not hold.

        Inside its layer (`forward`) a parameter is a constant. If a gradient reaches it
        nevertheless, it has been used outside of its layer. tried: it is known that no parameter is
        used so.
        """
        hidden = [parameter for parameter in self.layers.parameters if not parameter.requires_grad]
        try:
            for parameter in hidden:
                parameter.requires_grad_()
            for layer in self.layers:
                layer.__dict__["forward"] = partial(self.forward, layer)
            with torch.enable_grad():
                gradients = self._gradients(
                    losses(module(features.detach()), targets), [] if tried else self.layers.parameters
                )
        finally:
            for layer, own in self.layers.items():
                del layer.__dict__["forward"]
                layer.__dict__["_parameters"] = own.parameters
            for parameter in hidden:
                parameter.requires_grad_(False)
        for _, x, version, _ in self.taps:
            if x._version != version:
                raise Untappable("what came into a layer was overwritten")
        self.gradients = gradients
        self._apply_rules(self.taps)

    def leave_out(self, records: Tensor) -> None:
        """Apply the rules again, with zeros for these records' inputs and gradients, for 0 times
        infinity is not 0. records: bool, (n,).
        """
        self.room.numbers = KEPT_NUMBERS

        def silenced(t: Tensor) -> Tensor:
            return t.masked_fill(records.view(-1, *(1,) * (t.dim() - 1)), 0)

        self.gradients = tuple(None if g is None else silenced(g) for g in self.gradients)
        self._apply_rules([(layer, silenced(x), version, rule) for layer, x, version, rule in self.taps])

    def _apply_rules(self, taps: list[Tap]) -> None:
        for (layer, x, _, rule), g in zip(taps, self.gradients, strict=False):
            if g is not None:
                for name, gradients in rule(x, g):
                    self.of_parameters[layer, name] = gradients

    def _gradients(self, losses: Tensor, parameters: list[Tensor]) -> tuple[Tensor | None, ...]:
        """The gradients of the losses' sum by each tapped output."""
        if losses.shape != (self.n,):
            raise ValueError(
                f"losses: expected one for each of {self.n} records, got shape {tuple(losses.shape)}"
            )
        self.backward = True
        places = self.places + parameters
        if not (losses.requires_grad and places):
            return ()
        gradients = torch.autograd.grad(losses.sum(), places, allow_unused=True)
        if any([gradient is not None for gradient in gradients[len(self.places) :]]):
            raise Untappable("a parameter is used outside of its layer")
        return gradients

    def forward(self, layer: nn.Module, *given: Any, **named: Any) -> Any:
        """Called in place of the layer's own `forward`."""
        kind = type(layer)
        if not torch.is_grad_enabled():
            return kind.forward(layer, *given, **named)
        if layer in self.called or self.backward:
            raise Untappable(f"{kind.__name__} is used twice")
        self.called.add(layer)
        own, x = self.layers[layer], given[0] if given else next(iter(named.values()))
        if not isinstance(x, Tensor) or x.dim() not in own.axes:
            raise Untappable(f"{kind.__name__}: expected a tensor of records")
        layer.__dict__["_parameters"] = own.constants
        if kind is nn.LSTM:
            out: Any = lstm(partial(self.tap, layer), self.room, layer, *given, **named)  # type: ignore[arg-type]
        else:
            if not x.requires_grad and x.is_floating_point():  # the first layer: gradients begin here
                given, named = _with_first(x.detach().requires_grad_(), given, named)
            out = self.tap(
                layer, kind.forward(layer, *given, **named), x, partial(RULES[kind], self.room, layer)
            )
        layer.__dict__["_parameters"] = own.parameters
        return out

    def tap(
        self, layer: nn.Module, out: Tensor, x: Tensor, gradients: Callable[[Tensor, Tensor], Gradients]
    ) -> Tensor:
        """Note a layer's input x and output, (n, ...) each; returns the output."""
        if x.shape[0] != self.n:
            raise Untappable(f"expected {self.n} records first, got shape {tuple(x.shape)}")
        if not out.requires_grad:
            # An output of tokens becomes part of autograd's graph by writing to none of its places.
            # `requires_grad_` would make it a leaf, which later layers cannot write to.
            out.narrow(0, 0, 0).add_(out.new_zeros((), requires_grad=True))
        self.places.append(GradientEdge(out.grad_fn, out.output_nr))  # type: ignore[arg-type]
        self.taps.append((layer, x.detach(), x._version, gradients))
        return out


def _with_first(
    x: Tensor, given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((x, *given[1:]), named) if given else ((), {**named, next(iter(named)): x})
