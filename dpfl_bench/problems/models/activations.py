"""Activations by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from dpfl_bench.checks import ranges
from dpfl_bench.checks.ranges import ACTIVATION


class TemperedSigmoid(nn.Module):
    """s / (1 + exp(-temp x)) - o (Papernot et al. 2021); s = temp = 2, o = 1 is tanh."""

    def __init__(self, s: float, temp: float, o: float):
        super().__init__()
        self.s, self.temp, self.o = s, temp, o

    def forward(self, x: Tensor) -> Tensor:
        return self.s * torch.sigmoid(self.temp * x) - self.o

    def extra_repr(self) -> str:
        return f"s={self.s:g}, temp={self.temp:g}, o={self.o:g}"


def activation(name: str, s: float, temp: float, o: float) -> Callable[[], nn.Module]:
    """What makes the layer of this name; s, temp and o are the tempered sigmoid's."""
    ranges.check("model.activation", name, ACTIVATION)
    makers: dict[str, Callable[[], nn.Module]] = {
        "relu": nn.ReLU,
        "tanh": nn.Tanh,
        "tempered": partial(TemperedSigmoid, s, temp, o),
    }
    return makers[name]
