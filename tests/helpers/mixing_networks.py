"""Networks that mix the records of a batch, so that no record has a gradient of its own."""

from __future__ import annotations

from torch import Tensor, nn


class Centred(nn.Module):
    """Each record less the mean of its batch: by itself it is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x - x.mean(0))


class Detached(Centred):
    """Mixes records without a gradient that could tell."""

    def forward(self, x: Tensor) -> Tensor:
        out = self.out(x)
        return out - out.detach().mean(0)
