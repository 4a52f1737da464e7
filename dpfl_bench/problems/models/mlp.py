"""Fully connected networks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from torch import nn

from dpfl_bench.checks import ranges


def mlp(shape: list[int], classes: int, hidden: list[int]) -> nn.Module:
    """Flatten, then linear layers with ReLU between them: sizes prod(shape), *hidden, classes."""
    return nn.Sequential(nn.Flatten(), *linear_layers([math.prod(shape), *hidden, classes], nn.ReLU))


def linear_layers(sizes: list[int], active: Callable[[], nn.Module]) -> list[nn.Module]:
    """From sizes[0] numbers to sizes[-1], with an activation between any two layers."""
    ranges.check("model.hidden", sizes[1:-1], ranges.HIDDEN)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), active()]
    return layers[:-1]
