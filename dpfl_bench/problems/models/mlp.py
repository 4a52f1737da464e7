"""Fully connected networks."""

from __future__ import annotations

import itertools
import math

from torch import nn


def mlp(shape: list[int], classes: int, hidden: list[int]) -> nn.Module:
    """Flatten, then linear layers with ReLU between them: sizes prod(shape), *hidden, classes."""
    sizes = [math.prod(shape), *hidden, classes]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
