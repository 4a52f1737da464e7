"""Any torch network as a flat vector: gradients by autograd, one client after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from dpfl_bench import rng
from dpfl_bench.problems.problem import Batch, Factors, Scored, lengths
from dpfl_bench.problems.tasks import Task, classify

CHUNK_NUMBERS = 2**21  # of records' gradients that are computed at once: about a cache's size
HELD_NUMBERS = 2**26  # of those that are kept until they are summed: 256 MB in float32


@dataclass(frozen=True)
class ModuleProblem:
    make: Callable[[], nn.Module]
    classes: int
    l2: float = 0.0
    task: Task = field(default_factory=classify)

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

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        """The records' gradients are measured, then summed; where they exceed HELD_NUMBERS, they are computed once more for the sum.

        A backward pass of the reweighted loss would be cheaper than that, but rounds otherwise than what was measured, and a record on
        the kink of a ReLU may get another gradient there, of any length.
        """
        fits = int((batch.weights > 0).sum()) * self.dimension <= HELD_NUMBERS
        held = list(self._by_chunk(y, batch)) if fits else None
        norms = torch.zeros_like(batch.weights)
        for client, records, gradients in held or self._by_chunk(y, batch):
            norms[client, records] = lengths(gradients).to(norms)
        scales = batch.weights * factors(norms, batch.weights)
        total = self.l2 * y if self.l2 else torch.zeros_like(y)
        for client, records, gradients in held or self._by_chunk(y, batch):
            scale = scales[client, records]
            if held is None:  # a second computation may differ (Dropout, some GPU operations): no longer than measured
                measured = norms[client, records].clamp(min=torch.finfo(norms.dtype).tiny)
                scale = scale / (lengths(gradients).to(norms) / measured).clamp(min=1)
            total[client] += scale @ gradients
        return total, norms

    @property
    def metric(self) -> str:
        return self.task.metric

    def losses(self, x: Tensor, features: Tensor, targets: Tensor) -> Scored:
        with torch.no_grad():
            outputs = self._forward(x, features)
            return Scored(self.task.losses(outputs, targets), *self.task.scores(outputs, targets))

    def _one(self, y: Tensor, batch: Batch, client: int) -> Tensor:
        real = batch.weights[client] > 0
        if not real.any():
            return torch.zeros_like(y)
        return self._weighted(y, batch.features[client][real], batch.targets[client][real], batch.weights[client][real])

    def _weighted(self, y: Tensor, features: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        leaf = y.detach().requires_grad_()
        losses = self.task.losses(self._forward(leaf, features), targets)
        (gradient,) = torch.autograd.grad((losses * weights).sum(), leaf)
        return gradient

    def _by_chunk(self, y: Tensor, batch: Batch) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Every real record's gradient, as (client, the records' numbers (n,), gradients (n, d))."""
        size = max(1, CHUNK_NUMBERS // self.dimension)
        for client, real in enumerate(batch.weights > 0):
            for records in torch.split(real.nonzero()[:, 0], size):
                if len(records):
                    yield client, records, self._each(y[client].detach(), batch.features[client, records], batch.targets[client, records])

    def _each(self, y: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        """The gradient of each record, alone in its batch: (n, d)."""
        if self._vmaps:
            try:
                gradients: Tensor = vmap(grad(self._loss), in_dims=(None, 0, 0))(y, features, targets)
                return gradients
            except RuntimeError:  # an operation that vmap cannot do; any other error comes again below
                pass
        one = y.new_ones(1)
        return torch.stack([self._weighted(y, x, t, one) for x, t in zip(torch.split(features, 1), torch.split(targets, 1), strict=True)])

    @cached_property
    def _vmaps(self) -> bool:
        """vmap refuses what recurrent layers do in place. This also makes `module`, whose initialisation vmap would refuse."""
        return not any(isinstance(layer, nn.RNNBase) for layer in self.module.modules())

    def _loss(self, y: Tensor, record: Tensor, target: Tensor) -> Tensor:
        return self.task.losses(self._forward(y, record[None]), target[None])[0]

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
