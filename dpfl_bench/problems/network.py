"""A torch module as a function of one flat vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dpfl_bench import rng
from dpfl_bench.problems.tasks import Task, classify


@dataclass(frozen=True)
class Network:
    make: Callable[[], nn.Module]
    task: Task = field(default_factory=classify)

    @cached_property
    def module(self) -> nn.Module:
        """The architecture on the `meta` device: shapes and forward, no numbers."""
        with torch.device("meta"):
            return self.make()

    @cached_property
    def sizes(self) -> list[int]:
        """How many numbers each parameter has."""
        return [p.numel() for p in self.module.parameters()]

    @property
    def dimension(self) -> int:
        return sum(self.sizes)

    def has(self, *kinds: type[nn.Module]) -> bool:
        """Whether a layer is of one of these kinds."""
        return any(isinstance(layer, kinds) for layer in self.module.modules())

    def outputs(self, x: Tensor, features: Tensor) -> Tensor:
        """What the module returns with parameters x, (d,), for n records: (n, *shape) -> (n,
        ...).
        """
        named = self.module.named_parameters()
        parameters = {
            name: part.view(p.shape)
            for (name, p), part in zip(named, torch.split(x, self.sizes), strict=True)
        }
        outputs: Tensor = functional_call(self.module, parameters, (features,))
        return outputs

    def laid_out(self, features: Tensor) -> Tensor:
        """The features with the channels last in memory, as a CPU's convolutions are fastest."""
        layout = self._layouts.get(features.dim())
        return (
            features if layout is None or features.device.type != "cpu" else features.to(memory_format=layout)
        )

    @cached_property
    def _layouts(self) -> dict[int, torch.memory_format]:
        kinds = {4: (nn.Conv2d, torch.channels_last), 5: (nn.Conv3d, torch.channels_last_3d)}
        return {axes: layout for axes, (kind, layout) in kinds.items() if self.has(kind)}

    def losses(self, x: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        """Loss of each of n records at the parameters x, (d,): (n,)."""
        return self.task.losses(self.outputs(x, features), targets)

    def bound(self, parameters: Tensor, gradients: Tensor | None = None) -> nn.Module:
        """A new module whose parameters are views of a flat vector, (d,), and their gradients views
        of another one, if it is given.
        """
        module = rng.initialised(self.make, 0).to(parameters)
        views = torch.split(parameters, self.sizes)
        slopes = torch.split(parameters if gradients is None else gradients, self.sizes)
        for p, view, slope in zip(module.parameters(), views, slopes, strict=True):
            p.data = view.view(p.shape)
            p.requires_grad_(gradients is not None)
            p.grad = None if gradients is None else slope.view(p.shape)
        return module
