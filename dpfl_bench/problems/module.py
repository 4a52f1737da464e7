"""Any torch network as a `Problem`: its gradients come from a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from dpfl_bench import rng
from dpfl_bench.problems.backends.flat import Flat
from dpfl_bench.problems.backends.loop import Backend, Loop
from dpfl_bench.problems.backends.opacus import Opacus
from dpfl_bench.problems.backends.vmap import Vmap
from dpfl_bench.problems.network import Network
from dpfl_bench.problems.problem import Batch, Factors, Scored
from dpfl_bench.problems.tasks import Task, classify

BACKENDS: dict[str, Callable[[Network], Backend]] = {
    "loop": Loop,
    "flat": Flat,
    "vmap": Vmap,
    "opacus": Opacus,
}


@dataclass(frozen=True)
class ModuleProblem:
    """`Problem` for the torch module that `make` returns. backend: a name in `BACKENDS`."""

    make: Callable[[], nn.Module]
    classes: int
    l2: float = 0.0
    task: Task = field(default_factory=classify)
    backend: str = "flat"

    @cached_property
    def network(self) -> Network:
        return Network(self.make, self.task)

    @property
    def dimension(self) -> int:
        return self.network.dimension

    def start(self, seed: int, like: Tensor) -> Tensor:
        """PyTorch's default initialisation, drawn from `seed`."""
        module = rng.initialised(self.make, seed)
        return torch.cat([p.detach().flatten() for p in module.parameters()]).to(like)

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        """A lot that is empty (Poisson) gives l2 * y alone."""
        gradient = self._backend.gradient(y, batch)
        return gradient.add_(y, alpha=self.l2) if self.l2 else gradient

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        gradient, norms = self._backend.clipped_gradient(y, batch, factors)
        return gradient.add_(y, alpha=self.l2) if self.l2 else gradient, norms

    @property
    def metric(self) -> str:
        return self.task.metric

    def losses(self, x: Tensor, features: Tensor, targets: Tensor) -> Scored:
        with torch.no_grad():
            outputs = self.network.outputs(x, self.network.laid_out(features))
            return Scored(self.task.losses(outputs, targets), *self.task.scores(outputs, targets))

    @cached_property
    def _backend(self) -> Backend:
        return BACKENDS[self.backend](self.network)


def check_module(module: nn.Module, private: bool) -> None:
    """Raise ValueError for a module with buffers, which clients would not send, and for BatchNorm
    where the run is private.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and private:
            raise ValueError(
                f"model: layer {name!r} is BatchNorm, whose batch statistics no clipping bounds, and eps is"
                " finite; use GroupNorm (model.norm=group) or eps=inf"
            )
    if buffers := [name for name, _ in module.named_buffers()]:
        raise ValueError(
            f"model: buffers {buffers} are state outside the parameters, which clients would not send; "
            "expected none (for BatchNorm: track_running_stats=False)"
        )
