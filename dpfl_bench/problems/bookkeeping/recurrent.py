"""An LSTM that shows its hidden states, and its records' gradients.

Let z_t = W x_t + b + U h_(t-1) + c be the gates before their activations, and g_t the loss's
gradient by z_t. A record's gradients are: of W, sum_t g_t x_t'; of U, sum_t g_t h_(t-1)'; of b and
of c, sum_t g_t. The sum W x_t + b + c is computed for all t at once; the loss's gradients by it are
the g_t as well.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl_bench.problems.bookkeeping.sums import Gradients, Positions, Room, formed, over_positions

Tap = Callable[[Tensor, Tensor, Callable[[Tensor, Tensor], Gradients]], Tensor]  # Trace.tap
States = tuple[Tensor, Tensor]  # hidden states and cells


def lstm(
    tap: Tap, room: Room, layer: nn.LSTM, input: Tensor, hx: States | None = None
) -> tuple[Tensor, States]:
    """Computes and returns what nn.LSTM does, for one direction without projections."""
    x = input if layer.batch_first else input.transpose(0, 1)
    zeros = x.new_zeros(layer.num_layers, len(x), layer.hidden_size)
    before, after = hx or (zeros, zeros), []
    for number, (h, c) in enumerate(zip(*before, strict=True)):
        if number:
            x = functional.dropout(x, layer.dropout, layer.training)
        x, h, c = _one_layer(tap, room, layer, number, x, h, c)
        after.append((h, c))
    hidden, cells = (torch.stack(last) for last in zip(*after, strict=True))
    return x if layer.batch_first else x.transpose(0, 1), (hidden, cells)


def _one_layer(
    tap: Tap, room: Room, layer: nn.LSTM, number: int, x: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """x: (n, times, k), h and c: (n, hidden). Returns the hidden states, (n, times, hidden), the
    last one of them, and the last cell, (n, hidden) each.
    """
    names = [
        f"{name}_l{number}"
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if layer.bias else 2]
    ]
    w, u, *biases = (getattr(layer, name) for name in names)
    hidden = [h]

    def gradients(x: Tensor, g: Tensor) -> Gradients:
        with torch.no_grad():
            states = torch.stack(hidden[:-1], 1).nan_to_num_(0.0)  # NaN: of records that are left out
        for name, inputs in zip(names, (x, states), strict=False):
            yield name, over_positions(Positions(g, inputs.__getitem__, inputs.shape[2]), room)
        bias = formed(g.sum(1))
        yield from ((name, bias) for name in names[2:])

    for z in tap(functional.linear(x, w, sum(biases) if biases else None), x, gradients).unbind(1):
        i, f, g, o = torch.addmm(z, h, u.t()).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        hidden.append(h)
    return torch.stack(hidden[1:], 1), h, c
