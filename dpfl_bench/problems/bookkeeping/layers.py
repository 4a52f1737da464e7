"""Which layers' records can be told apart by what comes in and the gradient by what goes out."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from dpfl_bench.problems.bookkeeping.rules import RULES

KINDS = {*RULES, nn.LSTM}
Layers = dict[nn.Module, list[nn.Parameter]]


class Untappable(Exception):
    """The records' gradients have to be computed in another way."""


def layers_of(module: nn.Module) -> Layers:
    """Those with parameters of their own, and these."""
    found: Layers = {}
    seen: set[int] = set()
    for layer in module.modules():
        if isinstance(layer, _BatchNorm):
            raise Untappable("BatchNorm mixes records")
        own = {name: parameter for name, parameter in layer._parameters.items() if parameter is not None}
        if own:
            if not _has_rule(layer, own):
                raise Untappable(f"{type(layer).__name__}: no rule")
            found[layer] = list(own.values())
            seen.update(map(id, found[layer]))
    if len(seen) < sum(map(len, found.values())):
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


def has_records(layer: nn.Module, x: Tensor) -> bool:
    """Whether there is an axis before those that the layer needs. Whether it is the records', its length tells."""
    if isinstance(layer, _ConvNd):
        return x.dim() == layer.weight.dim()
    if isinstance(layer, _InstanceNorm):
        return x.dim() == ("1d", "2d", "3d").index(type(layer).__name__[-2:]) + 3
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        return x.dim() > len(layer.normalized_shape)
    return x.dim() == 3 if isinstance(layer, nn.LSTM) else x.dim() > isinstance(layer, nn.Linear)
