"""torch's `vmap`: one batched backward pass for a chunk of clients, or of records."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.func import grad, vmap

from dpfl_bench.problems.backends.loop import Loop, Piece, Rows
from dpfl_bench.problems.problem import Batch

UNBATCHED = (nn.RNNBase,)  # vmap refuses what recurrent layers do in place
MIXING = (nn.modules.batchnorm._BatchNorm,)  # a padded record would change the other records' gradients


@dataclass(frozen=True)
class Vmap(Loop):
    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        if self.network.has(*UNBATCHED) or (self.network.has(*MIXING) and not batch.rectangular):
            return super().gradient(y, batch)
        gradients: Tensor = vmap(grad(self._of_client), randomness="different")(
            y.detach(), batch.features, batch.targets, batch.weights
        )
        return gradients

    def piece(self, y: Tensor, features: Tensor, targets: Tensor) -> Piece:
        # `has` also makes the module, outside of vmap, which would refuse to initialise it
        if self.network.has(*UNBATCHED):
            return super().piece(y, features, targets)
        try:
            return Rows(
                vmap(grad(self._of_record), (None, 0, 0), randomness="different")(y, features, targets)
            )
        except RuntimeError:  # vmap does not know an operation; any other error comes again here
            return super().piece(y, features, targets)

    def _of_client(self, y: Tensor, features: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        return (self.network.losses(y, features, targets) * weights).sum()

    def _of_record(self, y: Tensor, record: Tensor, target: Tensor) -> Tensor:
        return self.network.losses(y, record[None], target[None])[0]
