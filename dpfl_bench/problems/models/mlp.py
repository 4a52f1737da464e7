"""Fully connected networks. What a dry run reads of them is here, so torch is imported where they
are built.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from dpfl_bench.checks import ranges
from dpfl_bench.checks.ranges import HIDDEN

if TYPE_CHECKING:
    from torch import nn


def mlp(shape: list[int], classes: int, hidden: Annotated[list[int], HIDDEN]) -> nn.Module:
    """Flatten, then linear layers with ReLU between them: sizes prod(shape), *hidden, classes."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), *linear_layers([math.prod(shape), *hidden, classes], nn.ReLU))


def linear_layers(sizes: list[int], active: Callable[[], nn.Module]) -> list[nn.Module]:
    """From sizes[0] numbers to sizes[-1], with an activation between any two layers."""
    from torch import nn

    ranges.check("model.hidden", sizes[1:-1], HIDDEN)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), active()]
    return layers[:-1]
