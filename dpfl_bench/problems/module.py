"""Any torch classifier as a flat vector: gradients by autograd, one client after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from dpfl_bench import rng
from dpfl_bench.problems.problem import Batch


@dataclass(frozen=True)
class ModuleProblem:
    make: Callable[[], nn.Module]
    classes: int
    l2: float = 0.0

    @cached_property
    def module(self) -> nn.Module:
        """The architecture on the `meta` device: shapes and forward, no numbers."""
        with torch.device("meta"):
            return self.make()

    @cached_property
    def dimension(self) -> int:
        return sum(p.numel() for p in self.module.parameters())

    def start(self, seed: int, like: Tensor) -> Tensor:
        """PyTorch's default initialisation, drawn from `seed`."""
        module = rng.initialised(self.make, seed)
        return torch.cat([p.detach().flatten() for p in module.parameters()]).to(like)

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        """A lot that is empty (Poisson) gives l2 * y alone."""
        rows = [self._one(y[i], batch, i) for i in range(len(y))]
        return torch.stack(rows) + self.l2 * y if self.l2 else torch.stack(rows)

    def losses(self, x: Tensor, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            outputs = self._forward(x, features)
        return functional.cross_entropy(outputs, targets, reduction="none"), (outputs.argmax(1) == targets).to(outputs)

    def _one(self, y: Tensor, batch: Batch, client: int) -> Tensor:
        real = batch.weights[client] > 0
        if not real.any():
            return torch.zeros_like(y)
        leaf = y.detach().requires_grad_()
        outputs = self._forward(leaf, batch.features[client][real])
        losses = functional.cross_entropy(outputs, batch.targets[client][real], reduction="none")
        (gradient,) = torch.autograd.grad((losses * batch.weights[client][real]).sum(), leaf)
        return gradient

    def _forward(self, x: Tensor, features: Tensor) -> Tensor:
        named = list(self.module.named_parameters())
        parts = torch.split(x, [p.numel() for _, p in named])
        parameters = {name: part.view(p.shape) for (name, p), part in zip(named, parts, strict=True)}
        outputs: Tensor = functional_call(self.module, parameters, (features,))
        return outputs


def check_module(module: nn.Module, private: bool) -> None:
    """Refuse what a flat vector cannot carry or a client-level guarantee does not cover."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and private:
            raise ValueError(
                f"model: layer {name!r} is BatchNorm, whose batch statistics no clipping bounds, and eps is finite; "
                "use GroupNorm (model.norm=group) or eps=inf"
            )
    if buffers := [name for name, _ in module.named_buffers()]:
        raise ValueError(
            f"model: buffers {buffers} are state outside the parameters, which clients would not send; "
            "expected none (for BatchNorm: track_running_stats=False)"
        )
