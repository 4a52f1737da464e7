"""Record-level gradients by book-keeping: one forward and one backward pass. No record's gradient
of the whole network is ever formed.

The forward pass notes each layer's input, the backward pass the loss's gradient by each layer's
output. Both together give the norm of each record's gradient, and any weighted sum of the records'
gradients (`rules.py`). A second backward pass, of a reweighted loss, would give such a sum too, but
it rounds in another way than the gradients that were measured. A record on the kink of a ReLU may
then get another gradient, of any length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dpfl_bench import rng
from dpfl_bench.machine import device
from dpfl_bench.problems.bookkeeping.layers import Layers, Untappable, layers_of
from dpfl_bench.problems.bookkeeping.trace import Losses, Trace
from dpfl_bench.problems.problem import lengths


def supported(module: nn.Module, features: Tensor | None = None) -> bool:
    """Whether book-keeping computes this module's gradients: every parameter belongs to one layer,
    of a kind with a rule.

    With features, (n, *shape), the module is also tried on two records of this shape. No layer may
    be used twice, no parameter outside of its layer. Every layer's first axis must be the records,
    and they must not mix.
    """
    try:
        layers_of(module)
        return (
            features is None
            or len(features) == 0
            or all(_stays_alone(module, _pair(features), record) for record in (0, 1))
        )
    except Untappable:
        return False


class Tapped:
    """The gradients of n records at the parameters that `module` holds.

    features: (n, *shape); they must stay as they are until the last sum. targets: (n, ...). layers:
    `layers_of(module)`, if `supported` has already tried the module with records of this shape.
    """

    norms: Tensor  # (n,), in the device's widest format

    def __init__(
        self,
        module: nn.Module,
        losses: Losses,
        features: Tensor,
        targets: Tensor,
        layers: Layers | None = None,
    ):
        tried = layers is not None
        self._layers = layers = layers_of(module) if layers is None else layers
        trace = Trace(layers, features.shape[0])
        if trace.n:
            trace.run(module, losses, features, targets, tried)
        self.norms = self._measure(trace, features)
        if device.apart(self.norms) or not math.isfinite(self.norms.sum().item()):
            norms, left_out = self.norms, ~self.norms.isfinite()
            trace.leave_out(left_out)
            self.norms = self._measure(trace, features).where(~left_out, norms)

    def _measure(self, trace: Trace, features: Tensor) -> Tensor:
        """The norm of each record's gradient: (n,)."""
        # of each parameter, None where it is not used
        self._of_parameters = [trace.of_parameters.get(place) for place in self._layers.names]
        parts = [length for each in self._of_parameters if each for length in each.lengths]
        return lengths(torch.cat(parts, 1) if parts else torch.zeros(trace.n, 1, device=features.device))

    def weighted(self, scales: Tensor, out: Tensor) -> None:
        """out = sum_r scales_r gradient_r over the records whose norm is finite.

        scales: (n,). out: (d,), in the order of the module's parameters.
        """
        out.zero_()
        self.add(scales, out)

    def add(self, scales: Tensor, out: Tensor) -> None:
        """Like `weighted`, but added to `out`: for a lot in several pieces."""
        scales = scales.to(out)
        totals = out.split_with_sizes(self._layers.sizes)
        for gradients, total in zip(self._of_parameters, totals, strict=True):
            if gradients:
                gradients.add(scales, total)


def _pair(features: Tensor) -> Tensor:
    """Two records. Real ones may be alike, or zero, and hide what a module does to its batch. So
    numbers are drawn at random; tokens stay.
    """
    pair = features[[0, -1]]
    return (
        pair.copy_(torch.from_numpy(rng.generator(0, "probe").normal(size=pair.shape)))
        if pair.is_floating_point()
        else pair
    )


def _stays_alone(module: nn.Module, pair: Tensor, record: int) -> bool:
    """Whether one record's output does not depend on the other record, nor its loss on the other
    record's gradient.
    """
    other = pair.clone()
    other[1 - record] = 0
    before, after = _drawing_alike(module, pair)[record], _drawing_alike(module, other)[record]
    if not torch.allclose(before, after, rtol=1e-4, atol=1e-4 * before.abs().max().item()):
        return False
    losses = torch.eye(2, device=pair.device)[record]
    tapped = Tapped(
        module, lambda outputs, weights: outputs.square().flatten(1).sum(1) * weights, pair, losses
    )
    return not tapped.norms[1 - record].any()


def _drawing_alike(module: nn.Module, features: Tensor) -> Tensor:
    """The module's outputs. Each call draws the same random numbers (Dropout's)."""
    with torch.random.fork_rng(), torch.no_grad():
        outputs: Tensor = module(features)
    return outputs
