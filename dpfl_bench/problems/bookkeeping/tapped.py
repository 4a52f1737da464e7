"""Record-level gradients by book-keeping: one forward and one backward pass, and no record's
gradient of the whole network.

What comes into each layer with parameters is noted in the forward pass, the loss's gradient by what
went out in the backward pass. Both together give each record's gradient norm and any weighted sum
of the records' gradients (`rules.py`). A second backward pass, of a reweighted loss, would give
such a sum too, but rounds otherwise than what was measured: a record on the kink of a ReLU may get
another gradient there, of any length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dpfl_bench import rng
from dpfl_bench.problems.bookkeeping.layers import Layers, Untappable, layers_of
from dpfl_bench.problems.bookkeeping.trace import Losses, Trace
from dpfl_bench.problems.problem import lengths


def supported(module: nn.Module, features: Tensor | None = None) -> bool:
    """Whether every parameter belongs to one layer, of a kind with a rule. With features, it is
    tried on two records of their kind:

    no layer may be used twice, no parameter outside of its layer, and records must come first in
    every layer and stay apart.
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
    """The gradients of n records at the parameters that `module` holds. features: (n, ...),
    unchanged until the last sum.

    layers: `layers_of(module)`, where `supported` has tried the module with records of this kind.
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
        if not math.isfinite(self.norms.sum().item()):
            norms, left_out = self.norms, ~self.norms.isfinite()
            trace.leave_out(left_out)
            self.norms = self._measure(trace, features).where(~left_out, norms)

    def _measure(self, trace: Trace, features: Tensor) -> Tensor:
        self._found = [
            trace.found.get(place) for place in self._layers.names
        ]  # of each parameter that is used
        found = [length for found in self._found if found for length in found.lengths]
        return lengths(torch.cat(found, 1) if found else torch.zeros(trace.n, 1, device=features.device))

    def weighted(self, scales: Tensor, out: Tensor) -> None:
        """out = sum_r scales_r gradient_r. scales: (n,), out: (d,), in the order of the module's
        parameters.
        """
        out.zero_()
        self.add(scales, out)

    def add(self, scales: Tensor, out: Tensor) -> None:
        """The same, added to `out`: for a lot in several pieces. Records whose norm is not finite
        add nothing.
        """
        scales = scales.to(out)
        for found, total in zip(self._found, out.split_with_sizes(self._layers.sizes), strict=True):
            if found:
                found.add(scales, total)


def _pair(features: Tensor) -> Tensor:
    """Two records. Real ones may be alike, or zero, and hide what a module does to its batch;
    numbers can be drawn, tokens cannot.
    """
    pair = features[[0, -1]]
    return (
        pair.copy_(torch.from_numpy(rng.generator(0, "probe").normal(size=pair.shape)))
        if pair.is_floating_point()
        else pair
    )


def _stays_alone(module: nn.Module, pair: Tensor, record: int) -> bool:
    """Whether what comes out for this one of two records has nothing of the other in it, nor its
    loss a gradient there.
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
    """What comes out, with the random numbers (Dropout's) that any other call gets."""
    with torch.random.fork_rng(), torch.no_grad():
        found: Tensor = module(features)
    return found
