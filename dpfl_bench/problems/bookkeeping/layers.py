"""Which layers' records can be told apart by what comes in and the gradient by what goes out."""

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
    """The records' gradients have to be computed in another way."""


class Own(NamedTuple):
    """A layer's parameters."""

    parameters: dict[str, nn.Parameter | None]
    constants: dict[str, Tensor | None]  # the same numbers, of which autograd knows nothing
    axes: range  # of what comes in


class Layers(dict[nn.Module, Own]):
    """Those of a module with parameters of their own, in its order."""

    @cached_property
    def names(self) -> list[tuple[nn.Module, str]]:
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
    found = Layers()
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
            found[layer] = Own(own, constants, _axes(layer))
    if len(set(map(id, found.parameters))) < len(found.parameters):
        raise Untappable("layers share a parameter")
    return found


def _has_rule(layer: nn.Module, parameters: Iterable[str]) -> bool:
    if type(layer) not in KINDS or "forward" in vars(layer):
        return False
    if isinstance(layer, nn.LSTM):
        return not layer.bidirectional and layer.proj_size == 0
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq):
        return False
    return {"weight", "bias"}.issuperset(parameters) and not getattr(layer, "track_running_stats", False)


def _axes(layer: nn.Module) -> range:
    """How many what comes in has if there is one before those that the layer needs. Whether it is
    the records', its length tells.
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
