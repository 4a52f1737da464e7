"""The layers of a module that book-keeping has a rule for: their parameters, in the module's
order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from dpfl_bench.problems.bookkeeping.rules import RULES

KINDS = {*RULES, nn.LSTM}


class Untappable(Exception):
    """Book-keeping cannot compute this module's gradients; another way has to."""


class Own(NamedTuple):
    """A layer's parameters."""

    parameters: dict[str, nn.Parameter | None]
    constants: dict[str, Tensor | None]  # the same numbers, detached from autograd
    axes: range  # how many axes the layer's input may have


class Layers(dict[nn.Module, Own]):
    """The layers of a module that have parameters of their own, in the module's order."""

    @cached_property
    def names(self) -> list[tuple[nn.Module, str]]:
        """Each parameter, as its layer and its name there."""
        return [
            (layer, name)
            for layer, own in self.items()
            for name, parameter in own.parameters.items()
            if parameter is not None
        ]

    @cached_property
    def parameters(self) -> list[Tensor]:
        return [layer._parameters[name] for layer, name in self.names]  # type: ignore[misc]

    @cached_property
    def sizes(self) -> list[int]:
        return [parameter.numel() for parameter in self.parameters]


def layers_of(module: nn.Module) -> Layers:
    """Raises Untappable if a parameter belongs to no layer with a rule, or to two layers."""
    layers = Layers()
    for layer in module.modules():
        if isinstance(layer, _BatchNorm):
            raise Untappable("BatchNorm mixes records")
        own = layer._parameters
        if names := {name for name, parameter in own.items() if parameter is not None}:
            if not _has_rule(layer, names):
                raise Untappable(f"{type(layer).__name__}: no rule")
            constants = {
                name: None if parameter is None else parameter.detach() for name, parameter in own.items()
            }
            layers[layer] = Own(own, constants, _axes(layer))
    if len(set(map(id, layers.parameters))) < len(layers.parameters):
        raise Untappable("layers share a parameter")
    return layers


def _has_rule(layer: nn.Module, parameters: Iterable[str]) -> bool:
    if type(layer) not in KINDS or "forward" in vars(layer):
        return False
    if isinstance(layer, nn.LSTM):
        return not layer.bidirectional and layer.proj_size == 0
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq):
        return False
    return {"weight", "bias"}.issuperset(parameters) and not getattr(layer, "track_running_stats", False)


def _axes(layer: nn.Module) -> range:
    """How many axes the layer's input may have: those that the layer needs, and the records' before
    them. (`Trace.tap` checks that the first axis is as long as there are records.)
    """
    if isinstance(layer, _ConvNd):
        return range(layer.weight.dim(), layer.weight.dim() + 1)
    if isinstance(layer, _InstanceNorm):
        axes = ("1d", "2d", "3d").index(type(layer).__name__[-2:]) + 3
        return range(axes, axes + 1)
    if isinstance(layer, nn.LSTM):
        return range(3, 4)
    needed = (
        len(layer.normalized_shape)
        if isinstance(layer, nn.LayerNorm | nn.RMSNorm)
        else isinstance(layer, nn.Linear)
    )
    return range(needed + 1, sys.maxsize)
